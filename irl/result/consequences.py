"""What following a policy comes to in the world model: how long episodes last, what is done, and what follows.

All from the same first observations, so that what differs is the policy's doing. It answers three questions: whether
ending an episode is part of what the weights say, what every policy does, and what other weights would bring.
"""

from __future__ import annotations

from irl.result.codec import NotNegative, Numbers, Record, Share, Some, require

SHORTER = 0.05
"""A share of the length of predicted episodes by which others have to be shorter to be worth a sentence."""


class Followed(Record, frozen=True):
    """What following one policy comes to, on average."""

    length: NotNegative
    """Actions of an episode."""
    taken: tuple[Share, ...]
    """``[A]`` by action the share of all steps."""
    outcomes: Numbers
    """``[d]`` value of a step, raw units of the outcome."""


class OtherWeights(Record, frozen=True):
    """What the best policy of other weights comes to: one weight's share of all is another, the others keep theirs."""

    feature: str
    """Whose weight is another."""
    share: Share
    """Its size, of the sizes of all."""
    found: bool
    """Whether these are the weights that were found."""
    weights: Numbers
    """``[d]`` all of them; their sizes add up to 1."""
    followed: Followed


class Consequences(Record, frozen=True):
    """What every policy comes to, and what other weights would bring."""

    actions: tuple[str, ...]
    """Names of the A actions."""
    episodes: Some
    """How many were imagined for each of ``policies``."""
    observed: Followed
    """The experts' training episodes as they were seen."""
    policies: dict[str, Followed]
    """In the world model, by name: ``expert``, as they are predicted, with habits and errors; ``cirl``, the preferences
    alone; ``cloning``; ``always NAME``, every action."""
    step: float
    """What a step of the predicted experts is worth by the weights found, on average: where it is negative, an episode
    that ends earlier is worth more."""
    other_episodes: Some
    """How many were imagined for each of ``other_weights``."""
    other_weights: tuple[OtherWeights, ...]

    def check(self) -> None:
        """Everything is about the same actions and outcomes."""
        every = [self.observed, *self.policies.values(), *(one.followed for one in self.other_weights)]
        require({len(one.taken) for one in every} == {len(self.actions)}, "consequences: one share for each action")
        require(len({len(one.outcomes) for one in every}) == 1, "consequences: the same outcomes for all")
        require({"expert", "cirl"} <= set(self.policies), "consequences: policies must hold expert and cirl")

    @property
    def shorter(self) -> bool:
        """Whether ending early pays by the weights, and the preferences alone would end episodes earlier."""
        lengths = self.policies["cirl"].length, self.policies["expert"].length
        return self.step < 0 and lengths[0] < (1 - SHORTER) * lengths[1]

    @property
    def sentence(self) -> str:
        """What ending an episode is worth, in words."""
        alone, expert = self.policies["cirl"].length, self.policies["expert"].length
        lengths = (
            f"in the world model episodes last {alone:.1f} steps by the preferences alone and {expert:.1f} as the "
            "experts are predicted to act"
        )
        if self.step >= 0:
            return (
                f"By these weights a step is worth {self.step:+.3f} on average, so that ending early loses; {lengths}."
            )
        said = f"By these weights every further step costs {-self.step:.3f} on average; an episode that ends stops that"
        if self.shorter:
            return f"{said}, and the preferences alone would end episodes earlier: {lengths}."
        return f"{said}, but the preferences alone hardly end episodes earlier: {lengths}."
