import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cirl_gym.data.rollout import rollout
from cirl_gym.worlds.tumour import TumourWorld
from irl.max_margin.mixture import MixturePolicy, closest_mixture

TRIANGLE = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 4.0]])


@pytest.mark.parametrize(
    ("mu_expert", "weights", "distance"),
    [
        ([1.0, 2.0], [0.25, 0.25, 0.5], 0.0),  # inside: barycentric coordinates
        ([2.0, -1.0], [0.5, 0.5, 0.0], 1.0),  # below an edge: the foot of the perpendicular
        ([3.0, 3.0], [0.0, 0.5, 0.5], np.sqrt(2)),  # beyond the long edge: its middle (2, 2)
        ([-3.0, -4.0], [1.0, 0.0, 0.0], 5.0),  # beyond a corner: the corner
    ],
)
def test_by_hand(mu_expert, weights, distance):
    mixture = closest_mixture(TRIANGLE, np.array(mu_expert))
    np.testing.assert_allclose(mixture.weights, weights, atol=1e-9)
    np.testing.assert_allclose(mixture.mu, np.array(weights) @ TRIANGLE, atol=1e-8)
    assert mixture.distance == pytest.approx(distance, abs=1e-8)


def test_other_hulls_by_hand():
    # From (0, 0) to (2, 1), expert (0, 1): |2 s|^2 + |1 - s|^2 is least at s = 1/5; the 3-norm would say
    # 1 / (1 + sqrt(8)) = .26.
    np.testing.assert_allclose(closest_mixture(np.array([[0, 0], [2, 1]]), np.array([0, 1])).weights, [0.8, 0.2])
    # One policy, the same one three times, and one that was found twice.
    assert closest_mixture(np.array([[1.0, 2.0]]), np.zeros(2)).weights == [1.0]
    same = closest_mixture(np.ones((3, 2)), np.ones(2))
    assert same.weights.sum() == pytest.approx(1.0, rel=1e-12)
    assert same.distance == 0.0
    twice = closest_mixture(np.array([[0.0], [4.0], [4.0]]), np.array([1.0]))
    assert [twice.weights[0], twice.weights[1:].sum()] == pytest.approx([0.75, 0.25])
    # What is negligible is left out.
    mixture = closest_mixture(np.array([[0.0], [1.0]]), np.array([1e-7]))
    np.testing.assert_array_equal(mixture.weights, [1.0, 0.0])
    assert mixture.distance == pytest.approx(1e-7)
    # Features of very different size: along y nothing can be done; along x (a millionth of y) the half way is right.
    mixture = closest_mixture(np.array([[0.0, 1e6], [1.0, 1e6]]), np.array([0.5, 0.0]))
    np.testing.assert_allclose(mixture.weights, [0.5, 0.5], atol=1e-3)


@settings(deadline=None, max_examples=100)
@given(st.integers(1, 8), st.integers(1, 5), st.integers(0, 10_000), st.sampled_from([0.0, 1.0, 30.0]))
def test_no_policy_lies_nearer_in_the_direction_of_what_is_left(count, d, seed, away):
    # The conditions of Karush, Kuhn and Tucker: for the nearest point m, (mu_E - m) . (mu_i - m) <= 0 for all i, and
    # = 0 for the policies that take part. Weights below 1e-6 are dropped, hence the tolerance.
    rng = np.random.default_rng(seed)
    mus, mu_expert = rng.normal(size=(count, d)), rng.normal(size=d) + away
    mixture = closest_mixture(mus, mu_expert)
    assert mixture.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert (mixture.weights >= 0).all()
    left = mu_expert - mixture.mu
    scale = max(np.abs(mus - mu_expert).max(), 1.0)
    gains = (mus - mixture.mu) @ left
    assert gains.max() <= 1e-5 * scale**2
    assert np.abs(gains[mixture.weights > 1e-3]).max() <= 1e-5 * scale**2
    assert mixture.distance == pytest.approx(np.linalg.norm(left), abs=1e-12 * scale)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1e3, 1e9])
