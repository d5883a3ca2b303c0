"""A hyper-parameter search whose fits take no time."""

from __future__ import annotations

from small_batches import batch_of

from cirl_gym.outcome_models.fitting import FittedOutcomeModel
from cirl_gym.tuning.search import Parameter, SearchSpace, TuningConfig
from cirl_gym.tuning.study import tune

TRAIN, VALIDATION = batch_of([0, 1, 1], [1, 0], [1]), batch_of([1, 0, 1], [0, 1])
FOUR = SearchSpace(
    "mb_h",
    (Parameter("units", ("hidden",), (1, 2), "C"), Parameter("rate", ("training.learning_rate",), (0.1, 0.2))),
    trials=4,
)


class Recorded:
    """A fit that takes no time: its error is 1 / (units x rate), its losses fall to that value."""

    def __init__(self, stop_at: int | None = None, error: BaseException | None = None, epochs: int = 12) -> None:
        self.calls: list[tuple[int, float, float]] = []
        self.epochs = epochs
        self.stop_at, self.error = stop_at, error

    def __call__(self, kind, train, validation, config, rng, progress=None, *, watch=None):
        hidden, rate = config.mb_h.hidden, config.mb_h.training.learning_rate
        self.calls.append((hidden, rate, float(rng.random())))
        if len(self.calls) - 1 == self.stop_at:
            raise self.error
        value = 1 / (hidden * rate)
        for epoch in range(1, self.epochs + 1):
            watch.on_epoch("numerator", epoch, -1.0)  # another network: not what is judged
            watch.on_epoch("correction", epoch, value + 1 / epoch)
            progress(epoch, self.epochs)
        report = {
            "correction": {"kept": True, "validation_loss": value, "epochs": self.epochs},
            "factual": {"validation": {"pooled": value}},
        }
        return FittedOutcomeModel(None, report, 0.0)


def config(**changes) -> TuningConfig:
    return TuningConfig(**{"model": "mb_h", "search": FOUR, **changes})


def run(storage, fit, **changes):
    return tune(TRAIN, VALIDATION, config(**changes), storage, fit=fit)
