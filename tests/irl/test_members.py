"""What members of an ensemble differ in, in the intervals of the weights."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from posteriors import known_posterior
from tiny_run import fitted, make_the_command_line_tiny, tiny_demo, tiny_fit

from cirl_gym.files import read_arrays, write_arrays
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.outcome_models.model import EnsembleModel
from irl.commands.cli import main
from irl.commands.options import ModelArguments
from irl.pipeline import simulate
from irl.preferences import PosteriorResult, SamplerReport
from irl.preferences.posterior import with_model_spread
from irl.stages import stages
from irl.stored_stages import MemberPosterior


def posterior(centre, half, n=1001):
    """Draws spread evenly around a first weight; both weights negative."""
    first = np.linspace(centre - half, centre + half, n)
    draws = np.stack([first, -1 - first], axis=1)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    return known_posterior(draws, np.linspace(50, 150, n), low=low, high=high)


def test_intervals_hold_what_members_say_and_never_shrink():
    whole = posterior(-0.3, 0.01)
    assert with_model_spread(whole, []) is whole
    alike = with_model_spread(whole, [posterior(-0.3, 0.01)] * 2)
    np.testing.assert_allclose([alike.low, alike.high], [whole.low, whole.high], atol=1e-6)
    np.testing.assert_array_equal(alike.mean, whole.mean)
    members = [posterior(-0.35, 0.01), posterior(-0.25, 0.01)]
    for ordered in (members, members[::-1]):
        wider = with_model_spread(whole, ordered)
        assert (wider.low[0], wider.high[0]) == pytest.approx((-0.357, -0.243), abs=0.002)
        assert len(wider.draws) == 3 * 1001
    assert len(with_model_spread(whole, [posterior(-0.35, 0.01, n=101)]).draws) == 2 * 101, "as many of each"
    wide = replace(posterior(-0.3, 0.001), low=np.array([-0.4, -0.8]), high=np.array([-0.2, -0.6]))
    same = with_model_spread(wide, [posterior(-0.3, 0.001)])
    np.testing.assert_array_equal([same.low, same.high], [wide.low, wide.high])


def test_a_run_with_three_models():
    outcome = replace(OutcomeModelConfig.quick(), members=3, bootstrap=True)
    config = tiny_demo(fit=tiny_fit(outcome=outcome))
    run = stages(9, quiet=True)
    seen = simulate(config, run)
    found = fitted(seen.train, seen.validation, config.fit, run=run)
    assert isinstance(found.model.model, EnsembleModel)
    assert len(found.members) == 3
    assert "each outcome model" in run.seconds
    for one in found.members:
        assert np.abs(one.posterior.mean).sum() == pytest.approx(1.0)
        assert (found.posterior.low <= one.posterior.high).all()
    means = np.stack([one.mu_expert for one in found.members])
    assert (means.std(axis=0) > 0).all()
    np.testing.assert_allclose(means.mean(axis=0), found.mu_expert.mean, rtol=0.05)


def test_the_command_and_its_options(tmp_path, monkeypatch, capsys):
    make_the_command_line_tiny(monkeypatch)
    assert main(["demo", "--quick", "--members", "2", "--bootstrap", "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "result.json").read_text())
    assert len(found["members"]) == 2
    assert set(found["members"][0]) == {"weights", "mu_expert", "mu_recovered"}
    assert main(["demo", "--quick", "--bootstrap", "--out", str(tmp_path)]) == 2
    assert "--members" in capsys.readouterr().err
    assert main(["demo", "--quick", "--model", "ar", "--relative", "x", "--out", str(tmp_path)]) == 2
    assert "--relative needs a network" in capsys.readouterr().err
    assert main(["diagnose", str(tmp_path), "--patients", "20"]) == 0
    config = ModelArguments(model="mb_h", members=4, relative=("x",)).put_into(tiny_fit())
    assert (config.model, config.outcome.members, config.outcome.relative) == ("mb_h", 4, ("x",))
    assert ModelArguments().put_into(tiny_fit()) == tiny_fit()


def test_what_is_stored_of_a_member_comes_back(tmp_path):
    rng = np.random.default_rng(0)
    vectors = {name: rng.standard_normal(3) for name in ("mean", "median", "low", "high", "best")}
    numbers = ("concentration", "kappa_mean", "kappa_low", "kappa_high", "best_kappa", "best_log_likelihood")
    drawn = {"draws": rng.standard_normal((5, 3)), "kappa_draws": rng.standard_normal(5)}
    sampler = SamplerReport(0.1, rng.standard_normal(4), rng.standard_normal(4), 700, 12)
    values = {name: float(rng.standard_normal()) for name in numbers}
    for more in ({"sampler": sampler}, {"bootstrap": rng.standard_normal((4, 3))}):
        found = MemberPosterior(*rng.standard_normal((2, 3)), PosteriorResult(**vectors, **values, **drawn, **more))
        found.save(tmp_path / "member.npz")
        again = MemberPosterior.load(tmp_path / "member.npz")
        for one, other in ((found, again), (found.posterior, again.posterior)):
            assert {name: type(value) for name, value in vars(one).items()} == {
                name: type(value) for name, value in vars(other).items()
            }
        np.testing.assert_equal(flat(again), flat(found))
    arrays = read_arrays(tmp_path / "member.npz")
    for broken in ({**arrays, "mean": np.zeros(2)}, {key: arrays[key] for key in arrays if key != "low"}):
        write_arrays(tmp_path / "member.npz", broken)
        with pytest.raises(ValueError, match="is not a whole posterior of a member"):
            MemberPosterior.load(tmp_path / "member.npz")


def flat(found):
    posterior = dict(vars(found.posterior))
    sampler = posterior.pop("sampler")
    return found.mu_expert, found.mu_recovered, posterior, sampler and vars(sampler)
