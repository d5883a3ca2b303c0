"""What a run has found, as a function of outcomes and as the reward of environments."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError
from functools import partial
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from env_runs import IDS, MODES, AutoresetMode, assert_same, drive, episode, native, new_gymnasium, sync
from gymnasium.utils.env_checker import check_env
from sample_result import sample_fields

import cirl_gym
from cirl_gym import FeatureMap, TumourParameters
from cirl_gym.envs.tumour import TumourEnv
from cirl_gym.wrappers.learned_reward import LearnedReward, LearnedVectorReward, LinearReward, load_reward
from irl.result.result import Result

QUIET = TumourParameters(tumour_noise=0.0, side_noise=0.0)
PACKAGED = Path(cirl_gym.__file__).parent / "packaged"
OF_ANY_WRAPPER = ("ignore:.*different from the unwrapped version", "ignore:.*to get variables from other wrappers")
"""What Gymnasium's checker warns of."""
RANGES = {"tumour": (10.0, 60.0), "side_effects": (0.0, 10.0)}


def write_run(folder, features=("tumour", "side_effects"), weights=(-0.25, -0.75), ranges=None, **changes):
    """A folder with the result.json of a run that has found these weights."""
    content = {"schema": 1, "features": features, "weights": weights, "config": {"ranges": ranges or RANGES}}
    folder.mkdir(exist_ok=True)
    (folder / "result.json").write_text(json.dumps(content | changes))
    return folder


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


class TestFunction:
    def test_hand_computed(self, run):
        learned = load_reward(run)
        assert learned.features == ("tumour", "side_effects")
        # phi = ((35 - 10) / 50, 2 / 10) = (.5, .2): -.25 * .5 - .75 * .2 = -.275
        assert learned([35.0, 2.0]) == pytest.approx(-0.275)
        many = learned(np.array([[[35.0, 2.0], [10.0, 0.0]], [[60.0, 10.0], [85.0, -10.0]]]))
        assert many.dtype == np.float64
        np.testing.assert_allclose(many, [[-0.275, 0.0], [-1.0, -0.375 + 0.75]])
        # Phi of a map from 2 to 6 back to raw units.
        scale = FeatureMap(("x",), np.array([2.0]), np.array([6.0]))
        np.testing.assert_array_equal(scale.raw([[0.0], [0.25], [1.5]]), [[2.0], [3.0], [8.0]])

    def test_reads_what_a_run_writes(self, tmp_path):
        names = sample_fields(5)["features"]
        ranges = {name: [float(k), k + 2.0] for k, name in enumerate(names)}
        result = Result(**(sample_fields(5) | {"config": {"gamma": 0.9, "ranges": ranges}}))
        result.write(tmp_path / "result.json")
        learned = load_reward(str(tmp_path))
        np.testing.assert_array_equal(learned.weights, result.weights)
        np.testing.assert_array_equal(learned.feature_map.low, range(5))
        # Every feature in the middle of its range: half of the sum of the weights.
        assert learned(np.arange(5) + 1.0) == pytest.approx(sum(result.weights) / 2)

    def test_weights_are_those_that_policies_act_on(self, tmp_path):
        """Medians of single weights may add up to more than 1: of (.5, .5, 0), (.5, 0, .5), (0, .5, .5) to 1.5."""
        names, ranges = ("x", "y", "z"), dict.fromkeys("xyz", (0.0, 1.0))
        third = [1 / 3, 1 / 3, 1 / 3]
        run = write_run(tmp_path, names, (0.5, 0.5, 0.5), ranges, estimates={"posterior": third, "w_K": [1, 0, 0]})
        np.testing.assert_array_equal(load_reward(run).weights, third)

    def test_read_from_more_features_in_another_order(self, run):
        learned = load_reward(run)
        wider = learned.among(("pain", "side_effects", "age", "tumour"))
        assert wider.features == learned.features
        assert wider.feature_map.of == ("pain", "side_effects", "age", "tumour")
        assert wider([7.0, 2.0, 60.0, 35.0]) == learned([35.0, 2.0])

        for names, message in (
            (("tumour", "pain"), r"only the reward has \['side_effects'\], which lacks \['pain'\]"),
            (("tumour",), r"only the reward has \['side_effects'\]"),
            (("tumour", "tumour", "side_effects"), "other features"),
        ):
            with pytest.raises(ValueError, match=message):
                learned.among(names)
        for outcomes in (3.0, [1.0], [1.0, 2.0, 3.0]):
            with pytest.raises(ValueError, match=r"phi is of \[.., 2\] numbers, one for each of tumour, side_effects"):
                learned(outcomes)

    def test_it_is_checked_and_cannot_be_changed(self, run):
        learned = load_reward(run)
        with pytest.raises(FrozenInstanceError):
            learned.weights = np.zeros(2)
        with pytest.raises(ValueError, match="read-only"):
            learned.weights[0] = 1.0
        with pytest.raises(ValueError, match="L1 norm"):
            LinearReward(learned.feature_map, np.array([1.0, 1.0]))
        same = pickle.loads(pickle.dumps(learned))
        assert same([35.0, 2.0]) == learned([35.0, 2.0])


