"""The outcome model's options, the same for every command that fits one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from irl.settings import FitConfig

Model = Literal["ar", "crn", "rmsn", "mb_h", "mb_x"]


@dataclass(frozen=True)
class ModelArguments:
    """Which outcome model is fitted, and how many of it."""

    model: Model | None = None
    """Outcome model: linear law, or a network that corrects it (default: crn; with --quick: ar)."""
    model_config: Path | None = None
    """The tuning.json of cirl tune: its model, with the settings that were found."""
    members: int = 1
    """Outcome models that are fitted. Intervals hold what they differ in; each takes a run's time once more."""
    bootstrap: bool = False
    """Fit each of the members to patients drawn with replacement."""
    relative: tuple[str, ...] = ()
    """Features, never negative, that change in proportion to their size (networks only)."""

    def put_into(self, config: FitConfig) -> FitConfig:
        """The configuration with these options.

        Raises:
            ValueError: two options contradict each other.
        """
        if self.bootstrap and self.members == 1:
            raise ValueError("--bootstrap draws patients anew for each of several models; give --members 5, say")
        model, outcome = self.model or config.model, config.outcome
        if self.model_config is not None:
            from cirl_gym.outcome_models.tuned import read_tuned

            kind, outcome = read_tuned(self.model_config)
            if self.model not in (None, kind):
                raise ValueError(f"{self.model_config} holds settings of {kind!r}, --model asks for {self.model!r}")
            model = kind
        if self.relative and model == "ar":
            raise ValueError("--relative needs a network: --model crn, rmsn, mb_h or mb_x")
        outcome = replace(
            outcome, members=self.members, bootstrap=self.bootstrap, relative=self.relative or outcome.relative
        )
        return replace(config, model=model, outcome=outcome)


AS_USUAL = ModelArguments()
