import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Scripted
from small_batches import batch_of

from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import fold
from cirl_gym.data.rollout import returns, rollout
from cirl_gym.outcome_models.oracle import OracleModel
from cirl_gym.worlds.tumour import TumourParameters
from cirl_gym.worlds.world import TumourWorld
from irl.max_margin.loop import expert_mu, phi_along


class Adds:
    """The next observation is the present one plus (number of the action) in x and its square in y."""

    features = ("x", "y")
    n_actions = 3
    noise_scale = np.zeros(2)
    bounds = (np.full(2, -np.inf), np.full(2, np.inf))

    def noise(self, normals):
        return normals * self.noise_scale

    def start(self, obs):
        return obs

    def encode(self, batch):
        return fold(self, batch)

    def predict(self, states):
        steps = np.arange(3)[:, None] ** np.array([1, 2])
        return states[..., None, :] + steps.astype(np.float32)

    def end_probability(self, states):
        return np.zeros((*states.shape[:-1], 3), dtype=np.float32)

    def advance(self, states, actions, obs):
        return obs


MAP = FeatureMap(("x", "y"), np.array([0.0, 100.0]), np.array([10.0, 200.0]))


def test_phi_along_by_hand():
    batch = batch_of([0, 2], [1], n_actions=3)
    # Episode 0 sees (0, 100) and (1, 101); episode 1 sees (10, 110). Actions 0, 2 add (0, 0), (2, 4); action 1 (1, 1).
    # Scaled by (x / 10, (y - 100) / 100).
    expected = [[[0.0, 0.0], [0.3, 0.05]], [[1.1, 0.11], [0.0, 0.0]]]
    np.testing.assert_allclose(phi_along(Adds(), MAP, batch), expected, rtol=1e-6)


def test_phi_along_does_not_look_at_padding():
    batch = batch_of([0, 2], [1], n_actions=3)
    phi = phi_along(Adds(), MAP, batch)
    longer = phi_along(Adds(), MAP, batch.padded(7))
    np.testing.assert_array_equal(longer[:, :2], phi)
    assert not longer[:, 2:].any()


def test_phi_along_refuses_what_does_not_belong_together():
    with pytest.raises(ValueError, match="features differ"):
        phi_along(Adds(), FeatureMap(("y", "x"), np.zeros(2), np.ones(2)), batch_of([0], n_actions=3))
    with pytest.raises(ValueError, match="knows 3 actions, the batch has 2"):
        phi_along(Adds(), MAP, batch_of([0]))


def test_mu_is_a_geometric_series():
    # phi = 1, gamma = .5, lengths 1, 2, 3: (1 + 1.5 + 1.75) / 3. A discount that ran on from episode to episode, or a
    # sum with T + 1 terms, would give something else.
    batch = batch_of([0], [0, 1], [0, 1, 1])
    mu = expert_mu(np.ones((3, 3, 1)), batch, 0.5)
    assert mu.mean[0] == pytest.approx(1.41667, abs=1e-5)
    # Deviations -.41667, .08333, .33333: variance .145833, over three episodes .0486111.
    assert mu.covariance is not None
    assert mu.covariance[0, 0] == pytest.approx(0.0486111, rel=1e-5)
    assert (mu.episodes, mu.groups) == (3, 3)


def test_gamma_restarts_in_every_episode():
    phi = np.array([[[1.0], [2.0]], [[1.0], [2.0]], [[1.0], [2.0]]])
    for gamma, value in ((0.0, 1.0), (0.5, 2.0), (1.0, 3.0)):
        assert expert_mu(phi, batch_of([0, 0], [0, 0], [0, 0]), gamma).mean[0] == value


@pytest.mark.parametrize("gamma", [-0.1, 1.1, np.nan])
def test_gamma_outside_its_range(gamma):
    with pytest.raises(ValueError, match="gamma must lie between 0 and 1"):
        expert_mu(np.ones((1, 1, 1)), batch_of([0]), gamma)


