"""What an agent draws: exploring for stretches of steps, as different histories teach more than many alike."""

from __future__ import annotations

import numpy as np

from cirl_gym.types import BoolArray, FloatArray, IntArray


class StretchExplorer:
    """Epsilon-greedy exploration, one coin per row, that can last for several steps.

    With ``stretch = 1`` it is the usual one: a coin at every step, and a random action drawn uniformly. Otherwise the
    coin is tossed at the beginning of an episode and then with probability 1 / stretch at every step, and until the
    next toss a row explores or does not. Every stretch of exploring draws the chances of its actions anew, from the
    uniform distribution over all such chances: there are stretches of hardly anything but one action, which
    independent coins would not produce in a lifetime. Epsilon stays the share of steps that explore.

    Args:
        n: rows.
        n_actions: A.
        stretch: mean number of steps from toss to toss, at least 1.
        rng: draws everything.

    Raises:
        ValueError: ``stretch`` is below 1.
    """

    def __init__(self, n: int, n_actions: int, stretch: float, rng: np.random.Generator) -> None:
        if not stretch >= 1:
            raise ValueError(f"exploration_stretch must be at least 1, got {stretch}")
        self.stretch, self.rng = stretch, rng
        self._exploring: BoolArray = np.zeros(n, dtype=np.bool_)
        self._chances: FloatArray = np.full((n, n_actions), 1.0 / n_actions)

    def choose(self, greedy: IntArray, starts: BoolArray, epsilon: float, allowed: BoolArray | None) -> IntArray:
        """Actions ``[n]`` (from 0).

        Args:
            greedy: ``[n]`` what is taken by a row that does not explore.
            starts: ``[n]`` where an episode begins.
            epsilon: chance that a toss says to explore.
            allowed: ``[n, A]``; None: all actions.
        """
        toss = starts | (self.rng.random(len(greedy)) < 1.0 / self.stretch)
        self._exploring = np.where(toss, self.rng.random(len(greedy)) < epsilon, self._exploring)
        if self.stretch > 1:
            drawn = self.rng.dirichlet(np.ones(self._chances.shape[1]), size=len(greedy))
            self._chances = np.where(toss[:, None], drawn, self._chances)
        return np.where(self._exploring, draw_actions(self._chances, allowed, self.rng), greedy)


def draw_actions(chances: FloatArray, allowed: BoolArray | None, rng: np.random.Generator) -> IntArray:
    """One action (from 0) per row of chances ``[n, A]``, among the allowed ones ``[n, A]`` only."""
    # The largest of logarithm plus Gumbel noise is a draw; a chance of 0 is kept possible where nothing else is.
    score = np.log(np.maximum(chances, 1e-30)) + rng.gumbel(size=chances.shape)
    if allowed is not None:
        score = np.where(allowed, score, -np.inf)
    drawn: IntArray = score.argmax(axis=1)
    return drawn


def epsilon_greedy(
    greedy: IntArray, epsilon: float, n_actions: int, allowed: BoolArray | None, rng: np.random.Generator
) -> IntArray:
    """Actions ``[n]`` (from 0): every row tosses its own coin, and draws uniformly if it says so."""
    explores = rng.random(len(greedy)) < epsilon
    return np.where(explores, draw_actions(np.ones((len(greedy), n_actions)), allowed, rng), greedy)


def generators(seed: int | None) -> dict[str, np.random.Generator]:
    """An agent's generators, one per purpose, so that drawing for one does not move another."""
    names = ("explore", "replay", "predict")
    sequences = np.random.SeedSequence(seed).spawn(len(names))
    return {name: np.random.default_rng(one) for name, one in zip(names, sequences, strict=True)}
