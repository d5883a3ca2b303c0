"""The one training loop of every network in the project: whole episodes, early stopping, same seed same bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

Progress = Callable[[int, int], None]
"""Called with (epochs done, epochs planned)."""


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained.

    Raises:
        ValueError: a number is out of its range; the message names it.
    """

    epochs: int = 60
    """Largest number of passes over the training episodes."""
    batch_size: int = 256
    """Episodes per gradient step, at most."""
    fewest_steps: int = 8
    """Gradient steps per epoch, at least (while every step has an episode): small tables take smaller batches."""
    learning_rate: float = 3e-3
    """Of Adam."""
    weight_decay: float = 0.0
    """Share of every weight taken away per step, times the learning rate (decoupled)."""
    clip_norm: float = 1.0
    """Largest norm of a gradient."""
    patience: int = 10
    """Epochs without a better validation loss before training stops."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "fewest_steps", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"TrainingConfig.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "clip_norm"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ValueError(f"TrainingConfig.{name} must be positive, got {getattr(self, name)}")
        if not (math.isfinite(self.weight_decay) and self.weight_decay >= 0):
            raise ValueError(f"TrainingConfig.weight_decay must not be negative, got {self.weight_decay}")


@dataclass(frozen=True)
class History:
    """What happened in training."""

    training: tuple[float, ...]
    """Mean training loss of every epoch."""
    validation: tuple[float, ...]
    """Validation loss before the first epoch and after every epoch: one number more than ``training``."""
    best_epoch: int
    """The epoch whose weights were kept; 0: none was better than the start."""

    @property
    def epochs(self) -> int:
        """Epochs that were run."""
        return len(self.training)


class NotFiniteError(ValueError):
    """A loss or a gradient became infinite or not a number."""


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's global generator seeded inside, as it was before outside.

    Layers draw their first weights, and dropout its masks, from that generator only.
    """
    with torch.random.fork_rng(devices=[]):
        # Only the CPU's generator: torch.manual_seed would also touch accelerators, whose state is not restored.
        torch.default_generator.manual_seed(seed)
        yield


def train_network(
    network: nn.Module,
    loss: Callable[[Tensor, float], Tensor],
    validation_loss: Callable[[], float],
    n_episodes: int,
    config: TrainingConfig,
    seed: int,
    progress: Progress | None = None,
) -> History:
    """Train in place and leave the network in eval mode with the weights of its best epoch.

    Args:
        network: what is trained.
        loss: of the training episodes whose numbers ``[B]`` it is given; the second argument is the share of the
            planned steps that is done, in [0, 1).
        validation_loss: called in eval mode without gradients.
        n_episodes: number of training episodes.
        config: how.
        seed: of the order of episodes and of dropout.
        progress: called after every epoch.

    Raises:
        NotFiniteError: a loss or gradient is not finite; the message (a ValueError's) names the step, and the best
            weights so far are restored.
    """
    shuffler = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay)
    batch_size = min(config.batch_size, max(n_episodes // config.fewest_steps, 1))
    planned = config.epochs * math.ceil(n_episodes / batch_size)
    training: list[float] = []
    validation = [_validate(network, validation_loss, 0)]
    best, kept = 0, _copy(network)
    with seeded(seed):
        for epoch in range(1, config.epochs + 1):
            batches = torch.split(torch.randperm(n_episodes, generator=shuffler), batch_size)
            try:
                training.append(_epoch(network, loss, optimiser, batches, planned, epoch, config.clip_norm))
                validation.append(_validate(network, validation_loss, epoch))
            except NotFiniteError as error:
                _restore(network, kept)
                raise NotFiniteError(f"{error}; the weights of epoch {best} are kept") from error
            if validation[-1] < validation[best]:
                best, kept = epoch, _copy(network)
            if progress is not None:
                progress(epoch, config.epochs)
            if epoch - best >= config.patience:
                break
    _restore(network, kept)
    if progress is not None and len(training) < config.epochs:
        progress(config.epochs, config.epochs)
    return History(tuple(training), tuple(validation), best)


def _epoch(
    network: nn.Module,
    loss: Callable[[Tensor, float], Tensor],
    optimiser: torch.optim.Optimizer,
    batches: Sequence[Tensor],
    planned: int,
    epoch: int,
    clip_norm: float,
) -> float:
    """One pass in train mode: the mean loss per episode."""
    network.train()
    total = 0.0
    for step, rows in enumerate(batches, start=(epoch - 1) * len(batches)):
        value = loss(rows, step / planned)
        optimiser.zero_grad()
        value.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(network.parameters(), clip_norm)
        if not (math.isfinite(value.item()) and math.isfinite(norm.item())):
            raise NotFiniteError(
                f"training stopped at step {step + 1} (epoch {epoch}): the loss is {value.item()} and its gradient's "
                f"norm {norm.item()}"
            )
        optimiser.step()
        total += value.item() * len(rows)
    return total / sum(len(rows) for rows in batches)


def _validate(network: nn.Module, validation_loss: Callable[[], float], epoch: int) -> float:
    network.eval()
    with torch.no_grad():
        value = validation_loss()
    if not math.isfinite(value):
        raise NotFiniteError(f"training stopped after epoch {epoch}: the validation loss is {value}")
    return value


def _copy(network: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in network.state_dict().items()}


def _restore(network: nn.Module, weights: dict[str, Tensor]) -> None:
    network.load_state_dict(weights)
    network.eval()
