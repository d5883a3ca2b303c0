"""An outcome model of the user's own: taken by the Protocol as it is, and told what it lacks."""

from __future__ import annotations

import numpy as np
import pytest
from five_state_model import FiveStateModel, every_course
from tiny_run import tiny_fit

from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import check_model
from irl.evaluation import judged
from irl.pipeline import fit
from irl.run import Run
from irl.study import Study


def study(model, folds=0):
    batch = every_course(4)
    train, test = batch.take(np.arange(24)), batch.take(np.arange(24, 32))
    phi = FeatureMap(batch.features, np.zeros(2), np.ones(2))
    everyone = batch if folds else None
    config = tiny_fit(folds=folds, repeats=1)
    return Study(train, test, phi, -np.ones(2), config, model=model, everyone=everyone), test


@pytest.mark.slow
def test_a_fit_takes_it_as_it_is_and_keeps_what_it_can(tmp_path):
    model = FiveStateModel()
    asked, test = study(model, folds=2)
    found = fit(asked)
    assert found.model.model is model
    result = judged(asked, found, test, config={"gamma": 0.99})
    assert result.model_error.factual == 0  # it is exact
    settings = {"command": "explain", "fit": {"habit": []}}
    run = Run.begin(tmp_path, settings)
    run.write(result, "", found, asked.train, test, None)
    np.testing.assert_array_equal(
        Run(tmp_path, model).agent.mu([-1, 0], test.start), found.agent.mu([-1, 0], test.start)
    )
    with pytest.raises(ValueError, match=r"no outcome_model.npz; a run whose model was your own"):
        Run(tmp_path).agent  # noqa: B018


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"advance": None, "bounds": None}, r"lacks bounds \(two arrays.*\); advance \(advance\(states"),
        ({"features": ("disease", "pain")}, "is of features disease, pain and 2 actions, the batch of disease, side"),
        ({"n_actions": 3}, "and 3 actions"),
        ({"start": lambda obs: obs[:, 0]}, r"start must give states \[3, S\]"),
        ({"predict": lambda states: np.zeros((3, 2))}, r"predict must give \[3, 2, 2\].*got \[3, 2\]"),
        ({"predict": lambda states: np.full((3, 2, 2), np.nan)}, "predict gives a number that is not finite"),
        ({"end_probability": lambda states: np.full((3, 2), 1.5)}, r"a chance outside of \[0, 1\]"),
        ({"bounds": (0, 1)}, r"bounds must give \[2, 2\]"),
    ],
)
def test_what_the_protocol_needs_is_said(change, message):
    model = FiveStateModel()
    check_model(model, every_course(2))
    own = {name: getattr(model, name) for name in dir(model) if not name.startswith("_")} | change
    other = type("MyModel", (), {})()
    for name, value in own.items():
        if value is not None:
            setattr(other, name, value)
    with pytest.raises(ValueError, match=f"^MyModel.*{message}"):
        fit(study(other)[0])
