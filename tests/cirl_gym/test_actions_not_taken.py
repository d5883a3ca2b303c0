"""Errors on what was done and on what was not, apart; what confounding does to a network alone."""

from __future__ import annotations

import numpy as np
import pytest
from outcome_batches import ConfoundedDoctor

from cirl_gym.data.rollout import rollout
from cirl_gym.outcome_models.errors import factual_error, flipped_ahead
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import KINDS
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.exact import Patients, PatientsWorld
from cirl_gym.worlds.tumour import TumourParameters
from cirl_gym.worlds.world import TumourWorld

PARAMETERS = TumourParameters()
ORACLE = OracleModel(PARAMETERS)
PHI = PARAMETERS.feature_map


class Coin:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return self.rng.integers(2, size=len(observation)), None


def ratios(kind, doctor, base, episodes=600):
    """Factual and flipped error of one model, divided by those of the simulator's own expectation."""
    rng = np.random.default_rng(0)
    seen = rollout(TumourWorld(), doctor(1), episodes, rng, deterministic=False)
    train, validation = seen.split(0.15, rng)
    patients = Patients.draw(PARAMETERS, 300, rng)
    test = rollout(PatientsWorld(patients), doctor(2), 300, rng, deterministic=False)
    model = fit_outcome_model(kind, train, validation, OutcomeModelConfig(base=base), rng).model
    errors = [
        (factual_error(one, test, PHI).pooled, flipped_ahead(one, test, patients, PHI, 1)[0].pooled)
        for one in (model, ORACLE)
    ]
    return tuple(found / floor for found, floor in zip(*errors, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "mb_x"])
def test_with_the_law_actions_not_taken_are_predicted_as_well(kind):
    factual, flipped = ratios(kind, ConfoundedDoctor, True)
    assert factual < 1.2
    assert flipped < 1.4


@pytest.mark.slow
def test_a_network_alone_is_worse_on_what_it_did_not_see():
    factual, flipped = ratios("mb_h", ConfoundedDoctor, False)
    assert flipped > 1.05 * factual
    factual, flipped = ratios("mb_h", Coin, False)
    assert flipped == pytest.approx(factual, rel=0.05)


@pytest.mark.slow
def test_without_confounding_adjusting_changes_little():
    found = {kind: ratios(kind, Coin, False) for kind in ("mb_h", "rmsn")}
    assert found["rmsn"][0] == pytest.approx(found["mb_h"][0], rel=0.05)
    assert found["rmsn"][1] == pytest.approx(found["mb_h"][1], rel=0.05)
