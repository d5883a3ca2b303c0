"""What is asked of a fit: batches, what is known, how, and every random stream by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from cirl_gym.data.batch import Batch
from cirl_gym.data.features import FeatureMap
from cirl_gym.data.outcome_model import OutcomeModel
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.stated import StatedEffect
from cirl_gym.types import FloatArray
from irl.settings import FitConfig
from irl.stages import Reporter, Stages, stages


@dataclass(frozen=True)
class Study:
    """What steps 4 to 9 get: batches, what is known of the weights, and how. No way leads from here to a simulator."""

    train: Batch
    """Episodes to learn from."""
    validation: Batch
    """Episodes to choose by."""
    feature_map: FeatureMap
    """Which features are outcomes, and their ranges."""
    signs: FloatArray
    """``[d]`` of -1, 0 (free) and 1, one per outcome: what is known of the weights' signs."""
    config: FitConfig
    """How."""
    seed: int = 0
    """Everything that is drawn."""
    stages: Stages = field(default_factory=partial(stages, 0, quiet=True))
    """Shows and times the stages."""
    stored: StoredParts = field(default_factory=StoredParts)
    """What is stored of the stages and rounds of the same run, begun before; default: nothing."""
    everyone: Batch | None = None
    """The episodes of all patients, held out or not, for cross-fitting (``config.folds``)."""
    model: OutcomeModel | None = None
    """Taken as it is in place of step 4's: the simulator, or a model of one's own; None: learnt."""
    effects: tuple[StatedEffect, ...] = ()
    """What is known of effects of actions; the outcome model is only held to what ``config.outcome`` names."""
    sought: int | None = None
    """Which outcome's limit is found from the decisions (:mod:`irl.studies.limits`); the feature map has it at any."""

    def rng(self, name: str) -> np.random.Generator:
        """The random stream of a stage (:data:`STREAMS`), from its beginning."""
        return stream(self.seed, name)

    def elsewhere(self) -> Study:
        """The same for a part of a stage, maybe in another process: nobody watches it."""
        return replace(self, stages=stages(0, quiet=True), stored=self.stored.elsewhere())

    def watched(self, report: Reporter) -> Callable[[int, int], None]:
        """``report``, which also says that what was done is stored."""

        def told(done: int, total: int) -> None:
            self.stored.after_write()
            report(done, total)

        return told


STREAMS = {
    "expert": ("simulate", 0),
    "batch": ("simulate", 1),
    "split": ("simulate", 2),
    "outcome model": ("fit", 0),
    "candidate policies": ("fit", 1),
    "max-margin loop": ("fit", 2),
    "weights": ("fit", 3),
    "behaviour cloning": ("fit", 4),
    "discount factor": ("discount factor", 0),
    "identified set": ("identified", 0),
    "quality control": ("quality", 0),
    "time windows": ("windows", 0),
    "habits": ("habits", 0),
    "folds": ("folds", 0),
    "held-out decisions": ("folds", 1),
    "effects": ("effects", 0),
    "drawn effects": ("effects", 1),
    "limit": ("limit", 0),
    "plans of limits": ("limit", 1),
    "interval of the limit": ("limit", 2),
}
"""Random streams by name: the part of a run and the place in it that, with the seed, decide their numbers."""


def stream(seed: int, name: str) -> np.random.Generator:
    """A random stream by its name: the same for the same seed, whatever others draw."""
    part, place = STREAMS[name]
    return _generator(seed, part, place)


def member_streams(seed: int, number: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Of a member of an ensemble: to solve its world with, and to judge decisions in it."""
    return _generator(seed, f"member {number}", 0), _generator(seed, f"member {number}", 1)


def fold_streams(seed: int, repeat: int, number: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Of a fold of a repetition: to fit its outcome model with, and to solve its world."""
    part = f"fold {repeat} {number}"
    return _generator(seed, part, 0), _generator(seed, part, 1)


def _generator(seed: int, part: str, place: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence([seed, *part.encode()], spawn_key=(place,)))
