"""RecurrentPPO in the world model finds the optimum of an exact small world, and drives the loop from the command."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from known_model import KnownModel, best_plans, every_plan
from small_agents import known_agent, known_problem
from tiny_run import make_the_command_line_tiny, tiny_fit

from agents.as_printed.learning import RollOutConfig, rolled_out_mu
from agents.as_printed.training import HistoryTrainingConfig
from agents.candidates import learnt_candidates
from agents.ppo import WorldPPO, WorldPPOConfig
from agents.successor.training import Problem, RandomRates
from cirl_gym.data.outcome_model import CounterfactualWorld
from cirl_gym.data.rollout import observation, rollout
from cirl_gym.files import StoredParts
from irl.commands.arguments import SolverArguments
from irl.commands.cli import main
from irl.settings import FitConfig

FEW = WorldPPOConfig(steps=96, rows=8, epochs=1, looks=2)
LEARNT = HistoryTrainingConfig(hidden=4, batch_size=4, iterations=3, target_every=1)
W = np.array([-0.3, -0.7])


def problem(**changes) -> Problem:
    """The exact small world, with episodes of random actions to begin from."""
    bare = known_problem(**changes)
    world = CounterfactualWorld(bare.model, bare.starts, bare.horizon)
    explorer = RandomRates(bare.horizon, 3, np.random.default_rng(0))
    return replace(bare, histories=rollout(world, explorer, 50, np.random.default_rng(1), deterministic=False))


def shape_of(policy) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in policy.state_dict().items()}


class TestSolving:
    @pytest.mark.parametrize(("w", "gap"), [((-0.3, -0.7), 1e-9), ((0.6, -0.4), 1e-9), ((0.5, 0.5), 0.04)])
    def test_the_policy_found_is_optimal_or_almost(self, w, gap):
        small, w = problem(), np.array(w)
        policy = WorldPPO(small, WorldPPOConfig(steps=2500, looks=5), np.random.default_rng(0)).solve(w)
        states = [(x, y, None) for x, y in small.starts.tolist()]
        best = np.mean([(best_plans(state, 4, 0.5, w) @ w).max() for state in states])
        usual = np.mean([[every_plan(state, 4, 0.5, first) @ w for first in range(3)] for state in states])
        assert best - usual > 3 * gap, "not every policy may pass"
        assert best - w @ rolled_out_mu(policy, small) <= gap

    def test_what_comes_after_the_horizon_does_not_count(self):
        env = WorldPPO(problem(model=KnownModel(ends=False)), FEW, np.random.default_rng(0))._env(W)
        env.reset()
        for step in range(4):
            _, _, dones, infos = env.step(np.zeros(8, dtype=np.int64))
            assert dones.all() == (step == 3)
        assert [info["TimeLimit.truncated"] for info in infos] == [False] * 8
        assert all("terminal_observation" in info for info in infos)

    def test_same_seed_same_bytes_and_no_random_number_of_torch_is_used_up(self):
        before = torch.random.get_rng_state()
        first, again, other = (WorldPPO(problem(), FEW, np.random.default_rng(seed)).solve(W) for seed in (0, 0, 1))
        assert shape_of(first) == shape_of(again)
        assert shape_of(first) != shape_of(other)
        assert torch.equal(torch.random.get_rng_state(), before)

    @pytest.fixture
    def seen(self, monkeypatch):
        """Every policy that is looked at; the second of a training is found the best."""
        shapes = []

        def value(policy, *arguments):
            shapes.append(shape_of(policy))
            return np.array([float(len(shapes) == 2), 0.0])

        monkeypatch.setattr("agents.ppo.rolled_out_mu", value)
        return shapes

    def test_the_best_policy_seen_is_the_answer(self, seen):
        # Three rollouts of 32 steps: looks before the first and before the second half, and at the end.
        policy = WorldPPO(problem(), FEW, np.random.default_rng(0)).solve([1.0, 0.0])
        assert len(seen) == 3
        assert shape_of(policy) == seen[1] != seen[2]

    @pytest.mark.parametrize("warm", [False, True])
    def test_a_warm_start_begins_with_the_network_before(self, seen, warm):
        trainer = WorldPPO(problem(), replace(FEW, looks=1, warm_start=warm), np.random.default_rng(0))
        first, _ = shape_of(trainer.solve([1.0, 0.0])), trainer.solve([1.0, 0.0])
        # Each training looks before its first update and at its end.
        assert first == seen[1] != seen[0]
        assert (seen[2] == first) == warm

    def test_units_do_not_matter(self):
        small = problem()
        seen = small.histories
        policy = WorldPPO(small, FEW, np.random.default_rng(0)).solve(W)
        shown = observation(seen.obs[:, 1], seen.actions[:, 0], 3)
        inputs = policy.features_extractor(torch.from_numpy(shown)).numpy()
        rows = seen.obs[seen.seen]
        np.testing.assert_allclose(inputs[:, :2], (seen.obs[:, 1] - rows.mean(axis=0)) / rows.std(axis=0), atol=1e-5)
        np.testing.assert_array_equal(inputs[:, 2:], shown[:, 2:])

    def test_impossible_settings(self):
        with pytest.raises(ValueError, match="needs a problem with histories"):
            WorldPPO(known_problem(), FEW, np.random.default_rng(0))
        for name, value in {"steps": 0, "rows": 0, "epochs": 0, "looks": 0, "outcome": "real"}.items():
            with pytest.raises(ValueError, match=f"WorldPPOConfig.{name} must be"):
                WorldPPOConfig(**{name: value})
        # What the successor agent reads off is not learnt.
        with pytest.raises(ValueError, match="mu must be 'mu_learning' or 'rollouts'"):
            learnt_candidates(known_agent(), problem(), "drqn", LEARNT, np.random.default_rng(0), mu="successor")


class TestCandidates:
    @pytest.mark.parametrize("mu", ["mu_learning", "rollouts"])
    @pytest.mark.parametrize("solver", ["successor", "drqn", "recurrent_ppo"])
    def test_every_solver_goes_with_every_learnt_mu(self, solver, mu):
        small, options = problem(), {"mu": mu, "ppo": FEW, "rollouts": RollOutConfig(episodes=20)}
        candidate, again = (
            learnt_candidates(known_agent(), small, solver, LEARNT, np.random.default_rng(0), **options)(W)
            for _ in range(2)
        )
        assert candidate.mu.shape == (2,)
        assert again.mu.tobytes() == candidate.mu.tobytes()
        if mu == "rollouts":
            np.testing.assert_array_equal(candidate.mu, rolled_out_mu(candidate.policy, small, RollOutConfig(20)))

    @pytest.mark.parametrize("warm", [False, True])
    def test_a_loop_that_was_stopped_goes_on_with_the_same_rounds(self, warm, tmp_path):
        small, agent = problem(), known_agent()
        options = {"mu": "rollouts", "ppo": replace(FEW, warm_start=warm), "stored": StoredParts(tmp_path)}
        weights = [W, np.array([0.6, -0.4]), np.array([0.5, 0.5])]
        tmp_path.mkdir(exist_ok=True)

        def candidates():
            return learnt_candidates(agent, small, "recurrent_ppo", LEARNT, np.random.default_rng(0), **options)

        solve = candidates()
        whole = [solve(w) for w in weights]
        (tmp_path / "round002.npz").unlink()
        again = candidates()
        for w, before in zip(weights, whole, strict=True):
            found = again(w)
            assert shape_of(found.policy) == shape_of(before.policy)
            np.testing.assert_array_equal(found.mu, before.mu)


class TestOptions:
    def test_the_usual_mu_of_each_solver(self):
        assert SolverArguments("recurrent_ppo").put_into(FitConfig()).mu == "rollouts"
        assert SolverArguments("drqn", "rollouts").put_into(FitConfig()).mu == "rollouts"
        assert SolverArguments("recurrent_ppo", "mu_learning", 7).put_into(FitConfig()).histories.iterations == 7
        assert SolverArguments("recurrent_ppo", steps=99).put_into(FitConfig()).ppo == WorldPPOConfig(steps=99)
        # As the help states them.
        assert (FitConfig().ppo.steps, FitConfig().quick().ppo.steps) == (40_000, 20_000)

    def test_contradictions_are_refused(self):
        for arguments, message in (
            (SolverArguments("recurrent_ppo", "successor"), "recurrent_ppo needs mu='mu_learning' or mu='rollouts'"),
            (SolverArguments("recurrent_ppo", iterations=7), "--iterations is for"),
            (SolverArguments("drqn", steps=7), "--steps is for --solver recurrent_ppo"),
            (SolverArguments("recurrent_ppo", steps=0), "steps must be at least 1"),
        ):
            with pytest.raises(ValueError, match=message):
                arguments.put_into(FitConfig())


def test_a_whole_run_from_the_command(tmp_path, monkeypatch, capsys):
    make_the_command_line_tiny(monkeypatch)
    monkeypatch.setattr(
        "irl.commands.options._usual_fit", lambda gamma, quick, forbid: tiny_fit(gamma=gamma, ppo=FEW, rounds=1)
    )
    arguments = ["demo", "--quick", "--solver", "recurrent_ppo", "--steps", "48"]
    for folder in ("a", "b"):
        assert main([*arguments, "--out", str(tmp_path / folder)]) == 0
    capsys.readouterr()
    results = [json.loads((tmp_path / folder / "result.json").read_text()) for folder in ("a", "b")]
    fit = results[0]["config"]["fit"]
    assert (fit["solver"], fit["mu"], fit["ppo"]["steps"]) == ("recurrent_ppo", "rollouts", 48)
    rounds = [[{k: v for k, v in r.items() if k != "seconds"} for r in result["rounds"]] for result in results]
    assert rounds[0] == rounds[1]
    assert len(rounds[0]) == 2
    # What is measured on held-out episodes is there, and the same twice.
    for part in ("likelihood", "agreement", "mu_recovered", "mu_gap"):
        assert results[0][part] == results[1][part] is not None
    assert results[0]["likelihood"]["expert"] is not None
    assert len(results[0]["agreement"]["episodes"]) == 6
    assert results[0]["agreement"]["episodes"][0] == 20
