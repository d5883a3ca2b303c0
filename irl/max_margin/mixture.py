"""The mixture of found policies whose feature expectation is nearest to the expert's (paper, section 4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from cirl_gym.types import BoolArray, FloatArray, Policy

_Memory: TypeAlias = "tuple[npt.NDArray[Any], ...] | None"

NEGLIGIBLE = 1e-6
"""Policies with less weight than this are left out of the mixture."""


@dataclass(frozen=True)
class Mixture:
    """The point of the convex hull of mu_0..mu_K that is nearest to mu_E in the 2-norm."""

    weights: FloatArray
    """``[K]`` lambda: probabilities of the policies, sum 1."""
    mu: FloatArray
    """``[d]`` feature expectation of the mixture."""
    distance: float
    """||mu_E - mu||."""


def closest_mixture(mus: FloatArray, mu_expert: FloatArray) -> Mixture:
    """Solve min ||mu_E - sum_i lambda_i mu_i|| over lambda >= 0 with sum 1, mus ``[K, d]`` (paper, section 4.3).

    Non-negative least squares solves it exactly: with V = (mus - mu_E)' scaled to columns of length at most 1, u
    minimises ||V u||^2 + (sum(u) - 1)^2. For u = c lambda and q = ||V lambda||^2 the best c leaves q / (1 + q), which
    rises with q, so that u / sum(u) minimises q itself.

    Raises:
        ValueError: shapes do not match, or a number is not finite.
    """
    mus, mu_expert = np.asarray(mus, dtype=np.float64), np.asarray(mu_expert, dtype=np.float64)
    if mus.ndim != 2 or len(mus) == 0 or mu_expert.shape != mus.shape[1:]:
        raise ValueError(f"mus must be [K, d] with mu_expert [d], got {mus.shape} and {mu_expert.shape}")
    if not (np.isfinite(mus).all() and np.isfinite(mu_expert).all()):
        raise ValueError("mus and mu_expert must be finite")
    gaps = mus - mu_expert
    scale = float(np.abs(gaps).max()) or 1.0
    u, _ = nnls(np.vstack([(gaps / scale).T, np.ones(len(mus))]), np.append(np.zeros(mus.shape[1]), 1.0))
    weights = u / u.sum()
    weights[weights < NEGLIGIBLE] = 0.0
    weights /= weights.sum()
    return Mixture(weights, weights @ mus, float(np.linalg.norm(weights @ gaps)))


class MixturePolicy:
    """Draws one policy per episode and follows it to the episode's end.

    Averaging the policies' actions in every step would give another feature expectation. Every member sees all rows
    and keeps its memory, whichever of them acts. Which member acts is drawn even when ``deterministic`` is asked for:
    that word reaches the members only.

    The memory is ``(member [n], counts [M], arrays of member 0, arrays of member 1, ...)``, where counts says how
    many arrays belong to each member, -1 standing for a member without memory.

    Args:
        policies: the members.
        weights: ``[M]`` their probabilities; members of weight 0 are left out.
        rng: draws the members.

    Raises:
        ValueError: numbers of policies and weights differ, or the weights are not probabilities.
    """

    def __init__(self, policies: Sequence[Policy], weights: npt.ArrayLike, rng: np.random.Generator) -> None:
        shares = np.asarray(weights, dtype=np.float64)
        if shares.shape != (len(policies),) or not (shares >= 0).all() or abs(shares.sum() - 1) > 1e-9:
            raise ValueError(f"{len(policies)} policies need as many weights of sum 1, none negative, got {weights!r}")
        self.policies = tuple(policy for policy, share in zip(policies, shares, strict=True) if share > 0)
        self.weights: FloatArray = shares[shares > 0] / shares.sum()
        self._rng = rng

    def predict(
        self,
        observation: Any,
        state: tuple[npt.NDArray[Any], ...] | None = None,
        episode_start: npt.NDArray[Any] | None = None,
        deterministic: bool = False,
    ) -> tuple[npt.NDArray[Any], tuple[npt.NDArray[Any], ...] | None]:
        """One action per row of ``observation [n, d + A]``, by the member that was drawn for the row's episode."""
        n = len(observation)
        begins: BoolArray = np.zeros(n, dtype=np.bool_) if episode_start is None else np.asarray(episode_start) > 0
        if state is None:
            begins = np.ones(n, dtype=np.bool_)
        member = np.zeros(n, dtype=np.int64) if state is None else state[0].copy()
        memories = [None for _ in self.policies] if state is None else _unpack(state)
        member[begins] = self._rng.choice(len(self.policies), size=int(begins.sum()), p=self.weights)
        answers = [
            policy.predict(observation, memory, begins, deterministic)
            for policy, memory in zip(self.policies, memories, strict=True)
        ]
        chosen = np.stack([np.asarray(actions, dtype=np.int64) for actions, _ in answers])
        memories = [memory for _, memory in answers]
        counts = np.array([-1 if memory is None else len(memory) for memory in memories], dtype=np.int64)
        packed = (member, counts, *(array for memory in memories for array in memory or ()))
        return chosen[member, np.arange(n)], packed


def _unpack(state: tuple[npt.NDArray[Any], ...]) -> list[_Memory]:
    memories: list[_Memory] = []
    position = 2
    for count in state[1]:
        memories.append(None if count < 0 else state[position : position + count])
        position += max(int(count), 0)
    return memories
