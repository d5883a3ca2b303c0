"""One-step errors on the tumour-growth benchmark of the counterfactual literature, beside the published ones.

For every day of every test patient the volume after each of the four treatments is predicted; errors are in percent of
1150 cm^3. Published code averages them in three ways, and which of them a published table shows is not always said:

- last: the root of one mean over days and treatments (:func:`tumour_growth_world.percent_error`);
- all: the same when every day's row repeats the factual days before it;
- orig: those rows averaged by day, then over days.

The networks predict by which share the volume changes (``OutcomeModelConfig.relative``).

``--published`` trains and tests as public data sets do: the first treatment is on day 1, there are 60 volumes, and the
test set's counterfactual volumes are not stopped at death or recovery.

    python benchmarks/tumour_growth.py [--patients 10000] [--confounding 0 2 4] [--kinds crn mb_h] [--seeds 1]
        [--published]
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
import torch
from tumour_growth_world import (
    NORMALISER,
    CounterfactualOutcomes,
    TumourGrowthParameters,
    percent_error,
    simulate,
    simulate_counterfactuals,
)

from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.outcome_models.fitting import OutcomeModelConfig, fit_outcome_model
from cirl_gym.outcome_models.inputs import KINDS
from cirl_gym.types import FloatArray

PUBLISHED = {0.0: 0.755, 1.0: 0.788, 2.0: 0.881, 3.0: 1.062, 4.0: 1.358}
"""CRN (Bica et al. 2020), as corrected in the table of Melnychuk et al. 2022."""
TEST_PATIENTS = 1000
TEST_SETS = 10
"""A few patients carry much of the error, so that one test set says little."""


def errors(predicted: FloatArray, truth: CounterfactualOutcomes) -> dict[str, float]:
    """The three averages of predictions ``[N, T, 4]``, in percent."""
    batch, mask = truth.batch, truth.batch.mask
    squares = np.where(mask[..., None], (predicted - truth.outcomes) ** 2, 0.0)
    factual = np.take_along_axis(squares, batch.actions[..., None], axis=2)[..., 0]
    # A factual day is repeated in the four rows of every later day.
    repeats = np.where(mask, 4 * (batch.lengths[:, None] - 1 - np.arange(batch.horizon)), 0)
    sums, counts = squares.sum(axis=2) + repeats * factual, 4 * mask + repeats
    by_day = sums.sum(axis=0)[mask.any(axis=0)] / counts.sum(axis=0)[mask.any(axis=0)]
    means = {"all": sums.sum() / counts.sum(), "orig": by_day.mean()}
    roots = {name: 100 / NORMALISER * float(np.sqrt(mean)) for name, mean in means.items()}
    return {"last": percent_error(predicted, truth.outcomes, mask), **roots}


def volumes(model: OutcomeModel, truth: CounterfactualOutcomes) -> FloatArray:
    """Predicted volumes ``[N, T, 4]``, a few patients at a time."""
    parts = [truth.batch.take(rows) for rows in np.array_split(np.arange(len(truth.batch)), 10)]
    return np.concatenate([model.predict(model.encode(part)[:, :-1])[..., 0].astype(np.float64) for part in parts])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--patients", type=int, default=10_000, help="to train on; a tenth as many more to validate")
    parser.add_argument("--confounding", type=float, nargs="+", default=[0.0, 2.0, 4.0])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=["crn", "mb_h"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--published", action="store_true", help="train and test as public data sets do")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    whole = TumourGrowthParameters()
    for_test = replace(whole, horizon=59) if arguments.published else whole
    for_training = replace(for_test, first_decision=1) if arguments.published else whole
    print(f"{arguments.patients:,} training patients, {TEST_SETS} test sets: mean (standard deviation over them)")
    print("confounding  kind  seed  last           all            orig           published  seconds")
    for gamma in arguments.confounding:
        tests = [
            simulate_counterfactuals(
                for_test, TEST_PATIENTS, gamma, np.random.default_rng([k, 4]), bounded=not arguments.published
            )
            for k in range(TEST_SETS)
        ]
        for seed in range(arguments.seeds):
            rng = np.random.default_rng([seed, 3])
            train = simulate(for_training, arguments.patients, gamma, rng)
            validation = simulate(for_training, max(arguments.patients // 10, 100), gamma, rng)
            for kind in arguments.kinds:
                config = OutcomeModelConfig(relative=() if kind == "ar" else ("volume",))
                fitted = fit_outcome_model(kind, train, validation, config, np.random.default_rng(seed))
                found = [errors(volumes(fitted.model, truth), truth) for truth in tests]
                columns = "  ".join(
                    f"{np.mean(values):5.3f} ({np.std(values, ddof=1):.3f})"
                    for values in ([one[name] for one in found] for name in ("last", "all", "orig"))
                )
                known = PUBLISHED.get(gamma, float("nan"))
                print(f"{gamma:11g} {kind:>5} {seed:5}  {columns}  {known:9.3f} {fitted.seconds:8.0f}", flush=True)


if __name__ == "__main__":
    main()
