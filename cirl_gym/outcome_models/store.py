"""Outcome models as files: one ``.npz`` with the arrays and, as text among them, the settings. No pickle."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, TypeAlias

from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.files import loading
from cirl_gym.outcome_models.ends import FORMULAS, EndHead, EndLines, end_network
from cirl_gym.outcome_models.inputs import KINDS, Scaler, Window
from cirl_gym.outcome_models.known import KnowingModel
from cirl_gym.outcome_models.law import LinearLaw
from cirl_gym.outcome_models.limits import OutcomeSpec, ResidualNoise
from cirl_gym.outcome_models.model import Correction, EnsembleModel, LearnedModel, RowWeights
from cirl_gym.outcome_models.network_files import (
    Arrays,
    module_arrays,
    names_of,
    part,
    prefixed,
    read_model_file,
    size_of,
    stored_module,
    write_model_file,
)
from cirl_gym.outcome_models.networks import CONFIGS, CorrectingNetwork, PropensityConfig, kind_of
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.terms import Terms
from cirl_gym.outcome_models.training import TrainingConfig
from cirl_gym.types import FloatArray
from cirl_gym.worlds.tumour import TumourParameters

AnyModel: TypeAlias = LearnedModel | EnsembleModel | OracleModel | KnowingModel


def save_model(model: OutcomeModel, path: str | os.PathLike[str]) -> None:
    """Write a model whole: the linear law, a network that corrects one, an ensemble, or the simulator; and what is
    known beside it.

    Raises:
        ValueError: another kind of model.
    """
    write_model_file(path, *_taken_apart(model))


def can_be_saved(model: OutcomeModel) -> bool:
    """Whether :func:`save_model` knows this kind of model."""
    return isinstance(model, LearnedModel | EnsembleModel | OracleModel | KnowingModel)


def load_model(path: str | os.PathLike[str]) -> AnyModel:
    """Read what :func:`save_model` wrote; its predictions are the same to the last bit.

    Raises:
        ValueError: the file is not a whole model of this schema; the message names it.
    """
    config, arrays = read_model_file(path)
    with loading(path, "a whole outcome model"):
        return _build(config, arrays)


def _taken_apart(model: object) -> tuple[dict[str, Any], Arrays]:
    if isinstance(model, OracleModel):
        return {"kind": "oracle", "parameters": asdict(model.parameters)}, {}
    if isinstance(model, KnowingModel):
        own, arrays = _taken_apart(model.model)
        names = {"features": list(model.features), "action_names": list(model.action_names)}
        return {"kind": "known", **names, "model": own}, arrays
    if isinstance(model, EnsembleModel):
        parts = [_taken_apart(member) for member in model.members]
        arrays = {"noise_scale": model.noise_scale}
        for number, (_, own) in enumerate(parts):
            arrays |= prefixed(f"member{number}.", own)
        return {"kind": "ensemble", "members": [config for config, _ in parts]}, arrays
    if not isinstance(model, LearnedModel):
        raise ValueError(f"save_model: a {type(model).__name__} cannot be saved")
    spec, end, law = model.spec, model.end, model.law
    config: dict[str, Any] = {
        "kind": "ar",
        "features": list(spec.features),
        "n_actions": spec.n_actions,
        "order": law.window.order,
        "end": {"kind": end.kind, "rate": end.rate, "hidden": end.hidden},
    }
    arrays = {
        **_fields("law", law, ("intercept", "coefficients", "effects")),
        **_fields("spec", spec, ("low", "high", "noise_scale", "floor", "ceiling")),
        **_fields("end", end.lines, ("low", "high", "noise")),
        **_fields("end.scaler", end.lines.scaler, ("mean", "scale")),
    }
    if law.terms is not None:
        arrays |= _fields("terms", law.terms, ("knots", "bends", "interactions"))
    if spec.residuals is not None:
        arrays |= _fields("residuals", spec.residuals, ("quantiles", "mixing"))
    if end.network is not None:
        arrays |= prefixed("end.network.", module_arrays(end.network))
    if model.correction is not None:
        network, scaler = model.correction.network, model.correction.scaler
        config |= {"kind": kind_of(network.config), "network": asdict(network.config), "relative": list(spec.relative)}
        config["weights"] = None if model.correction.weights is None else asdict(model.correction.weights)
        arrays |= _fields("scaler", scaler, ("mean", "scale", "offset"))
        arrays["correction_scale"] = model.correction.scale
        arrays |= prefixed("network.", module_arrays(network))
    return config, arrays


def _build(config: dict[str, Any], arrays: Arrays) -> AnyModel:
    kind = config["kind"]
    if kind == "oracle":
        return OracleModel(TumourParameters(**config["parameters"]))
    if kind == "known":
        model = _build(config["model"], arrays)
        return KnowingModel(model, names_of(config, "features"), names_of(config, "action_names"))
    if kind == "ensemble":
        members = [_build(own, part(f"member{i}.", arrays)) for i, own in enumerate(config["members"])]
        return EnsembleModel(members, _by_feature(arrays, "noise_scale", len(members[0].features)))
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}")
    features, a, head = names_of(config, "features"), size_of(config, "n_actions"), config["end"]
    # Runs of before laws had terms have none.
    terms = Terms(**part("terms.", arrays)) if "terms.bends" in arrays else None
    law = LinearLaw(Window(size_of(config, "order"), len(features), a), **part("law.", arrays), terms=terms)
    # Runs of before residuals had laws of their own have none.
    residuals = ResidualNoise(**part("residuals.", arrays)) if "residuals.mixing" in arrays else None
    relative = tuple(config.get("relative", ()))
    spec = OutcomeSpec(features, a, **part("spec.", arrays), residuals=residuals, relative=relative)
    low, high, noise = (arrays[f"end.{name}"] for name in ("low", "high", "noise"))
    lines, end_layers = EndLines(low, high, noise, Scaler(**part("end.scaler.", arrays))), None
    if head["kind"] not in FORMULAS:
        end_layers = stored_module(
            lambda: end_network(head["kind"], lines.width + a, size_of(head, "hidden")), part("end.network.", arrays)
        )
        end_layers.eval()
    end = EndHead(head["kind"], lines, head["rate"], end_layers, head["hidden"])
    if kind == "ar":
        return LearnedModel(law, spec, end)
    settings = {**config["network"], "training": TrainingConfig(**config["network"]["training"])}
    if kind == "rmsn":
        own = settings["propensity"]
        settings["propensity"] = PropensityConfig(**{**own, "training": TrainingConfig(**own["training"])})
    how = CONFIGS[kind](**settings)
    network = stored_module(lambda: CorrectingNetwork(len(features), a, how), part("network.", arrays))
    network.eval()
    weights = config.get("weights")  # files of before they were kept have none
    scaler, weighed = Scaler(**part("scaler.", arrays)), None if weights is None else RowWeights(**weights)
    correction = Correction(network, scaler, _by_feature(arrays, "correction_scale", len(features)), weighed)
    return LearnedModel(law, spec, end, correction)


def _by_feature(arrays: Arrays, name: str, d: int) -> FloatArray:
    if arrays[name].shape != (d,):
        raise ValueError(f"{name} must be [{d}], got {list(arrays[name].shape)}")
    return arrays[name]


def _fields(prefix: str, holder: object, names: tuple[str, ...]) -> Arrays:
    return {f"{prefix}.{name}": getattr(holder, name) for name in names}