def test_scale_and_order_of_features_and_policies_do_not_matter(scale):
    rng = np.random.default_rng(0)
    mus, mu_expert = rng.normal(size=(6, 3)), rng.normal(size=3)
    plain = closest_mixture(mus, mu_expert)
    other = closest_mixture(scale * mus[::-1, ::-1], scale * mu_expert[::-1])
    np.testing.assert_allclose(other.weights[::-1], plain.weights, atol=1e-7)
    assert other.distance == pytest.approx(scale * plain.distance, rel=1e-7)


@pytest.mark.parametrize(
    ("mus", "mu_expert", "message"),
    [
        (np.ones((2, 2)), np.ones(3), "must be"),
        (np.ones((0, 2)), np.ones(2), "must be"),
        (np.array([[np.nan, 1.0]]), np.ones(2), "finite"),
    ],
)
def test_bad_input(mus, mu_expert, message):
    with pytest.raises(ValueError, match=message):
        closest_mixture(mus, mu_expert)


class Counts:
    """Answers ``first`` plus the number of calls since the episode began: whoever loses its memory shows it."""

    def __init__(self, first, arrays=1):
        self.first, self.arrays = first, arrays

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        calls = np.zeros(len(observation), dtype=np.int64) if state is None else state[0].copy()
        calls[episode_start] = 0
        return self.first + calls, (calls + 1,) * self.arrays


class Always:
    """Has no memory."""

    def __init__(self, action):
        self.action = action

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert state is None
        self.deterministic = deterministic
        return np.full(len(observation), self.action), None


def test_one_policy_per_episode_and_everyone_remembers():
    policy = MixturePolicy([Counts(0), Always(-7), Counts(100, arrays=2)], [0.4, 0.2, 0.4], np.random.default_rng(0))
    seen, state, start = np.zeros((500, 3)), None, np.ones(500, dtype=bool)
    courses = []
    for _ in range(4):
        actions, state = policy.predict(seen, state, start)
        start = np.zeros(500, dtype=bool)
        courses.append(actions)
    first = courses[0]
    assert {*first} == {0, -7, 100}
    for step, actions in enumerate(courses):
        np.testing.assert_array_equal(actions, np.where(first == -7, -7, first + step))
    assert (first == 100).mean() == pytest.approx(0.4, abs=0.07)
    # Rows that begin anew draw anew and start from an empty memory; the others go on.
    start[:250] = True
    actions, state = policy.predict(seen, state, start)
    assert {*actions[:250]} == {0, -7, 100}
    np.testing.assert_array_equal(actions[250:], np.where(first == -7, -7, first + 4)[250:])
    assert (actions[:250] != first[:250]).any()


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.6], [1.5, -0.5], [np.nan, 1.0]])
def test_weights_must_be_probabilities(weights):
    with pytest.raises(ValueError, match="2 policies need as many weights"):
        MixturePolicy([Always(0), Always(1)], weights, np.random.default_rng(0))


def test_the_rollout_loop_takes_a_mixture_without_members_that_never_act():
    def played():
        policy = MixturePolicy([Always(0), Always(1)], [0.25, 0.75], np.random.default_rng(3))
        return rollout(TumourWorld(), policy, 400, np.random.default_rng(1))

    batch = played()
    assert batch == played()
    treated = np.array([actions.mean() for _, actions in batch.episodes()])
    assert {*treated} == {0.0, 1.0}, "no episode mixes its policies"
    assert treated.mean() == pytest.approx(0.75, abs=0.07)
    policy = MixturePolicy([Always(0), Always(1)], [1.0, 0.0], np.random.default_rng(0))
    assert len(policy.policies) == 1
    actions, _ = policy.predict(np.zeros((50, 3)), None, np.ones(50, dtype=bool), deterministic=True)
    assert not actions.any()
    assert policy.policies[0].deterministic
