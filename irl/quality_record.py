"""Whether planning in the world model keeps what it promises, as ``result.json`` keeps it."""

from __future__ import annotations

from dataclasses import dataclass, fields

from irl.records import check_types, require


@dataclass(frozen=True)
class Quality:
    """Feature expectations read off plans against those that policies reach in the same world model.

    Differences are shares of an outcome's full discounted range, the sum of gamma^t over the horizon.
    """

    weights: int
    """How many weights were looked at: some from the loop and the posterior, the others from everywhere."""
    expected: float
    """Largest difference of any outcome's mu for any weights, along the world model's expected course."""
    sampled: float
    """The same with the world model's noise. It is large, and harmless, where two policies are equally good."""
    noise: float
    """Largest standard error of a mu in ``sampled``: the part of chance."""
    systematic: float
    """Largest mean difference of an outcome's mu over all weights that neither chance nor ties explain."""
    value: float
    """Largest size, for any weights, of the difference in value w . mu that chance does not explain."""
    promised: float
    """Largest value w . mu, for any weights, that plans promise and policies do not reach with noise; negative where
    they always reach more."""
    search_gain: float
    """Value that the search adds to the network's own choices, on average over the weights: large where the network
    knows little."""
    limit: float | None
    """What stops a run if ``systematic`` or ``value`` is above it; None: nothing does."""

    def __post_init__(self) -> None:
        check_types(self, "quality")
        require(self.weights >= 1, f"quality.weights must be at least 1, got {self.weights}")
        for field in fields(self):
            value = getattr(self, field.name)
            free = field.name in ("promised", "search_gain")
            require(value is None or free or value >= 0, f"quality.{field.name} must not be negative, got {value}")
        if self.limit is not None:
            above = max(self.systematic, self.value) > self.limit
            require(not above, "quality: systematic or value is above the limit, which stops a run")
