"""Parts of a run that are stored: trainings and rounds go on where they were killed, and damage is never believed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from five_state_model import every_course, histories_of
from small_agents import tumour_agent, tumour_batch

from agents.as_printed.learning import learn_mu, learn_policy
from agents.as_printed.training import HistoryTrainingConfig, StoredTraining, generator_state, set_generator
from agents.candidates import learnt_candidates
from agents.ppo_settings import WorldPPOConfig
from agents.successor.training import Problem, uniform_weights
from cirl_gym.files import StoredParts, read_arrays, write_arrays
from cirl_gym.outcome_models.network_files import module_arrays
from cirl_gym.worlds.tumour import TumourParameters

FAST = HistoryTrainingConfig(hidden=4, batch_size=3, target_every=2, iterations=5)
PRINTED = replace(HistoryTrainingConfig.paper(), hidden=4, batch_size=6, target_every=2, iterations=5, ends="model")
W = np.array([-0.4, -0.6])


class Killed(BaseException):
    """In place of a signal: nothing may catch it."""


class Mortal(StoredParts):
    """Dies right after so many writes."""

    def __init__(self, folder, lives, **changes):
        super().__init__(folder, **changes)
        self.lives = lives

    def write(self, name, save):
        stored = super().write(name, save)
        self.lives -= 1
        if self.lives == 0:
            raise Killed
        return stored


def telling(folder, **changes):
    lines = []
    return StoredParts(folder, lines.append, **changes), lines


class TestGenerators:
    def test_what_follows_is_drawn_again(self):
        rng = np.random.default_rng(3)
        rng.integers(10, dtype=np.int32)  # half of a 64-bit number is left over
        state = json.loads(json.dumps(generator_state(rng)))
        expected = [rng.integers(10, dtype=np.int32), rng.random()]
        other = np.random.default_rng(4)
        set_generator(other, state)
        assert [other.integers(10, dtype=np.int32), other.random()] == expected

    @pytest.mark.parametrize("change", [None, [], {"bit_generator": "MT19937"}, {"state": {"state": -1, "inc": 1}}])
    def test_a_damaged_state_changes_nothing(self, change):
        rng = np.random.default_rng(3)
        before = generator_state(rng)
        state = {**before, **change} if isinstance(change, dict) else change
        with pytest.raises(ValueError, match="state of the generator is damaged"):
            set_generator(rng, state)
        assert generator_state(rng) == before


def q_network(config, rng, stored=None):
    training = None if stored is None else StoredTraining(stored, "q.npz")
    return learn_policy(histories_of(every_course(3), 0.9), W, config, rng, stored=training).network


def mu_network(config, rng, stored=None):
    histories = histories_of(every_course(3), 0.9)
    policy = learn_policy(histories, W, FAST, np.random.default_rng(9))
    training = None if stored is None else StoredTraining(stored, "mu.npz")
    return learn_mu(histories, policy, config, rng, stored=training).network


def outcome(train, config, stored=None, seed=0):
    """All bytes of the network, and where the generator stands."""
    rng = np.random.default_rng(seed)
    network = train(config, rng, stored)
    assert not network.training
    return b"".join(array.tobytes() for array in module_arrays(network).values()), generator_state(rng)


class TestTrainings:
    @pytest.mark.parametrize("train", [q_network, mu_network])
    @pytest.mark.parametrize("config", [FAST, PRINTED])
    def test_killed_after_every_iteration_it_ends_the_same(self, train, config, tmp_path):
        whole = outcome(train, config)
        for _ in range(config.iterations):
            with pytest.raises(Killed):
                outcome(train, config, Mortal(tmp_path, 1, every=0))
        assert outcome(train, config, StoredParts(tmp_path, every=0)) == whole

    def test_it_is_written_when_it_is_time_and_at_the_end(self, tmp_path):
        class Counting(StoredParts):
            def write(self, name, save):
                written.append(name)
                return super().write(name, save)

        for every, writes in ((0, 5), (1e9, 1)):
            written: list[str] = []
            whole = outcome(q_network, FAST, Counting(tmp_path / str(every), every=every))
            assert written == ["q.npz"] * writes
            assert whole == outcome(q_network, FAST)

    def test_a_finished_training_is_read_and_draws_nothing_of_torch(self, tmp_path):
        whole = outcome(q_network, FAST, StoredParts(tmp_path))
        before = torch.random.get_rng_state()
        assert outcome(q_network, FAST, Mortal(tmp_path, 1, every=0)) == whole
        assert (torch.random.get_rng_state() == before).all()

    def check_damaged(self, tmp_path, change, words):
        """Stored after three iterations, then changed: that is told, and the outcome is right."""
        for _ in range(3):
            with pytest.raises(Killed):
                outcome(q_network, PRINTED, Mortal(tmp_path, 1, every=0))
        change(tmp_path / "q.npz")
        stored, lines = telling(tmp_path)
        assert outcome(q_network, PRINTED, stored) == outcome(q_network, PRINTED)
        assert len(lines) == 1
        assert words in lines[0]

    @pytest.mark.parametrize("left", [0, 10, 3000, -1])
    def test_cut_off(self, left, tmp_path):
        words = "q.npz cannot be used, this part of the run is done anew"
        self.check_damaged(tmp_path, lambda path: path.write_bytes(path.read_bytes()[:left]), words)

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("network.head.bias", np.zeros(3, dtype=np.float32), "array 'network.head.bias' is float32 (3,)"),
            ("target.head.bias", np.zeros(2, dtype=np.float64), "array 'target.head.bias' is float64 (2,)"),
            ("adam.0.exp_avg", np.zeros(1, dtype=np.float32), "array 'adam.0.exp_avg' is float32 (1,)"),
            ("adam.5.step", None, "arrays missing or unknown: adam.5.step"),
            ("more", np.zeros(1), "arrays missing or unknown: more"),
            ("config", np.array("{"), "is not a model file of schema 2"),
        ],
    )
    def test_of_another_shape(self, name, value, words, tmp_path):
        def change(path):
            arrays = {**read_arrays(path), name: value}
            write_arrays(path, {key: array for key, array in arrays.items() if array is not None})

        self.check_damaged(tmp_path, change, words)

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("done", 6, "not a training of 5 iterations"),
            ("done", 0, "not a training of 5 iterations"),
            ("done", "three", "not a training of 5 iterations"),
            ("kind", "round", "not a training of 5 iterations"),
            ("generator", {}, "state of the generator is damaged"),
        ],
    )
    def test_of_other_content(self, key, value, words, tmp_path):
        def change(path):
            arrays = read_arrays(path)
            settings = {**json.loads(str(arrays["config"])), key: value}
            write_arrays(path, {**arrays, "config": np.array(json.dumps(settings))})

        self.check_damaged(tmp_path, change, words)

    def test_a_full_disk(self, tmp_path):
        (tmp_path / "taken").write_text("a file where a folder is needed")
        stored, lines = telling(tmp_path / "taken", every=0)
        assert outcome(q_network, FAST, stored) == outcome(q_network, FAST)
        assert len(lines) == 1
        assert "nothing can be kept in" in lines[0]


PARAMETERS = TumourParameters(horizon=6)
PPO = WorldPPOConfig(steps=48, rows=4, looks=1, look_starts=4)
ASKED = [np.array(w) for w in ((-0.3, -0.7), (-0.5, -0.5), (-0.9, -0.1))]


@pytest.fixture(scope="module")
def world():
    agent, batch = tumour_agent(PARAMETERS), tumour_batch(PARAMETERS, 0.2, 0.8)
    sides = uniform_weights([-1, -1])
    return agent, Problem(agent.model, agent.feature_map, batch.start, 6, 0.99, sides, histories=batch)


def loop(world, solver, stored=None, asked=ASKED):
    """What three rounds answer, as bytes, and what the generator draws then."""
    rng = np.random.default_rng(5)
    agent, problem = world
    solve = learnt_candidates(agent, problem, solver, replace(FAST, iterations=2), rng, ppo=PPO, stored=stored)
    answers = [solve(w) for w in asked]
    seen = np.concatenate([problem.histories.start, np.zeros((16, 2))], axis=1).astype(np.float32)
    acts = [answer.policy.predict(seen, deterministic=True)[0].tolist() for answer in answers]
    return [answer.mu.tobytes() for answer in answers], acts, rng.random()


class TestRounds:
    @pytest.mark.parametrize("solver", ["successor", "drqn", "recurrent_ppo"])
    def test_killed_after_everything_that_is_stored_it_ends_the_same(self, world, solver, tmp_path):
        whole, deaths = loop(world, solver), 0
        while True:
            try:
                found = loop(world, solver, Mortal(tmp_path, 1, every=0))
                break
            except Killed:
                deaths += 1
        assert found == whole
        # Two iterations of mu-learning, of Q-learning too, and the round itself; three rounds.
        assert deaths == 3 * (5 if solver == "drqn" else 3)
        assert sorted(path.name for path in tmp_path.iterdir() if path.name.count(".") == 1) == [
            f"round00{k}.npz" for k in range(3)
        ]
        assert loop(world, solver, Mortal(tmp_path, 1)) == whole, "all is read, nothing written"

    def test_finished_rounds_leave_no_trainings(self, world, tmp_path):
        loop(world, "drqn", StoredParts(tmp_path, every=0))
        assert {path.name for path in tmp_path.iterdir()} == {f"round00{k}.npz" for k in range(3)}

    def test_a_round_of_other_weights_is_not_believed(self, world, tmp_path):
        loop(world, "drqn", StoredParts(tmp_path))
        stored, lines = telling(tmp_path)
        other = [ASKED[0], np.array([-0.6, -0.4]), ASKED[2]]
        assert loop(world, "drqn", stored, other) == loop(world, "drqn", None, other)
        assert len(lines) == 1
        assert "round001.npz cannot be used" in lines[0]
        assert "it is of the weights [-0.5 -0.5], not of [-0.6 -0.4]" in lines[0]

    @pytest.mark.parametrize(
        ("name", "value", "words"),
        [
            ("mu", np.zeros(3), "its mu must be 2 finite numbers"),
            ("mu", np.array([np.nan, 1.0]), "is not a model file of schema 2: array 'mu' holds nan"),
            ("mu", None, "is not a model file of schema 2: arrays missing or unknown: mu"),
            ("policy.head.bias", np.zeros(5, dtype=np.float32), "array 'head.bias' is float32 (5,)"),
        ],
    )
    def test_a_damaged_round_is_done_anew(self, world, name, value, words, tmp_path):
        loop(world, "drqn", StoredParts(tmp_path))
        arrays = {**read_arrays(tmp_path / "round001.npz"), name: value}
        write_arrays(tmp_path / "round001.npz", {key: a for key, a in arrays.items() if a is not None})
        stored, lines = telling(tmp_path)
        assert loop(world, "drqn", stored) == loop(world, "drqn")
        assert len(lines) == 1
        assert words in lines[0]
