"""What CIRLCounterfactual-v0 is made of: an outcome model, a batch, and how both are read."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from cirl_gym.action_rules import ActionRules
from cirl_gym.batch import Batch
from cirl_gym.features import FeatureMap
from cirl_gym.files import read_json
from cirl_gym.learned_reward import load_reward
from cirl_gym.outcome_models.masked import MaskedModel
from cirl_gym.ruled_cohort import rules_given
from cirl_gym.types import BoolArray, Float32Array, FloatArray, OutcomeModel

EndRule: TypeAlias = Callable[[Float32Array], BoolArray]
"""From observations ``[n, d]``, raw units, to ``[n]`` bool: the process ended."""


@dataclass(frozen=True)
class Source:
    """What a counterfactual process is made of.

    Raises:
        ValueError: model, batch and feature map are not of the same features and actions, or the end is unknown.
    """

    model: OutcomeModel
    batch: Batch
    feature_map: FeatureMap
    """Which of the batch's features are weighed, and how they are scaled."""
    weights: FloatArray
    """``[d]`` of the reward, one per outcome, where nobody asks for others."""
    end: Literal["learned", "never"] | EndRule = "learned"
    rules: ActionRules | None = None
    """Which actions are forbidden when; None: never one."""

    def __post_init__(self) -> None:
        for name, features in (("model", self.model.features), ("feature_map", self.feature_map.of)):
            if tuple(features) != self.batch.features:
                raise ValueError(
                    f"the features of {name} are {tuple(features)}, those of the batch {self.batch.features}"
                )
        if self.model.n_actions != self.batch.n_actions:
            raise ValueError(f"model knows {self.model.n_actions} actions, the batch {self.batch.n_actions}")
        if not callable(self.end) and self.end not in ("learned", "never"):
            raise ValueError(f"end must be 'learned', 'never' or a function, got {self.end!r}")

    @cached_property
    def observed_range(self) -> tuple[Float32Array, Float32Array]:
        """``[D]`` least and most of each feature in the batch, padding left out."""
        rows = self.batch.obs[self.batch.seen]
        return rows.min(axis=0), rows.max(axis=0)


PACKAGED = Path(__file__).parent / "packaged"
"""A run on simulated patients (examples/make_packaged_run.py)."""


def chosen_source(
    model: OutcomeModel | None,
    batch: Batch | None,
    run: str | os.PathLike[str] | None,
    feature_map: FeatureMap | None,
    end: Literal["learned", "never"] | EndRule,
    forbid: Sequence[str] | None = None,
) -> Source:
    """Model and batch, or a run's, or the packaged ones where nothing is given; rules are asked for, or theirs.

    Raises:
        ValueError: one of model and batch without the other, or a run beside them; the parts do not fit together; a
            rule cannot be read.
        FileNotFoundError: the run lacks a file.
    """
    if model is None and batch is None:
        folder = Path(PACKAGED if run is None else run)
        # Read with PyTorch, which an environment of one's own model may do without.
        from cirl_gym.outcome_models.store import load_model

        learned = load_reward(folder)
        batch = Batch.load(folder / "batch.npz")
        phi = feature_map or learned.among(batch.features).feature_map
        rules = rules_given(forbidden_in(folder) if forbid is None else forbid, batch.features, batch.action_names)
        return Source(load_model(folder / "outcome_model.npz"), batch, phi, learned.weights, end, rules)
    if run is not None:
        raise ValueError("CIRLCounterfactual-v0: give either run, or model and batch")
    if model is None or batch is None:
        missing = "model" if model is None else "batch"
        raise ValueError(f"CIRLCounterfactual-v0: model and batch belong together, {missing} is missing")
    phi = feature_map or FeatureMap.from_batch(batch)
    # Rules are the environment's: it asks the model within them.
    plain, own = (model.model, model.rules) if isinstance(model, MaskedModel) else (model, None)
    rules = own if forbid is None else rules_given(forbid, batch.features, batch.action_names)
    return Source(plain, batch, phi, np.zeros(len(phi.features)), end, rules)


def forbidden_in(run: str | os.PathLike[str]) -> tuple[str, ...]:
    """The rules of a run's settings (``fit.forbid``), as its ``result.json`` holds them; none where it names none.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: they are no list of texts; the message names the file.
    """
    path = Path(run) / "result.json"
    texts = read_json(path)["config"].get("fit", {}).get("forbid", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{path}: fit.forbid must be a list of rules, got {texts!r}")
    return tuple(texts)
