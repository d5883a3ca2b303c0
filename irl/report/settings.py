"""What was asked of a run, in words: the few settings that a person chose or should know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from irl.report.section import MINUS, Rows
from irl.result.result import Result

_MODELS = {
    "ar": "linear autoregression (ar)",
    "crn": "counterfactual recurrent network (crn)",
    "rmsn": "recurrent marginal structural network (rmsn)",
    "mb_h": "recurrent network (mb_h)",
    "mb_x": "network of the last observation (mb_x)",
}


def settings_rows(result: Result) -> Rows:
    """Name and value of what is known; a setting that was not made is left out."""
    config = result.config
    fit: Mapping[str, Any] = config.get("fit") or {}
    columns: Mapping[str, Any] = config.get("columns") or {}
    names = {"id": "id of a stay", "group": "patient", "time": "time", "static": "the same in all rows of a stay"}
    rows = {f"column: {said}": _listed(columns.get(name)) for name, said in names.items()}
    rows["columns: observed"] = _listed(columns.get("features"))
    rows["outcomes weighed"] = _listed(result.features)
    signs = config.get("signs") or {}
    if not isinstance(signs, Mapping):
        signs = dict(zip(result.features, signs, strict=True))
    known = {1: "higher is better", -1: "lower is better"}
    rows["known signs"] = "; ".join(f"{name}: {known[int(sign)]}" for name, sign in signs.items() if sign in known)
    if not rows["known signs"]:
        rows["known signs"] = "none"
    rows["what is known of effects"] = _listed(config.get("effects"))
    if (weights := config.get("weights")) is not None:
        rows["weights of the simulated experts"] = ", ".join(f"{w:g}".replace("-", MINUS) for w in weights)
        rows["kappa of the simulated experts"] = f"{config.get('kappa', 0):g}"
    gamma = fit.get("gamma") if result.gammas is None else result.gammas.chosen
    rows["discount factor"] = "" if gamma is None else f"{gamma:g}"
    rows["actions that are looked ahead, at most"] = str(fit.get("horizon") or "")
    rows["outcome model"] = _MODELS.get(str(fit.get("model", "")), str(fit.get("model", "")))
    rows["habits may depend on"] = _listed(fit.get("habit"))
    folds = "" if result.likelihood is None or not result.likelihood.folds else f"{result.likelihood.folds}"
    rows["parts of the cross-validation"] = folds
    rows["rules of what is forbidden"] = _listed(fit.get("forbid"))
    rows["rounds of the search, at most"] = str(fit.get("rounds", ""))
    rows["seed"] = str(result.seed)
    return [[name, value] for name, value in rows.items() if value]


def _listed(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else ", ".join(map(str, value))
