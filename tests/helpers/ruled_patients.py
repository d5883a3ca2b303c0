"""The five-state patient under rules of what may be done."""

from __future__ import annotations

import five_states
import numpy as np
from five_states import NEXT, TREAT
from small_batches import cut_off
from small_dsfn import BURDEN

from cirl_gym.data.batch import Batch
from cirl_gym.data.rules import ActionRules, read_rules
from cirl_gym.types import FloatArray

NAMES = ("wait", "treat")
FELT = read_rules(('treat when Above("side effects", 0.2)',), BURDEN.features, NAMES)
"""Who is drugged or toxic is not treated: a matter of the state alone."""
NOT_TWICE = read_rules(("treat when After(treat)",), BURDEN.features, NAMES)


def experts(rules: ActionRules, chances: FloatArray, episodes: int, seed: int, steps: int = 20) -> Batch:
    """The five-state patient, seen by burden, under experts with chances ``[5, 2]`` among what the rules leave."""
    rng = np.random.default_rng(seed)
    state, before = rng.choice(5, size=episodes, p=five_states.START), np.full(episodes, -1)
    course, taken = [state], []
    for _ in range(steps):
        allowed = rules.allowed(five_states.BURDEN[state].astype(np.float32), before)
        p = np.where(allowed, chances[state], 0.0)
        action = (rng.random(episodes) < p[:, TREAT] / p.sum(axis=1)).astype(np.int64)
        state, before = NEXT[state, action], action
        course.append(state)
        taken.append(action)
    obs = five_states.BURDEN[np.stack(course, axis=1)]
    return rules.masked(cut_off(obs, np.stack(taken, axis=1), BURDEN.features, NAMES))