class TestFile:
    def test_a_folder_without_result_or_with_one_that_is_no_object(self, tmp_path):
        (tmp_path / "config.json").write_text("{}")
        for folder in (tmp_path, tmp_path / "nowhere"):
            with pytest.raises(FileNotFoundError, match=r"result\.json does not exist: .* stopped before its end"):
                load_reward(folder)
        for content in ("", '{"schema": 1', "[1]", "\N{LATIN SMALL LETTER E WITH ACUTE}"):
            (tmp_path / "result.json").write_bytes(content.encode("latin-1"))
            with pytest.raises(ValueError, match=r"result\.json is not"):
                load_reward(tmp_path)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"schema": 2}, "not a result of schema 1, its schema is 2"),
            ({"schema": None}, "not a result of schema 1, its schema is None"),
            ({"config": {"gamma": 0.9}}, "lacks 'ranges'"),
            ({"ranges": {"tumour": [0, 1]}}, "lacks 'side_effects'"),
            ({"weights": [0.5]}, "weights must be 2 numbers"),
            ({"weights": [0.5, None]}, "weights must be"),
            ({"weights": [0.9, 0.9]}, "L1 norm"),
            ({"ranges": {"tumour": [0, 1], "side_effects": [3, 3]}}, "range of 'side_effects' is empty"),
            ({"ranges": {"tumour": [0, 1], "side_effects": [3]}}, "index"),
            ({"ranges": {"tumour": [0, 1], "side_effects": "wide"}}, r"result\.json is not"),
            ({"features": 3}, r"result\.json is not"),
        ],
    )
    def test_a_file_that_is_not_a_result(self, tmp_path, changes, message):
        folder = write_run(tmp_path, **changes)
        with pytest.raises(ValueError, match=message) as raised:
            load_reward(folder)
        assert str(folder / "result.json") in str(raised.value)


