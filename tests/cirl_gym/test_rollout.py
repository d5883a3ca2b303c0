"""A policy is shown the real history, step by step, and keeps its memory."""

from __future__ import annotations

import numpy as np
from small_batches import batch_of

from cirl_gym.data.rollout import act_along, observation


class Recorder:
    """Answers with the number of calls of the episode and keeps what it saw."""

    def __init__(self):
        self.seen, self.starts, self.flags = [], [], []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        calls = np.zeros(len(observation), dtype=np.int64) if state is None else state[0]
        self.seen.append(observation)
        self.starts.append(episode_start)
        self.flags.append(deterministic)
        return calls % 2, (calls + 1,)


def test_act_along_shows_the_real_history_and_keeps_the_memory():
    policy = Recorder()
    batch = batch_of([1, 0, 1], [1])
    chosen = act_along(policy, batch.padded(6))
    np.testing.assert_array_equal(chosen, [[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]])
    assert len(policy.seen) == 3, "padding is not walked"
    # Raw features, then the one-hot action that was really taken before (none at t = 0).
    np.testing.assert_array_equal(np.stack(policy.seen)[:, 0], [[0, 100, 0, 0], [1, 101, 0, 1], [2, 102, 1, 0]])
    np.testing.assert_array_equal(policy.seen[0], observation(batch.start, np.full(2, -1), 2))
    np.testing.assert_array_equal(np.stack(policy.starts), [[True, True], [False, False], [False, False]])
    assert all(policy.flags)
    act_along(policy, batch, deterministic=False)
    assert not policy.flags[-1]
