"""How long the posterior takes: five outcomes and two actions, and as many actions and outcomes as asked for.

Decisions are drawn from the choice model, with a habit of repeating the action before, and plans are drawn too: no
world is fitted and no plan is searched. Of each case: seconds of the processor for the peak and for the whole
posterior, against a multinomial logit of the same decisions on the psi of one plan (scikit-learn's, without intervals);
whether chains converged; and whether 90 % intervals hold the weights.

    python benchmarks/posterior_speed.py [--actions 25] [--outcomes 20] [--decisions 3000] [--plans 42] [--seed 0]
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np
import torch
from plan_search import patients
from sklearn.linear_model import LogisticRegression

from cirl_gym.data.batch import PREVIOUS
from cirl_gym.data.features import draw_weights
from cirl_gym.data.habits import Contexts
from cirl_gym.types import FloatArray
from irl.preferences.likelihood import PlanPool
from irl.preferences.posterior import prepared, sample_posterior

KAPPA, REPEATING, STEPS = 60.0, 1.5, 6.5
"""The experts' kappa, their logit of repeating the action before, and mean decisions of a patient."""


def case(
    actions: int, outcomes: int, decisions: int, plans: int, rng: np.random.Generator
) -> tuple[PlanPool, FloatArray]:
    """Decisions with plans, and the weights by which they were made."""
    weights = draw_weights(np.zeros(outcomes), rng)
    batch = patients(round(decisions / STEPS), actions, outcomes, rng)
    shape = (*batch.actions.shape, actions, outcomes)
    psi = (0.03 * rng.standard_normal(shape) + 0.003 * rng.standard_normal((plans, *shape))).astype(np.float32)
    values, taken = KAPPA * (psi @ weights.astype(np.float32)).max(axis=0), np.zeros(batch.actions.shape, dtype=int)
    for t in range(batch.horizon):
        scores = values[:, t] + rng.gumbel(size=values[:, t].shape)
        if t:
            scores[np.arange(len(batch)), taken[:, t - 1]] += REPEATING
        taken[:, t] = np.where(batch.mask[:, t], scores.argmax(axis=1), 0)
    drawn = replace(batch, actions=taken)
    return PlanPool(drawn, psi, Contexts.of(drawn, (PREVIOUS,))), weights


def measure(actions: int, outcomes: int, decisions: int, plans: int, seed: int) -> None:
    """One case."""
    rng = np.random.default_rng(seed)
    pool, weights = case(actions, outcomes, decisions, plans, rng)
    live, signs = pool.batch.mask, np.zeros(outcomes)
    inputs, targets = pool.psi[0][live].reshape(live.sum(), -1), pool.batch.actions[live]
    begin = time.process_time()
    LogisticRegression(max_iter=100).fit(inputs, targets)
    logit = time.process_time() - begin
    begin = time.process_time()
    prepared(pool, signs)
    peak = time.process_time() - begin
    begin = time.process_time()
    found = sample_posterior(pool, signs, rng)
    whole = time.process_time() - begin
    held = int(((found.low <= weights) & (weights <= found.high)).sum())
    report = found.sampler
    print(
        f"{outcomes} outcomes, {actions} actions, {live.sum()} decisions, {plans} plans: peak {peak:.1f} s, posterior "
        f"{whole:.1f} s, {whole / logit:.1f} times the logit's {logit:.1f} s; R-hat at most {report.r_hat.max():.3f}, "
        f"effective size at least {report.effective.min():.0f}; {held} of {outcomes} intervals hold the weights",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--actions", type=int, default=25)
    parser.add_argument("--outcomes", type=int, default=20)
    parser.add_argument("--decisions", type=int, default=3000)
    parser.add_argument("--plans", type=int, default=42)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measure(2, 5, 3000, 27, arguments.seed)
    measure(arguments.actions, arguments.outcomes, arguments.decisions, arguments.plans, arguments.seed)


if __name__ == "__main__":
    main()
