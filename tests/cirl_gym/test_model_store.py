"""Outcome models as files: the same predictions to the last bit, and a damaged file is an error, never a model."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest
import torch
from outcome_batches import MODELS, confounded, linear_system, random_model
from scripted import Scripted
from torch import nn

from cirl_gym import Batch, TumourParameters, TumourWorld, rollout
from cirl_gym.files import read_arrays, write_arrays
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.network_files import load_module_arrays, module_arrays
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.outcome_models.store import load_model, save_model


@pytest.mark.parametrize("kind", MODELS)
def test_a_saved_model_answers_to_the_last_bit_and_holds_no_pickle(kind, tmp_path):
    model, batch = random_model(kind), linear_system(10, 0)
    save_model(model, tmp_path / "model.npz")
    torch.manual_seed(7)
    loaded = load_model(tmp_path / "model.npz")
    assert type(loaded) is type(model)
    states = model.encode(batch)
    assert np.array_equal(loaded.encode(batch), states)
    assert np.array_equal(loaded.predict(states), model.predict(states))
    assert np.array_equal(loaded.end_probability(states), model.end_probability(states))
    assert np.array_equal(loaded.noise_scale, model.noise_scale)
    assert np.array_equal(loaded.bounds, model.bounds)
    assert loaded.features == model.features
    save_model(loaded, tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "model.npz").read_bytes()
    assert all(member.endswith(".npy") for member in zipfile.ZipFile(tmp_path / "model.npz").namelist())
    assert all(array.dtype != object for array in read_arrays(tmp_path / "model.npz").values())


def test_every_fitted_head_can_be_saved(tmp_path):
    ended, _ = confounded(200)
    for batch, kind in ((linear_system(30, 0), "never"), (ended, None)):
        fitted = fit_outcome_model("ar", batch, batch, OutcomeModelConfig.quick(), np.random.default_rng(0))
        assert kind is None or fitted.report["end"]["kind"] == kind
        save_model(fitted.model, tmp_path / "model.npz")
        states = fitted.model.encode(batch)
        loaded = load_model(tmp_path / "model.npz")
        assert np.array_equal(loaded.end_probability(states), fitted.model.end_probability(states))
        json.dumps(fitted.report, allow_nan=False)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_named(share, tmp_path):
    save_model(random_model("crn"), tmp_path / "model.npz")
    whole = (tmp_path / "model.npz").read_bytes()
    (tmp_path / "model.npz").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(ValueError, match=r"model\.npz"):
        load_model(tmp_path / "model.npz")


@pytest.mark.parametrize(
    "damage",
    [
        lambda arrays: arrays.pop("config"),
        lambda arrays: arrays.pop("law.intercept"),
        lambda arrays: arrays.pop("network.lstm.weight_hh_l0"),
        lambda arrays: arrays.update({"network.extra": np.zeros(2)}),
        lambda arrays: arrays.update({"spec.low": np.full(2, np.nan)}),
        lambda arrays: arrays.update({"law.coefficients": np.zeros((1, 2))}),
        lambda arrays: arrays.update({"config": np.array("{")}),
        lambda arrays: arrays.update({"config": np.array("[1]")}),
        lambda arrays: arrays.update({"config": np.array(str(arrays["config"]).replace('"schema": 2', '"schema": 9'))}),
        lambda arrays: arrays.update({"config": np.array(str(arrays["config"]).replace('"crn"', '"tree"'))}),
    ],
)
def test_a_file_that_is_not_a_whole_model_is_named(damage, tmp_path):
    save_model(random_model("crn"), tmp_path / "model.npz")
    arrays = read_arrays(tmp_path / "model.npz")
    damage(arrays)
    write_arrays(tmp_path / "model.npz", arrays)
    with pytest.raises(ValueError, match=r"model\.npz"):
        load_model(tmp_path / "model.npz")


def test_the_simulator_can_be_saved_and_other_things_cannot(tmp_path):
    with pytest.raises(ValueError, match="a dict cannot be saved"):
        save_model({}, tmp_path / "model.npz")
    assert not list(tmp_path.iterdir())
    save_model(OracleModel(TumourParameters(order=3)), tmp_path / "model.npz")
    assert load_model(tmp_path / "model.npz").parameters == TumourParameters(order=3)


def test_module_arrays_are_copies_and_are_checked():
    module = nn.Linear(2, 3)
    arrays = module_arrays(module)
    before = arrays["weight"].copy()
    nn.init.zeros_(module.weight)
    assert np.array_equal(arrays["weight"], before)
    load_module_arrays(module, arrays)
    assert np.array_equal(module.weight.detach().numpy(), before)
    with pytest.raises(ValueError, match="bias"):
        load_module_arrays(module, {"weight": arrays["weight"]})
    with pytest.raises(ValueError, match="'weight'"):
        load_module_arrays(module, {**arrays, "weight": np.zeros((2, 3), dtype=np.float32)})
    with pytest.raises(ValueError, match="float64"):
        load_module_arrays(module, {**arrays, "weight": before.astype(np.float64)})


@pytest.mark.parametrize("kind", ["ar", "mb_x"])
def test_scaling_belongs_to_the_model_and_happens_once(kind, tmp_path):
    whole = rollout(TumourWorld(TumourParameters(horizon=6)), Scripted(0.5), 80, np.random.default_rng(0))
    splits = (whole.take(np.arange(64)), whole.take(np.arange(64, 80)))
    for name, batch in zip(("train", "validation"), splits, strict=True):
        batch.save(tmp_path / f"{name}.npz")
    again = tuple(Batch.load(tmp_path / f"{name}.npz") for name in ("train", "validation"))
    for name, given in (("one", splits), ("two", again)):
        model = fit_outcome_model(kind, *given, OutcomeModelConfig.quick(), np.random.default_rng(0)).model
        save_model(model, tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    # Raw observations in, raw predictions out, before saving and after.
    loaded = load_model(tmp_path / "one")
    predicted = loaded.predict(loaded.encode(splits[1]))
    np.testing.assert_array_equal(predicted, model.predict(model.encode(splits[1])))
    errors = np.abs(predicted[:, :-1] - splits[1].obs[:, 1:, None])[splits[1].mask]
    assert np.median(errors[..., 0].min(axis=1)) < 2
