"""The rounds of a max-margin loop, kept as they end: a loop that was killed goes on in the round that it was in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from agents.as_printed.training import StoredTraining, generator_state, set_generator
from cirl_gym.files import StoredParts
from cirl_gym.outcome_models.network_files import read_model_file, write_model_file
from cirl_gym.types import FloatArray, Policy

Arrays = dict[str, npt.NDArray[Any]]


Answer: TypeAlias = tuple[Policy, FloatArray]
"""A policy and its feature expectation ``[d]``."""


class StoredPolicies(NamedTuple):
    """How the policies of one solver become arrays and come back."""

    arrays: Callable[[Policy], Arrays]
    """Everything that a policy has learnt."""
    policy: Callable[[FloatArray, Arrays], Policy]
    """The policy of weights ``[d]`` again; raises ValueError where the arrays are not those of such a policy."""


class StoredRounds:
    """Solves round after round, or reads what an earlier run of the same loop solved.

    With every round the state of the generator after it is kept, so that the next round draws what it would have drawn.
    """

    def __init__(self, kept: StoredParts, stored: StoredPolicies, rng: np.random.Generator) -> None:
        """Begin with round 0.

        Args:
            kept: the run's parts.
            stored: policies as arrays.
            rng: everything that the rounds draw.
        """
        self.kept, self.stored, self.rng = kept, stored, rng
        self.next = 0

    def solved(self, w: FloatArray, solve: Callable[[StoredTraining, StoredTraining], Answer]) -> Answer:
        """The answer to the weights of the next round.

        Args:
            w: ``[d]`` weights.
            solve: finds the answer; it is given where to keep the training of the policy and that of its mu.
        """
        name = f"round{self.next:03}"
        self.next += 1
        found = self.kept.read(f"{name}.npz", lambda path: self._read(path, w))
        if found is not None:
            return found
        trainings = [StoredTraining(self.kept, f"{name}.{part}.npz") for part in ("policy", "mu")]
        made = solve(*trainings)
        if self.kept.write(f"{name}.npz", lambda path: self._write(path, w, made)):
            for training in trainings:
                training.drop()
        return made

    def _write(self, path: Path, w: FloatArray, made: Answer) -> None:
        policy, mu = made
        learnt = {f"policy.{name}": array for name, array in self.stored.arrays(policy).items()}
        settings = {"kind": "round", "generator": generator_state(self.rng)}
        write_model_file(path, settings, {"w": w, "mu": mu.astype(np.float64), **learnt})

    def _read(self, path: Path, w: FloatArray) -> Answer:
        settings, arrays = read_model_file(path)
        if settings.get("kind") != "round" or not {"w", "mu"} <= set(arrays):
            raise ValueError("it is not a round: its weights or its mu are missing")
        asked, mu = arrays.pop("w"), arrays.pop("mu")
        if not np.array_equal(asked, w):
            raise ValueError(f"it is of the weights {asked}, not of {w}")
        if mu.shape != w.shape or mu.dtype != np.float64 or not np.isfinite(mu).all():
            raise ValueError(f"its mu must be {len(w)} finite numbers, got {mu}")
        policy = self.stored.policy(w, {name.removeprefix("policy."): array for name, array in arrays.items()})
        # Last of all: a file that cannot be used must leave the generator as it is.
        set_generator(self.rng, settings.get("generator"))
        return policy, mu
