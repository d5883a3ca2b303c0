"""The one training loop of every network in the project: whole episodes, early stopping, same seed same bytes.

A training that was killed goes on from its last epoch and ends in the same weights, to the byte.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from cirl_gym.files import loading, parsed_json, read_arrays, write_arrays
from cirl_gym.outcome_models.network_files import (
    Arrays,
    load_module_arrays,
    load_optimiser_arrays,
    module_arrays,
    optimiser_arrays,
    part,
    prefixed,
)

Schedule = Literal["constant", "cosine"]
Progress = Callable[[int, int], None]
"""Called with (epochs done, epochs planned)."""
MOST = 10_000
"""Episodes that a network is trained on in one epoch, at most: of more, as many are drawn anew for each epoch. What
training needs is steps, and after every epoch it is judged."""
ENOUGH_TO_JUDGE = 50_000
"""Decisions of the validation episodes by which what is learnt is judged, at most."""
_MOMENTS = "optimiser.{}/"


@dataclass(frozen=True)
class History:
    """What happened in training."""

    training: tuple[float, ...]
    """Mean training loss of every epoch."""
    validation: tuple[float, ...]
    """Validation loss before the first epoch and after every epoch: one number more than ``training``."""
    best_epoch: int
    """The epoch whose weights the network has; 0: none was better than the start."""

    @property
    def epochs(self) -> int:
        """Epochs that were run."""
        return len(self.training)


def check_settings(config: object, names: str, must_be: str, holds: Callable[[Any], bool]) -> None:
    """Raise ValueError where one of the settings of these names is not what it must be; the message names it."""
    for name in names.split():
        value = getattr(config, name)
        if not holds(value):
            raise ValueError(f"{type(config).__name__}.{name} must be {must_be}, got {value!r}")


@dataclass(frozen=True)
class TrainingConfig:
    """How a network is trained.

    Raises:
        ValueError: a number is out of its range; the message names it.
    """

    epochs: int = 60
    """Largest number of passes over the training episodes, or over :data:`MOST` of them."""
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
    schedule: Schedule = "constant"
    """Of the learning rate: as it is, or falling to 0 over the planned epochs as half a cosine."""
    device: str = "cpu"
    """Where to train, "cpu" or "cuda"; the trained network is on the CPU."""

    def __post_init__(self) -> None:
        check_settings(self, "epochs batch_size fewest_steps patience", "at least 1", lambda value: value >= 1)
        check_settings(self, "learning_rate clip_norm", "positive and finite", lambda value: 0 < value < math.inf)
        check_settings(self, "weight_decay", "non-negative and finite", lambda value: 0 <= value < math.inf)
        check_settings(self, "schedule", "'constant' or 'cosine'", get_args(Schedule).__contains__)
        if torch.device(self.device).type == "cuda" and not torch.cuda.is_available():
            raise ValueError("TrainingConfig.device is 'cuda', but torch finds no such device here")

    def rate(self, epoch: int) -> float:
        """Learning rate in an epoch, counted from 1."""
        if self.schedule == "constant":
            return self.learning_rate
        return 0.5 * self.learning_rate * (1 + math.cos(math.pi * (epoch - 1) / self.epochs))


def network_training() -> TrainingConfig:
    """What the recurrent outcome models are trained with, unless told otherwise.

    Small batches at a high rate that falls to 0 predict much better in the same time than a constant low rate.
    """
    return TrainingConfig(batch_size=64, learning_rate=0.01, schedule="cosine")


@dataclass(frozen=True)
class Watch:
    """Who looks at a training, and where it is stored while it runs. Nothing here changes its outcome."""

    on_epoch: Callable[[str, int, float], None] | None = None
    """Called with (name of the network, epoch, validation loss) after every epoch; what it raises ends the training."""
    checkpoints: Path | None = None
    """Folder for the state after every epoch. A training that finds its own state there goes on from it."""
    log: Path | None = None
    """Folder for TensorBoard (an ImportError says what to install): both losses by epoch."""

    def within(self, name: str) -> Watch:
        """The same for a part of the work, in folders of its name."""
        checkpoints, log = (None if folder is None else folder / name for folder in (self.checkpoints, self.log))
        return Watch(self.on_epoch, checkpoints, log)


class NotFiniteError(ValueError):
    """A loss or a gradient became infinite or not a number."""


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Torch's global generators seeded inside, as they were before outside.

    Layers draw their first weights, and dropout its masks, from them only.
    """
    accelerators = [torch.device(device)] if torch.device(device).type == "cuda" else []
    with torch.random.fork_rng(devices=accelerators):
        # Only those that are restored: torch.manual_seed would also touch other accelerators.
        torch.default_generator.manual_seed(seed)
        for accelerator in accelerators:
            with torch.cuda.device(accelerator):
                torch.cuda.manual_seed(seed)
        yield


