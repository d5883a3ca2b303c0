"""The networks that guide searches for plans: one for each step that is left, and each made ready for many states."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from cirl_gym.outcome_models.networks import perceptron
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
            self.stages = nn.ModuleList([perceptron(sizes, nn.ReLU) for _ in range(horizon)])

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

    def joined(self, inputs: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """What a stage reads, ``[n, S + d]``, of standardised states ``[n, S]`` and weights ``[n, d]``."""
        # Weights of L1 norm 1 are about 1 / d each; the network takes them at the size of its other inputs.
        return torch.cat([inputs, self.n_features * w], dim=1)

    def outputs(self, average: torch.Tensor) -> torch.Tensor:
        """What a stage has to put out ``[n, A d]`` for averages of phi ``[n, A, d]``, where differences are large."""
        return _apart(average - _LEVEL, 1 / _DIFFERENCE).reshape(len(average), -1)

    def average(self, t: int, inputs: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Average phi still to come, ``[n, A, d]``, for standardised states ``[n, S]`` and weights ``[n, d]``."""
        out = self.stages[t](self.joined(inputs, w)).reshape(len(inputs), self.n_actions, self.n_features)
        return _LEVEL + _apart(out, _DIFFERENCE)

    def folded(self, t: int, mean: torch.Tensor, scale: torch.Tensor) -> FoldedStage:
        """The values of a stage, of states as they are before ``mean [S]`` and ``scale [S]`` standardise them."""
        *hidden, last = self.stages[t].children()
        size, shape, left = len(mean), (self.n_actions, self.n_features, -1), float(self.steps_left[t])
        assert isinstance(last, nn.Linear)
        weight, bias = hidden[0].parameters() if hidden else (torch.eye(last.in_features), torch.zeros(1))
        of_states = weight[:, :size] / scale
        return FoldedStage(
            of_states,
            weight[:, size:] * self.n_features,
            bias - of_states @ mean,
            hidden[1:],
            _apart(last.weight.reshape(1, *shape), _DIFFERENCE)[0].transpose(0, 1) * left,
            (_LEVEL + _apart(last.bias.reshape(1, *shape), _DIFFERENCE)).reshape(shape[:2]).T * left,
        )

    def psi(self, t: int, inputs: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Successor features: discounted phi still to come, ``[n, A, d]``."""
        return self.average(t, inputs, w) * float(self.steps_left[t])


def _apart(values: torch.Tensor, factor: float) -> torch.Tensor:
    """Numbers of A actions ``[n, A, ..]``: their mean as it is, and ``factor`` times what they differ from it."""
    return torch.lerp(values.mean(dim=1, keepdim=True), values, factor)


class FoldedStage(NamedTuple):
    """A stage that answers Q = w . psi and not psi, made ready for many states.

    What standardises states is folded into the first layer; the weights of a row are folded into the first layer's bias
    and into the last layer, which then has A outputs and not A d: where plans are many that is far less work than psi.
    """

    of_states: torch.Tensor
    """``[H, S]`` the first layer, of raw states."""
    of_weights: torch.Tensor
    """``[H, d]`` the first layer, of weights."""
    bias: torch.Tensor
    """``[H]`` of the first layer."""
    layers: list[nn.Module]
    """What comes between the first layer and the last."""
    by_outcome: torch.Tensor
    """``[d, A, H]`` the last layer."""
    level: torch.Tensor
    """``[d, A]`` its bias."""

    def __call__(self, states: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        """Q(h, a; w) ``[n, P, A]`` for P raw states a row ``[n, P, S]`` and weights ``[n, d]``."""
        (n, plans, size), (d, n_actions, _) = states.shape, self.by_outcome.shape
        out = nn.functional.linear(states.reshape(-1, size), self.of_states)
        out.reshape(n, plans, -1).add_(nn.functional.linear(w, self.of_weights, self.bias)[:, None])
        for layer in self.layers:
            out = torch.relu_(out) if isinstance(layer, nn.ReLU) else layer(out)
        last = (w @ self.by_outcome.reshape(d, -1)).reshape(n, n_actions, -1)
        # Values of an action stand next to each other: searches step along the plans.
        return torch.baddbmm((w @ self.level)[..., None], last, out.reshape(n, plans, -1).mT).mT
