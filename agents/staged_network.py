"""A small network per time step: in a finite-horizon problem what is left to come depends on how much time is left."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import nn

from cirl_gym.outcome_models.training import seeded
from cirl_gym.types import FloatArray

# Where outcomes scaled to [0, 1] lie on average, and how large the effect of one action is beside it: only the size
# of the first steps of training depends on these two.
_LEVEL, _DIFFERENCE = 0.3, 0.2


class StagedNetwork(nn.Module):
    """psi(h_t, a; w) for t = 0..T-1, one multi-layer perceptron per t; its d features are those that w weighs.

    A network's output is the average of phi over the time that is left: multiplied by the discounted number of steps
    left it becomes psi, so that every stage learns numbers of the same size. The level that all actions share and the
    differences between actions are scaled apart, since differences are much the smaller.
    """

    def __init__(
        self, n_inputs: int, n_features: int, n_actions: int, gamma: float, horizon: int, hidden: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.n_features, self.n_actions, self.hidden = n_features, n_actions, hidden
        self.steps_left: FloatArray = np.array([np.sum(gamma ** np.arange(horizon - t)) for t in range(horizon)])
        sizes = (n_inputs + n_features, *hidden, n_actions * n_features)
        # Layers draw their first weights from torch's global generator, which is not ours to move.
        with seeded(0):
            self.stages = nn.ModuleList([_perceptron(sizes) for _ in range(horizon)])

    def initialise(self, rng: np.random.Generator) -> None:
        """Draw every weight from ``rng``: normal with variance 1 / inputs; biases zero."""
        with torch.no_grad():
            for parameter in self.parameters():
                if parameter.ndim == 1:
                    parameter.zero_()
                else:
                    scale = parameter.shape[1] ** -0.5
                    drawn = scale * rng.standard_normal(parameter.shape, dtype=np.float32)
                    parameter.copy_(torch.from_numpy(drawn))

    def average(self, t: int, inputs: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Average phi still to come, ``[n, A, d]``, for standardised states ``[n, S]`` and weights ``[n, d]``."""
        # Weights of L1 norm 1 are about 1 / d each; the network takes them at the size of its other inputs.
        *hidden, last = self.stages[t].children()
        assert isinstance(last, nn.Linear)
        out = torch.cat([inputs, self.n_features * w], dim=1)
        for layer in hidden:
            out = layer(out)
        # The last layer is scaled and not what comes out of it: one product, and far fewer numbers than a batch has.
        out = nn.functional.linear(out, self._scaled(last.weight), _LEVEL + self._scaled(last.bias))
        return out.reshape(len(out), self.n_actions, self.n_features)

    def _scaled(self, parameter: torch.Tensor) -> torch.Tensor:
        """Parameters of the last layer: the level that all actions share as it is, differences times _DIFFERENCE."""
        by_action = parameter.reshape(self.n_actions, -1)
        return torch.lerp(by_action.mean(dim=0, keepdim=True), by_action, _DIFFERENCE).reshape(parameter.shape)

    def psi(self, t: int, inputs: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Successor features: discounted phi still to come, ``[n, A, d]``."""
        return self.average(t, inputs, w) * float(self.steps_left[t])


def _perceptron(sizes: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_inputs, n_outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(n_inputs, n_outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])
