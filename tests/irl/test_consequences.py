"""What policies come to in the world model: worked out by hand in a model of known moves, and put into words."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from known_model import PHI, KnownModel
from msgspec import structs
from sample_result import sample_result
from small_batches import batch_of

from agents.policies.policy import ConstantPolicy, ScoringPolicy
from irl.result.consequences import Consequences, Followed
from irl.studies.consequences import consequences, followed, other_weights


def always(action: int) -> ConstantPolicy:
    return ConstantPolicy(action, 3, np.random.default_rng(0))


@pytest.fixture(scope="module")
def found() -> Consequences:
    """Two steps each; the best policy takes action 1 where the weight of x has more than half of all, else action 0."""

    class Best(ScoringPolicy):
        def __init__(self, w):
            self.best = (np.abs(w[:, 0]) > 0.5).astype(int)

        def act(self, observation, state, episode_start):
            return np.eye(3)[self.best], None

    agent = SimpleNamespace(feature_map=PHI, model=KnownModel(ends=False), horizon=2, policy=Best, width=8)
    train = batch_of([0], [0, 1], [0, 1, 1], n_actions=3)
    return consequences(agent, np.array([-0.25, 0.75]), always(1), always(2), train, ("a", "b", "c"))


def test_policies_are_followed_from_the_same_starts(found):
    assert found.episodes == found.other_episodes == 3
    assert list(found.policies) == ["expert", "cirl", "cloning", "always a", "always b", "always c"]
    # x and y begin at 10 and 110 on average. Action 0 moves them by 1 and -1, and half as much again the step after:
    # means of 1 and 2.5, of -1 and -2.5.
    alone = Followed(2.0, (1.0, 0.0, 0.0), (11.75, 108.25))
    assert found.policies["cirl"] == found.policies["always a"] == alone
    # Action 1 moves them by -1 and 2, then by -1.5 and 3.
    expert = Followed(2.0, (0.0, 1.0, 0.0), (10 - 1.75, 110 + 3.5))
    assert found.policies["expert"] == found.policies["always b"] == expert
    assert found.step == pytest.approx(-0.25 * 8.25 / 4 + 0.75 * 113.5 / 8)


def test_what_was_seen_counts_every_step_once(found):
    assert found.observed.length == 2.0
    assert found.observed.taken == (0.5, 0.5, 0.0)
    # Next values: 1; 11, 12; 21, 22, 23.
    assert found.observed.outcomes == pytest.approx((15.0, 115.0))
    batch = batch_of([0, 1], d=2)
    assert followed(batch, PHI).outcomes == pytest.approx((1.5, 101.5))


def test_one_weight_changes_and_the_others_keep_their_proportions(found):
    shares = [one.share for one in found.other_weights]
    assert shares == pytest.approx([0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1])
    assert [one.share for one in found.other_weights if one.found] == [0.25]
    assert {one.feature for one in found.other_weights} == {"x"}
    assert all(one.weights == pytest.approx((-one.share, 1 - one.share)) for one in found.other_weights)
    taken = [one.followed.taken.index(1.0) for one in found.other_weights]
    assert taken == [0] * 7 + [1] * 5
    several = other_weights(np.array([-0.5, 0.3, -0.1, 0.1]), 0)
    assert [share for share, _ in several] != []
    for w, own in several:
        assert np.abs(w).sum() == pytest.approx(1)
        assert w[1:] == pytest.approx(np.array([0.6, -0.2, 0.2]) * (1 + w[0]))
        assert own == (w[0] == -0.5)
    ((zero, own), *_, (alone, _)) = other_weights(np.array([-1.0, 0.0]), 0)
    assert (zero.tolist(), alone.tolist(), own) == ([0.0, -1.0], [-1.0, 0.0], False)


def test_shares_close_to_the_found_one_give_way_to_it():
    assert [round(float(-w[0]), 3) for w, _ in other_weights(np.array([-0.294, -0.706]), 0)] == [
        *(0, 0.1, 0.2, 0.294),
        *(0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1),
    ]


def test_an_early_end_is_told_where_it_pays_and_would_be_taken():
    found = sample_result().consequences
    assert found.step < 0
    assert not found.shorter
    assert "the preferences alone hardly end episodes earlier" in found.sentence
    ending = {**found.policies, "cirl": structs.replace(found.policies["cirl"], length=9.0)}
    early = structs.replace(found, policies=ending)
    assert early.shorter
    assert early.sentence == (
        "By these weights every further step costs 0.136 on average; an episode that ends stops that, and the "
        "preferences alone would end episodes earlier: in the world model episodes last 9.0 steps by the preferences "
        "alone and 17.1 as the experts are predicted to act."
    )
    gains = structs.replace(early, step=0.25)
    assert not gains.shorter
    assert gains.sentence.startswith("By these weights a step is worth +0.250 on average, so that ending early loses")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"actions": ("a",)}, "one share for each action"),
        ({"observed": Followed(1.0, (0.5, 0.5), (1.0,))}, "the same outcomes for all"),
        ({"policies": {}}, "policies must hold expert and cirl"),
    ],
)
def test_records_check_what_they_promise(changes, message):
    with pytest.raises(ValueError, match=message):
        structs.replace(sample_result().consequences, **changes)