class TestSingle:
    def test_hand_computed_episode(self, run):
        env = LearnedReward(TumourEnv(QUIET, weights=(-0.3, -0.7)), run)
        env.reset(options={"patient": (30, 2)})
        # Treated twice: (30, .5), then (27.5, 1.2); tumour scaled from 10..60, side effects by 10.
        expected = [-0.25 * 20 / 50 - 0.75 * 0.05, -0.25 * 17.5 / 50 - 0.75 * 0.12]
        own = [-0.3 * 0.6 - 0.7 / 30, -0.3 * 0.55 - 0.7 * 0.08]
        for paid, original in zip(expected, own, strict=True):
            _, reward, _, _, info = env.step(1)
            assert type(reward) is float
            assert reward == pytest.approx(paid, abs=1e-6)
            assert type(info["original_reward"]) is float
            assert info["original_reward"] == pytest.approx(original, abs=1e-6)

    def test_the_environments_own_ranges_change_nothing(self, run):
        """The same patients, with outcomes scaled otherwise for the environment's own reward."""
        wide = TumourParameters(tumour_noise=0.0, side_noise=0.0, tumour_max=100.0, side_max=30.0)
        paid = []
        for parameters in (QUIET, wide):
            _, steps = episode(LearnedReward(TumourEnv(parameters), run), [1, 0, 1], options={"patient": (30, 2)})
            paid.append([step[0] for step in steps])
        assert paid[0] == pytest.approx(paid[1], abs=1e-9)

    def test_a_run_with_its_features_in_another_order(self, run, tmp_path):
        turned = write_run(tmp_path / "turned", ("side_effects", "tumour"), (-0.75, -0.25))
        one, two = (
            episode(LearnedReward(gym.make("CIRLTumour-v0"), folder), [1] * 4, seed=1)[1] for folder in (run, turned)
        )
        assert [step[0] for step in one] == [step[0] for step in two]

    def test_all_but_the_reward_is_the_environments(self, run):
        plain, env = gym.make("CIRLTumour-v0"), LearnedReward(gym.make("CIRLTumour-v0"), run)
        assert_same(env.reset(seed=4), plain.reset(seed=4))
        for action in [1] * 9:
            obs, _, terminated, truncated, info = env.step(action)
            theirs = plain.step(action)
            assert info.pop("original_reward") == theirs[1]
            assert_same((obs, terminated, truncated, info), (theirs[0], *theirs[2:]))

    def test_sampled_observations_are_paid_by_the_expected_outcome(self):
        env = LearnedReward(gym.make("CIRLCounterfactual-v0", outcome="sampled"), PACKAGED)
        still = LearnedReward(gym.make("CIRLCounterfactual-v0", outcome="expected"), PACKAGED)
        learned = load_reward(PACKAGED)
        for one in (env, still):
            one.reset(seed=0, options={"episode": 3})
        (sampled, paid), (expected, same) = env.step(1)[:2], still.step(1)[:2]
        assert paid == same == pytest.approx(learned(expected[:2]), abs=1e-6)
        assert abs(paid - learned(sampled[:2])) > 1e-5

    def test_the_packaged_environment_earns_what_its_run_has_learned(self):
        env = LearnedReward(gym.make("CIRLCounterfactual-v0"), PACKAGED)
        for paid, _, _, info in episode(env, [1] * 20, seed=0)[1]:
            assert paid == pytest.approx(info["original_reward"], abs=1e-12)

    def test_faults_are_named(self, run, tmp_path):
        other = write_run(tmp_path / "other", ("age", "tumour"), ranges={"age": [0, 1], "tumour": [0, 1]})
        with pytest.raises(ValueError, match=r"only the reward has \['age'\]"):
            LearnedReward(TumourEnv(), other)
        with pytest.raises(FileNotFoundError, match="stopped before its end"):
            LearnedReward(TumourEnv(), tmp_path / "interrupted")

        class Strange(gym.Env):
            observation_space, action_space = gym.spaces.Box(0, 1), gym.spaces.Discrete(2)

            def step(self, action):
                return np.zeros(1), 0.0, False, False, {}

        with pytest.raises(ValueError, match="Strange has no feature_map"):
            LearnedReward(Strange(), run)
        env = Strange()
        env.feature_map = load_reward(run).feature_map
        with pytest.raises(ValueError, match=r"gives no info\['phi'\]"):
            LearnedReward(env, run).step(0)

    @pytest.mark.filterwarnings(*OF_ANY_WRAPPER)
    @pytest.mark.parametrize("loaded", [False, True])
    def test_spec_copies_and_checker(self, run, loaded):
        env = LearnedReward(gym.make("CIRLTumour-v0"), load_reward(run) if loaded else run)
        env.reset(seed=2)
        env.step(1)
        twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env)), gym.make(env.spec)]
        twins[2].reset(seed=2)
        twins[2].step(1)
        paid = env.step(0)[1]
        assert [twin.step(0)[1] for twin in twins] == [paid] * 3
        if not loaded and not gym.__version__.startswith("0."):
            spec = gym.envs.registration.EnvSpec.from_json(env.spec.to_json())
            np.testing.assert_array_equal(gym.make(spec).learned.weights, env.learned.weights)
        check_env(env, skip_render_check=True)