def test_bad_phi():
    batch = batch_of([0, 1], [1])
    with pytest.raises(ValueError, match=r"phi must be \[N, T, d\]"):
        expert_mu(np.ones((2, 3, 2)), batch, 0.9)
    phi = np.ones((2, 2, 2))
    phi[0, 1, 0] = np.inf
    with pytest.raises(ValueError, match="'e0', step 1 is not finite"):
        expert_mu(phi, batch, 0.9)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 6), min_size=2, max_size=6), st.integers(0, 4), st.randoms(use_true_random=False))
def test_order_of_episodes_and_padding_do_not_matter(lengths, extra, random):
    batch = batch_of(*([0] * length for length in lengths))
    phi = np.random.default_rng(len(lengths)).normal(size=(*batch.actions.shape, 2))
    order = np.array(random.sample(range(len(lengths)), len(lengths)))
    mu, shuffled = expert_mu(phi, batch, 0.9), expert_mu(phi[order], batch.take(order), 0.9)
    np.testing.assert_allclose(shuffled.mean, mu.mean, rtol=1e-12)
    np.testing.assert_allclose(shuffled.covariance, mu.covariance, rtol=1e-9, atol=1e-12)
    rubbish = np.where(batch.mask[..., None], phi, np.nan)
    rubbish = np.pad(rubbish, ((0, 0), (0, extra), (0, 0)), constant_values=1e30)
    padded = expert_mu(rubbish, batch.padded(batch.horizon + extra), 0.9)
    np.testing.assert_allclose(padded.mean, mu.mean, rtol=1e-12)


def test_a_patient_counted_twice_makes_nothing_more_certain():
    phi = np.array([0.0, 1.0, 5.0])
    once = expert_mu(phi.reshape(3, 1, 1), batch_of([0], [0], [0]), 1.0)
    batch = batch_of(*[[0]] * 6, groups=("p", "q", "r", "r", "q", "p"))
    twice = expert_mu(np.concatenate([phi, phi[::-1]]).reshape(6, 1, 1), batch, 1.0)
    np.testing.assert_allclose(twice.mean, once.mean)
    np.testing.assert_allclose(twice.covariance, once.covariance)
    assert (twice.episodes, twice.groups) == (6, 3)


def test_one_patient_alone_says_nothing_about_the_error():
    mu = expert_mu(np.ones((2, 1, 1)), batch_of([0], [0], groups=("p", "p")), 1.0)
    assert mu.covariance is None


def test_monte_carlo_mu_of_a_policy_is_the_return_it_earns():
    # Without noise the oracle predicts what happens, so w . mu is the mean return for every w.
    quiet = TumourParameters(tumour_noise=0.0, side_noise=0.0)
    world = TumourWorld(quiet)
    batch = rollout(world, Scripted(0.4), 200, np.random.default_rng(0))
    feature_map = quiet.feature_map
    mu = expert_mu(phi_along(OracleModel(quiet), feature_map, batch), batch, 0.9).mean
    for w in (np.array([-0.3, -0.7]), np.array([1.0, 0.0])):
        assert w @ mu == pytest.approx(returns(batch, feature_map, w, 0.9).mean(), abs=1e-5)


def test_mu_is_a_mean_over_episodes_and_not_a_function_of_the_mean_history():
    # phi bends: the mean of phi is not phi of the mean, so anything linear in the raw input would be wrong here.
    batch = batch_of([0], [2], n_actions=3)
    phi = phi_along(Adds(), MAP, batch)
    middle = batch_of([1], n_actions=3)
    # y adds 0 and 4 to 100 and 110: mean of phi_y (0 + .14) / 2 = .07; the mean history (105) with the mean action (1)
    # would give .06.
    assert expert_mu(phi, batch, 1.0).mean[1] == pytest.approx(0.07, rel=1e-5)
    assert phi_along(Adds(), MAP, middle)[0, 0, 1] + 0.05 == pytest.approx(0.06, rel=1e-5)
