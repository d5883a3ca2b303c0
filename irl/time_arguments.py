"""Options of every command that fits, about time: windows of steps, and the choice of the discount factor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from irl.settings import FitConfig


@dataclass(frozen=True)
class TimeArguments:
    """Whether preferences change with time, and how far ahead the experts look."""

    windows: tuple[int, ...] = ()
    """First steps of windows of time, as in --windows 0 6 12: the weights of each are found from its decisions alone,
    and compared with those of the one before. The last window goes on to the end. Default: no windows."""
    choose_gamma: tuple[float, ...] = ()
    """Two or more discount factors, rising, as in --choose-gamma 0.5 0.9 0.99: each is solved, and the one under which
    held-out decisions are most likely is taken instead of --gamma (the largest within one standard error of it)."""

    def put_into(self, config: FitConfig) -> FitConfig:
        """The configuration with these options.

        Raises:
            ValueError: an option is out of its range.
        """
        return replace(config, windows=self.windows, choose_gamma=self.choose_gamma)


AT_ALL_TIMES = TimeArguments()
