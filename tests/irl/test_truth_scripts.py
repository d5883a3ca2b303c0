"""What the scripts in benchmarks/ say of many runs together, and the experts that they simulate."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from patients_needed import needed
from seeds_agree import agreement
from semi_synthetic import check_folder, row, summary
from weight_signs import right, told
from weight_signs import summary as signs_said

from cirl_gym import Batch
from irl.semi_synthetic import borderline, habit_near, matters


def table() -> Batch:
    """Two episodes: 0 1 1 and 1 0."""
    return Batch(
        obs=np.zeros((2, 4, 1), dtype=np.float32),
        actions=np.array([[0, 1, 1], [1, 0, 0]]),
        lengths=np.array([3, 2]),
        terminated=np.array([False, False]),
        truncated=np.array([True, True]),
        features=("x",),
        action_names=("no", "yes"),
        ids=("a", "b"),
    )


def simulated(kappa: float, gain: float, verdict: str) -> dict:
    """A run with one outcome whose weight is -1, in its interval or not as its verdict has it."""
    said = {
        "verdict": verdict,
        "beyond_habit": [0.01, 0.002],
        "intervals": [[-1.0, -0.5] if verdict == "beyond habit" else [0.2, 1.0]],
        "kappa_interval": [10.0, 30.0],
        "habit_intervals": [[[-1.0, 1.0], [-1.0, 1.0]], [[-1.0, 1.0], [-1.0, 1.0]], [[-1.0, 1.0], [1.0, 2.0]]],
        "converged": True,
    }
    truth = {"weights": [-1.0], "kappa": kappa, "habit": [[0.0, 0.0]] * 3, "gain": [gain, 0.01]}
    return {"number": 1, "truth": truth, "habit": said, "none": said}


def test_habits_near_the_table_take_the_mean_of_what_is_weighed_beside_them():
    batch = table()
    scores = np.zeros((2, 3, 2))
    scores[0, :, 1] = [4.0, 1.0, 2.0]  # first; after 0; after 1
    scores[1, :2, 1] = [2.0, 6.0]  # first; after 1; what follows is padding
    scores[1, 2] = 100.0
    plain, beside = (habit_near(batch, np.random.default_rng(0), given) for given in (None, scores))
    moved = plain.logits - beside.logits
    assert moved[:, 1] - moved[:, 0] == pytest.approx([3.0, 1.0, 4.0])
    assert plain.logits.sum(axis=1) == pytest.approx(0.0)


def test_outcomes_matter_where_the_true_gain_is_more_than_chance():
    assert matters(simulated(20.0, 0.021, "beyond habit"))
    assert not matters(simulated(20.0, 0.019, "beyond habit"))
    assert not matters(simulated(0.0, 0.5, "beyond habit"))
    assert [borderline(simulated(20.0, gain, "beyond habit")) for gain in (0.009, 0.02, 0.031)] == [False, True, False]


def test_the_summary_counts_intervals_and_verdicts():
    runs = [
        simulated(20.0, 0.5, "beyond habit"),
        simulated(40.0, 0.5, "nothing beyond habit"),  # wrong, and both intervals miss
        simulated(0.0, 0.0, "nothing beyond habit"),
    ]
    text = "\n".join(summary(runs))
    assert "habit: 90 % intervals hold 1 of 2 weights (0.50)" in text
    assert "1 of 2 kappa (0.50)" in text
    assert "6 of 9 habit (0.67)" in text
    assert "none: verdict right in 2 of 3 runs, 2 of the 3 that are not borderline" in text
    assert "outcomes matter in 2 of 3 runs, in 0 by luck; kappa is 0 in 1" in text
    assert "WRONG" in row(runs[1])
    assert "right" in row(runs[0])


def test_point_estimates_are_looked_for_in_the_intervals_of_others():
    runs = [
        SimpleNamespace(features=("a", "b"), weights=(0.5, -0.5), intervals={"a": (0.4, 0.6), "b": (-0.9, -0.1)}),
        SimpleNamespace(features=("a", "b"), weights=(0.55, 0.0), intervals={"a": (0.51, 0.7), "b": (-0.2, 0.2)}),
    ]
    assert agreement(runs) == (1, 4)  # type: ignore[arg-type]  # a of the second in the first's alone


def test_patients_needed_by_the_true_gain():
    found = {"gain": [0.01, 0.01], "judged": [6000, 1000]}
    assert needed(found) == pytest.approx(1000 * 1.645**2)
    assert needed({**found, "gain": [0.0, 0.01]}) == float("inf")


def test_a_folder_of_other_options_is_refused(tmp_path):
    check_folder({"quick": True, "gamma": 0.9}, tmp_path)
    check_folder({"quick": True, "gamma": 0.9}, tmp_path)
    with pytest.raises(ValueError, match="another gamma"):
        check_folder({"quick": True, "gamma": 0.5}, tmp_path)


def signed(intervals: list, kappa: float = 20.0, estimates=(-0.6, 0.4), **changes) -> dict:
    """A run of experts who weigh outcomes by -.7 and .3."""
    said = {"verdict": "beyond habit", "uninterpreted": [], "intervals": intervals, "weights": list(estimates)}
    truth = {"weights": [-0.7, 0.3], "kappa": kappa, "gain": [0.1, 0.01]}
    return {"number": 1, "outcomes": ["a", "b"], "truth": truth, "found": said | changes}


def test_signs_are_said_where_something_is_seen_and_its_effects_are_known():
    clear, unclear = [[-0.8, -0.5], [0.2, 0.5]], [[-0.8, 0.1], [0.2, 0.5]]
    assert told(signed(clear)) == [-1, 1]
    assert told(signed(unclear)) == [0, 1]
    assert told(signed(clear, uninterpreted=["b"])) == [-1, 0]
    assert told(signed(clear, verdict="nothing beyond habit")) == [0, 0]
    assert right(signed(clear))
    assert right(signed(unclear))
    assert not right(signed(unclear, estimates=(0.1, 0.9)))
    assert not right(signed([[-0.8, -0.5], [-0.5, -0.2]], estimates=(-0.6, -0.4)))
    # Experts without preferences: nothing is to be said.
    assert not right(signed(unclear, kappa=0.0))
    assert right(signed([[-0.8, 0.1], [-0.2, 0.5]], kappa=0.0))
    runs = [signed(clear), signed([[-0.8, 0.1], [-0.5, -0.2]]), signed(clear, kappa=0.0)]
    assert signs_said(runs) == (
        "right in 1 of 3 runs; beyond habit in 2 of the 2 with preferences; of their 4 signs 2 are said, "
        "1 wrongly, 1 are not"
    )