def train_network(
    network: nn.Module,
    loss: Callable[[Tensor, float], Tensor],
    validation_loss: Callable[[], float],
    n_episodes: int,
    config: TrainingConfig,
    seed: int,
    progress: Progress | None = None,
    *,
    name: str = "network",
    watch: Watch | None = None,
) -> History:
    """Train in place and leave the network on the CPU, in eval mode, with the weights of its best epoch.

    Args:
        network: layers.
        loss: of the training episodes whose numbers ``[B]`` it is given, on the configured device; its second argument
            is the share of the planned steps that is done, in [0, 1).
        validation_loss: called in eval mode without gradients.
        n_episodes: how many there are to train on.
        config: how.
        seed: of the order of episodes and of dropout.
        progress: called after every epoch.
        name: of the network, in the watcher's folders.
        watch: who looks, and where the training is stored.

    Raises:
        NotFiniteError: a loss or gradient is not finite; the message names the step, the best weights are restored.
        ValueError: a checkpoint of this name is damaged or of another training.
    """
    watch = watch or Watch()
    training = _Training(network, loss, validation_loss, n_episodes, config, seed)
    path = watch.checkpoints / f"{name}.npz" if watch.checkpoints else None
    with seeded(seed, config.device), _scalars(watch.log, name) as scalars:
        if path and path.exists():
            training.read(path)
        while not training.over:
            try:
                training.epoch()
            except NotFiniteError as error:
                training.end()
                good = f"; the last good checkpoint is {path}" if path and path.exists() else ""
                raise NotFiniteError(f"{error}; the weights of epoch {training.best} are kept{good}") from error
            if path:
                training.write(path)
            done, losses = len(training.losses), (training.losses[-1], training.validation[-1])
            scalars(*losses, done)
            if progress is not None:
                progress(done, config.epochs)
            if watch.on_epoch is not None:
                watch.on_epoch(name, done, losses[1])
    training.end()
    if progress is not None:
        progress(config.epochs, config.epochs)
    return History(tuple(training.losses), tuple(training.validation), training.best)


@contextmanager
def _scalars(folder: Path | None, name: str) -> Iterator[Callable[[float, float, int], None]]:
    """Something that takes (training loss, validation loss, epoch): TensorBoard, or nobody."""
    if folder is None:
        yield lambda _training, _validation, _epoch: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError('a TensorBoard log needs: pip install "cirl-gym[tensorboard]"') from error
    with SummaryWriter(str(folder / name)) as writer:

        def write(training: float, validation: float, epoch: int) -> None:
            writer.add_scalar("loss/training", training, epoch)
            writer.add_scalar("loss/validation", validation, epoch)

        yield write