@new_gymnasium
class TestVector:
    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("env_id", IDS)
    def test_is_the_single_form_row_by_row(self, env_id, mode, run):
        arguments = {"max_episode_steps": 12}
        ours = LearnedVectorReward(native(env_id, mode, **arguments), run)
        single = sync(env_id, mode, wrappers=[partial(LearnedReward, reward=run)], **arguments)
        paid, ended = set(), 0
        for a, b in zip(drive(ours, 45), drive(single, 45), strict=True):
            assert_same(a[0], b[0])
            assert_same(a[-1], b[-1])
            if len(a) == 5:
                assert_same(a[1], b[1])
                paid |= set(a[1])
                ended += int((a[2] | a[3]).sum())
        assert ended >= 9
        assert len(paid) > 60

    @pytest.mark.parametrize("mode", MODES)
    def test_gymnasiums_own_vector_environment_can_be_wrapped(self, mode, run):
        ours = LearnedVectorReward(sync("CIRLTumour-v0", mode, max_episode_steps=4), run)
        native_too = LearnedVectorReward(native("CIRLTumour-v0", mode, max_episode_steps=4), run)
        assert_same(drive(ours, 14), drive(native_too, 14))

    def test_the_step_that_only_resets_pays_nothing(self, run):
        env = LearnedVectorReward(native("CIRLTumour-v0", AutoresetMode.NEXT_STEP, n=1, max_episode_steps=1), run)
        env.reset(seed=0)
        _, paid, _, truncated, infos = env.step(np.array([1]))
        assert truncated[0]
        assert paid[0] < 0
        assert infos["_original_reward"][0]
        _, paid, _, truncated, infos = env.step(np.array([1]))
        assert not truncated[0]
        assert paid[0] == 0.0
        assert "original_reward" not in infos

    def test_rows_that_end_are_paid_for_their_last_outcome(self, run):
        inner = native("CIRLTumour-v0", AutoresetMode.SAME_STEP, n=1, parameters=QUIET, max_episode_steps=20)
        env = LearnedVectorReward(inner, run)
        # 48 grows by 2.5 without treatment: over the limit. 2 - 2.5 is cut at 0.
        env.reset(options={"patient": (48, 2)})
        _, paid, terminated, _, infos = env.step(np.array([0]))
        assert terminated[0]
        assert paid[0] == pytest.approx(-0.25 * 40.5 / 50)
        assert infos["final_info"]["original_reward"][0] == pytest.approx(-0.3 * 50.5 / 50)
        assert "original_reward" not in infos

    def test_faults_are_named(self, run, tmp_path):
        env = native("CIRLTumour-v0", AutoresetMode.DISABLED)
        other = write_run(tmp_path / "other", ("age", "tumour"), ranges={"age": [0, 1], "tumour": [0, 1]})
        with pytest.raises(ValueError, match=r"only the reward has \['age'\]"):
            LearnedVectorReward(env, other)
        different = gym.vector.SyncVectorEnv(
            [TumourEnv, lambda: TumourEnv(TumourParameters(tumour_max=60.0))], observation_mode="different"
        )
        with pytest.raises(ValueError, match="row 1 are scaled differently from those of row 0"):
            LearnedVectorReward(different, run)
        with pytest.raises(ValueError, match="has no feature_map"):
            LearnedVectorReward(gym.make_vec("CartPole-v1", 2, "sync"), run)
        step = env.step
        env.step = lambda actions: (*step(actions)[:4], {})
        wrapped = LearnedVectorReward(env, run)
        wrapped.reset(seed=0)
        with pytest.raises(ValueError, match=r"no info\['phi'\] of row 0"):
            wrapped.step(np.zeros(3, dtype=np.int64))
