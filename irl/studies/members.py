"""Of an ensemble of outcome models, the weights in the world of each member: how far the model's error reaches.

Every member is a world of its own, in which candidate policies are solved and the experts' decisions judged anew. What
the members' posteriors have between them is then the interval: it holds the error of the outcome model and, since each
is solved with other random numbers, that of the solver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from agents.successor.training import Problem, fit_successor
from cirl_gym.data.batch import Batch
from cirl_gym.files import StoredParts, read_arrays, write_arrays
from cirl_gym.outcome_models.masked import rules_of, with_rules, without_rules
from cirl_gym.outcome_models.model import EnsembleModel
from cirl_gym.types import FloatArray
from irl.max_margin import expert_mu, phi_along
from irl.preferences.inference import judged_preferences
from irl.preferences.posterior import TAILS, PosteriorResult, SamplerReport
from irl.settings import FitConfig
from irl.stages import Stages

_SAMPLER = "sampler."


@dataclass(frozen=True)
class MemberPosterior:
    """What one member of the ensemble says."""

    mu_expert: FloatArray
    """``[d]`` feature expectation of the experts, whose outcomes it predicts."""
    mu_recovered: FloatArray
    """``[d]`` that of the policy which is optimal for its weights, in its own world."""
    posterior: PosteriorResult
    """Of the weights in its world."""

    def save(self, path: Path) -> None:
        """Write an npz file, every number as it is."""
        sampler = self.posterior.sampler
        arrays = {name: value for name, value in vars(self.posterior).items() if name != "sampler"}
        arrays |= {f"{_SAMPLER}{name}": value for name, value in (vars(sampler) if sampler else {}).items()}
        arrays |= {"mu_expert": self.mu_expert, "mu_recovered": self.mu_recovered}
        write_arrays(path, {name: np.asarray(value) for name, value in arrays.items() if value is not None})

    @classmethod
    def load(cls, path: Path) -> MemberPosterior:
        """Read what :meth:`save` wrote.

        Raises:
            ValueError: the file is not a whole one; the message names it.
        """
        values: dict[str, Any] = {name: a if a.ndim else a.item() for name, a in read_arrays(path).items()}
        own = {name.removeprefix(_SAMPLER): values.pop(name) for name in list(values) if name.startswith(_SAMPLER)}
        try:
            mus = values.pop("mu_expert"), values.pop("mu_recovered")
            posterior = PosteriorResult(**values, sampler=SamplerReport(**own) if own else None)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is not a whole posterior of a member: {error!r}") from error
        vectors = [*mus, posterior.mean, posterior.median, posterior.low, posterior.high, posterior.best]
        if len({np.shape(vector) for vector in vectors}) > 1:
            raise ValueError(f"{path} is not a whole posterior of a member: its weights and its mus differ in length")
        return cls(*mus, posterior)


def solved_members(
    problem: Problem,
    train: Batch,
    signs: FloatArray,
    config: FitConfig,
    generators: Callable[[int], Sequence[np.random.Generator]],
    run: Stages,
    stored: StoredParts,
) -> tuple[MemberPosterior, ...]:
    """Of an ensemble, steps 5 to 9 in the world of each member; nothing of a single model.

    Args:
        problem: the world of the ensemble's mean prediction.
        train: episodes whose decisions the posteriors are of.
        signs: ``[d]`` of -1, 0 (free) and 1.
        config: how.
        generators: of a member by its number: one to solve with, one to judge with.
        run: shows and times the stage.
        stored: members that the same run, begun before, has done.
    """
    ensemble, rules = without_rules(problem.model), rules_of(problem.model)
    if not isinstance(ensemble, EnsembleModel):
        return ()

    def solved(number: int) -> MemberPosterior:
        solving, judging = generators(number)
        own = replace(problem, model=with_rules(ensemble.members[number], rules))
        agent = fit_successor(own, config.agent, solving)
        mu = expert_mu(phi_along(own.model, own.feature_map, train), train, config.gamma)
        posterior, _ = judged_preferences(agent.psi, train, signs, config.posterior, judging)
        return MemberPosterior(mu.mean, agent.mu(posterior.mean, train.start, config.starts), posterior)

    found = []
    with run.stage("each outcome model") as report:
        for number in range(len(ensemble.members)):
            part = f"member{number}.npz", partial(solved, number), MemberPosterior.save, MemberPosterior.load
            found.append(stored.stage(*part))
            report(number + 1, len(ensemble.members))
    return tuple(found)


def with_model_spread(posterior: PosteriorResult, members: Sequence[MemberPosterior]) -> PosteriorResult:
    """The posterior whose intervals and draws are those of all members together; means and medians stay.

    Args:
        posterior: under the ensemble's mean prediction.
        members: at least one.

    Raises:
        ValueError: there are no members.
    """
    if not members:
        raise ValueError("with_model_spread: there are no members")
    every = [posterior, *(member.posterior for member in members)]
    # As many draws of each: a mixture with equal shares.
    n = min(len(one.draws) for one in every)
    draws, kappas = (np.concatenate(drawn) for drawn in zip(*(one.thinned(n) for one in every), strict=True))
    low, high = np.quantile(draws, TAILS[[0, 2]], axis=0)
    kappa_low, kappa_high = np.quantile(kappas, TAILS[[0, 2]])
    return replace(
        posterior,
        # Each member's own interval may be wider than its draws say (a bootstrap over patients).
        low=np.minimum(low, posterior.low),
        high=np.maximum(high, posterior.high),
        kappa_low=min(float(kappa_low), posterior.kappa_low),
        kappa_high=max(float(kappa_high), posterior.kappa_high),
        draws=draws,
        kappa_draws=kappas,
    )
