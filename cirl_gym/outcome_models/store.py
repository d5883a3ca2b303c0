"""Outcome models as files: one ``.npz`` with the arrays and, as text among them, the settings. No pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from cirl_gym.files import read_arrays, write_arrays
from cirl_gym.outcome_models.crn import CounterfactualRecurrentNetwork, CRNConfig
from cirl_gym.outcome_models.end_head import EndHead, EndLines, build_network
from cirl_gym.outcome_models.inputs import Scaler
from cirl_gym.outcome_models.linear import AutoregressiveModel, LinearLaw
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.recurrent import CorrectionNetwork, RecurrentModel
from cirl_gym.outcome_models.rnn import RecurrentNetwork, RNNConfig
from cirl_gym.outcome_models.spec import OutcomeSpec
from cirl_gym.outcome_models.training import TrainingConfig
from cirl_gym.outcome_models.windows import Window
from cirl_gym.parameters import TumourParameters

SCHEMA = 1
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]
AnyModel: TypeAlias = AutoregressiveModel | RecurrentModel | OracleModel


def save_model(model: AnyModel, path: str | os.PathLike[str]) -> None:
    """Write a model whole: the linear law, a network that corrects one, or the simulator.

    Raises:
        ValueError: another kind of model.
    """
    if isinstance(model, OracleModel):
        write_model_file(path, {"kind": "oracle", "parameters": asdict(model.parameters)}, {})
        return
    if not isinstance(model, AutoregressiveModel | RecurrentModel):
        raise ValueError(f"save_model: a {type(model).__name__} cannot be saved")
    spec, end, law = model.spec, model.end, model.law
    config: dict[str, Any] = {
        "kind": "ar",
        "features": list(spec.features),
        "n_actions": spec.n_actions,
        "order": law.window.order,
        "end": {"kind": end.kind, "rate": end.rate, "hidden": end.hidden},
    }
    arrays: Arrays = {
        **_fields("law", law, ("intercept", "coefficients", "effects")),
        **_fields("spec", spec, ("low", "high", "noise_scale", "floor", "ceiling")),
        **_fields("end", end.lines, ("low", "high", "noise")),
        **_fields("end.scaler", end.lines.scaler, ("mean", "scale")),
    }
    if end.network is not None:
        arrays |= _prefixed("end.network", module_arrays(end.network))
    if isinstance(model, RecurrentModel):
        is_crn = isinstance(model.network, CounterfactualRecurrentNetwork)
        config |= {"kind": "crn" if is_crn else "mb_h", "network": asdict(model.network.config)}
        arrays |= _fields("scaler", model.scaler, ("mean", "scale"))
        arrays["correction_scale"] = model.correction_scale
        arrays |= _prefixed("network", module_arrays(model.network))
    write_model_file(path, config, arrays)


def load_model(path: str | os.PathLike[str]) -> AnyModel:
    """Read what :func:`save_model` wrote; its predictions are the same to the last bit.

    Raises:
        ValueError: the file is not a whole model of this schema; the message names it.
    """
    config, arrays = read_model_file(path)
    try:
        return _build(config, arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a whole outcome model: {error!r}") from error


def write_model_file(path: str | os.PathLike[str], config: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write settings (anything JSON has a word for) and arrays as one file."""
    text = json.dumps({"schema": SCHEMA, **config}, allow_nan=False)
    write_arrays(path, {"config": np.array(text), **arrays})


def read_model_file(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Arrays]:
    """Settings and arrays that :func:`write_model_file` wrote.

    Raises:
        ValueError: the file is cut off or damaged, or of another schema; the message names it.
    """
    arrays = read_arrays(path)
    try:
        config = json.loads(str(arrays.pop("config")))
    except (KeyError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} holds no model settings") from error
    if not isinstance(config, dict) or config.pop("schema", None) != SCHEMA:
        raise ValueError(f"{path} is not a model file of schema {SCHEMA}")
    return config, arrays


def module_arrays(module: nn.Module) -> Arrays:
    """Every parameter and buffer by its name, as a copy."""
    return {name: value.detach().cpu().numpy().copy() for name, value in module.state_dict().items()}


def load_module_arrays(module: nn.Module, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Put arrays into the parameters and buffers of the same names.

    Raises:
        ValueError: a name is missing or unknown, or a shape or dtype differs; the message names it.
    """
    expected = module.state_dict()
    if set(expected) != set(arrays):
        raise ValueError(f"arrays missing or unknown: {sorted(set(expected) ^ set(arrays))}")
    loaded = {}
    for name, value in expected.items():
        tensor = torch.from_numpy(np.array(arrays[name]))
        if tensor.shape != value.shape or tensor.dtype != value.dtype:
            raise ValueError(
                f"array {name!r} is {tensor.dtype} {tuple(tensor.shape)}, not {value.dtype} {tuple(value.shape)}"
            )
        loaded[name] = tensor
    module.load_state_dict(loaded)


def _build(config: dict[str, Any], arrays: Arrays) -> AnyModel:
    kind = config["kind"]
    if kind == "oracle":
        return OracleModel(TumourParameters(**config["parameters"]))
    if kind not in ("ar", "crn", "mb_h"):
        raise ValueError(f"unknown kind {kind!r}")
    d, a = len(config["features"]), int(config["n_actions"])
    law = LinearLaw(Window(config["order"], d, a), **_part(arrays, "law", ("intercept", "coefficients", "effects")))
    spec = OutcomeSpec(
        tuple(config["features"]), a, **_part(arrays, "spec", ("low", "high", "noise_scale", "floor", "ceiling"))
    )
    end = _build_end(config["end"], arrays, a)
    if kind == "ar":
        return AutoregressiveModel(law, spec, end)
    settings = {**config["network"], "training": TrainingConfig(**config["network"]["training"])}
    network: CorrectionNetwork
    if kind == "crn":
        network = CounterfactualRecurrentNetwork(d, a, CRNConfig(**settings))
    else:
        network = RecurrentNetwork(d, a, RNNConfig(**settings))
    load_module_arrays(network, _under(arrays, "network"))
    network.eval()
    scaler = Scaler(**_part(arrays, "scaler", ("mean", "scale")))
    return RecurrentModel(law, network, scaler, arrays["correction_scale"], spec, end)


def _build_end(config: dict[str, Any], arrays: Arrays, n_actions: int) -> EndHead:
    scaler = Scaler(**_part(arrays, "end.scaler", ("mean", "scale")))
    lines = EndLines(scaler=scaler, **_part(arrays, "end", ("low", "high", "noise")))
    network = None
    if config["kind"] in ("logistic", "network"):
        network = build_network(config["kind"], lines.width + n_actions, config["hidden"])
        load_module_arrays(network, _under(arrays, "end.network"))
        network.eval()
    return EndHead(config["kind"], lines, config["rate"], network, config["hidden"])


def _fields(prefix: str, holder: object, names: tuple[str, ...]) -> Arrays:
    return {f"{prefix}.{name}": getattr(holder, name) for name in names}


def _prefixed(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def _part(arrays: Arrays, prefix: str, names: tuple[str, ...]) -> Arrays:
    return {name: arrays[f"{prefix}.{name}"] for name in names}


def _under(arrays: Arrays, prefix: str) -> Arrays:
    return {name[len(prefix) + 1 :]: array for name, array in arrays.items() if name.startswith(f"{prefix}.")}