@dataclass(eq=False)
class _Training:
    """A training under way, of the arguments of :func:`train_network`, and what happened so far."""

    network: nn.Module
    loss: Callable[[Tensor, float], Tensor]
    validation_loss: Callable[[], float]
    n_episodes: int
    config: TrainingConfig
    seed: int

    def __post_init__(self) -> None:
        config = self.config
        self.network.to(config.device)
        self.cuda = torch.device(config.device).type == "cuda"
        self.optimiser = torch.optim.AdamW(
            self.network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay
        )
        self.shuffler = torch.Generator().manual_seed(self.seed)
        self.losses: list[float] = []
        self.validation = [self._validate(0)]
        """Validation loss before the first epoch and after every epoch."""
        self.best, self.best_weights = 0, module_arrays(self.network)
        """Epoch of the lowest validation loss, and the weights after it."""
        # The first validation loss stands for the data and the first weights; another training's checkpoint is refused.
        start = self.validation[0]
        self.identity = {"config": asdict(config), "seed": self.seed, "episodes": self.n_episodes, "start": start}

    @property
    def over(self) -> bool:
        """Whether every epoch is done, or too many of them brought nothing."""
        done = len(self.losses)
        return done >= self.config.epochs or done - self.best >= self.config.patience

    def epoch(self) -> None:
        """One pass in train mode, one look at the validation episodes, and the best weights so far."""
        config, epoch = self.config, len(self.losses) + 1
        self.optimiser.param_groups[0]["lr"] = config.rate(epoch)
        batch_size = min(config.batch_size, max(self.n_episodes // config.fewest_steps, 1))
        order = torch.randperm(self.n_episodes, generator=self.shuffler)[:MOST].to(config.device)
        batches = torch.split(order, batch_size)
        self.network.train()
        total = 0.0
        for step, rows in enumerate(batches, start=(epoch - 1) * len(batches)):
            value = self.loss(rows, step / (config.epochs * len(batches)))
            self.optimiser.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(self.network.parameters(), config.clip_norm)
            if not (math.isfinite(value.item()) and math.isfinite(norm.item())):
                raise NotFiniteError(
                    f"training stopped at step {step + 1} (epoch {epoch}): the loss is {value.item()} and its "
                    f"gradient's norm {norm.item()}"
                )
            self.optimiser.step()
            total += value.item() * len(rows)
        validation = self._validate(epoch)
        self.losses.append(total / len(order))
        self.validation.append(validation)
        if validation < self.validation[self.best]:
            self.best, self.best_weights = epoch, module_arrays(self.network)

    def end(self) -> None:
        """Leave the network on the CPU, in eval mode, with the best weights."""
        load_module_arrays(self.network.cpu(), self.best_weights)
        self.network.eval()

    def write(self, path: Path) -> None:
        """Write all of it whole, without pickle; an older checkpoint is replaced."""
        what = {"identity": self.identity, "training": self.losses, "validation": self.validation, "best": self.best}
        arrays: Arrays = {"state": np.array(json.dumps(what, allow_nan=False))}
        arrays |= prefixed("network/", module_arrays(self.network)) | prefixed("kept/", self.best_weights)
        arrays["generator/shuffler"] = self.shuffler.get_state().numpy()
        arrays["generator/torch"] = torch.default_generator.get_state().numpy()
        if self.cuda:
            arrays["generator/cuda"] = torch.cuda.get_rng_state(self.config.device).numpy()
        write_arrays(path, arrays | optimiser_arrays(self.optimiser, _MOMENTS))

    def read(self, path: Path) -> None:
        """Put the training back to where :meth:`write` left it.

        Raises:
            ValueError: the file is damaged, or of another training; the message names it.
        """
        arrays = read_arrays(path)
        with loading(path, "a checkpoint that can be gone on with"):
            found = parsed_json(str(arrays.pop("state")))
            if found["identity"] != json.loads(json.dumps(self.identity)):
                raise ValueError("it is of a training with other data, settings or seed; remove it to begin anew")
            load_module_arrays(self.network, part("network/", arrays))
            self.losses, self.validation, self.best = found["training"], found["validation"], found["best"]
            self.best_weights = part("kept/", arrays)
            states = {name: torch.from_numpy(array) for name, array in part("generator/", arrays).items()}
            self.shuffler.set_state(states["shuffler"])
            torch.default_generator.set_state(states["torch"])
            if self.cuda:
                torch.cuda.set_rng_state(states["cuda"], self.config.device)
            load_optimiser_arrays(self.optimiser, arrays, _MOMENTS)

    @torch.no_grad()
    def _validate(self, epoch: int) -> float:
        self.network.eval()
        value = self.validation_loss()
        if not math.isfinite(value):
            raise NotFiniteError(f"training stopped after epoch {epoch}: the validation loss is {value}")
        return value
