"""One table of methods: what each says of the weights, and what its policy is worth (paper, section 5)."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import field

from irl.result.chances import ChanceScores
from irl.result.codec import Document, Interval, NotNegative, Numbers, Record, Share, require

METHODS = {
    "cirl": "CIRL",
    "oracle": "oracle control",
    "mb_h": "MB(h)-IRL",
    "mb_x": "MB(x)-IRL",
    "ar": "linear law",
    "crn": "CRN",
    "rmsn": "RMSN",
    "dsfn": "DSFN",
    "dsfn_h": "DSFN(h)",
    "cloning": "behaviour cloning",
    "avril": "AVRIL",
    "iq_learn": "IQ-Learn",
}
"""What can be asked for, and how it is called. "cirl" is the run itself, "oracle" has the simulator in place of its
outcome model, and "mb_h", "mb_x", "ar", "crn" and "rmsn" one of that kind: all are the same inference. DSFN and
DSFN(h) have no outcome model, and cloning asks for no preferences. AVRIL and IQ-Learn have a reward of their own, from
the batch alone, of which weights are read afterwards."""
PAPER = ("cirl", "oracle", "mb_h", "mb_x", "dsfn", "dsfn_h", "cloning")
"""The paper's, the control and the copy: what is compared unless other methods are named."""
REFERENCES = {
    "expert": "experts, no mistakes",
    "boosting": "gradient boosting",
    "table": "last-action table",
    "majority": "most frequent action",
    "repeat": "last action again",
}
"""Rows that every table has beside the methods; the first only where the experts are simulated."""
MEASURES = ("scores", "mu_gap", "accuracy", "return_", "return_error", "behind", "behind_error")
"""Fields of a row that :mod:`irl.baselines.judge` measures."""


def chosen_methods(asked: Sequence[str], simulated: bool) -> tuple[str, ...]:
    """The methods asked for, names among :data:`METHODS`, or the paper's.

    Raises:
        ValueError: a name is none of a method, there twice, or "oracle" without a simulator.
    """
    for name in asked:
        if name not in METHODS:
            raise ValueError(f"--methods: {name!r} is not a method; the methods are {', '.join(METHODS)}")
    if len(set(asked)) < len(asked):
        raise ValueError(f"--methods: a name is there twice: {', '.join(asked)}")
    if "oracle" in asked and not simulated:
        raise ValueError("--methods: oracle asks the simulator, and this run is one of a table")
    return tuple(asked) or tuple(name for name in PAPER if simulated or name != "oracle")


class Row(Record, frozen=True, kw_only=True):
    """What one method says, and what its policy is worth. What it has not, or what is not known, is None.

    Raises:
        ValueError: a field has another type, a number is not finite or out of its range, weights are beyond 1,
            or an error stands beside findings.
    """

    method: str
    """A name of :data:`METHODS` or :data:`REFERENCES`."""
    model: str | None = None
    """Kind of the outcome model that remained ("ar" where its networks were dropped for the linear law), "simulator" in
    the control; None: it knows none."""
    memory: bool = False
    """Whether its policy sees more of a history than the current observation (and the number of the step)."""
    weights: Numbers | None = None
    """``[d]`` medians of the posterior, or what a method found, L1 norm 1."""
    intervals: dict[str, Interval] | None = None
    """90 % interval of each weight."""
    weight_error: NotNegative | None = None
    """Largest distance of a weight from the true one."""
    right_order: bool | None = None
    """Whether the weights rank the features as the true ones do."""
    reward_explained: Share | None = None
    """Of AVRIL and IQ-Learn: share of the variance of its own reward, along the training episodes, that the linear
    function of the outcomes explains whose weights these are; None: the method asks for weights, or has no reward."""
    mu_gap: NotNegative | None = None
    """Distance of the policy's feature expectation from the experts', both in the world that the table names."""
    accuracy: Share | None = None
    """Share of held-out decisions that the policy meets (paper, appendix H)."""
    scores: ChanceScores | None = None
    """How well it foresees held-out decisions; None: it gives no chances. Of the experts those of their own chances, of
    the most frequent action those of the actions' frequencies."""
    return_: float | None = None
    """Mean undiscounted return in the simulator under the true weights."""
    return_error: NotNegative | None = None
    """Its standard error; most of it is how patients differ, which is the same for every row."""
    behind: float | None = None
    """By how much the experts' policy earns more, without their mistakes, with the same patients and noise."""
    behind_error: NotNegative | None = None
    seconds: NotNegative | None = None
    """Time of the inference, without that of measuring."""
    note: str = ""
    """How its loop ended, in plain words."""
    error: str | None = None

    def check(self) -> None:
        """The method is one, weights are within 1, and no error stands beside findings."""
        known, where = {**METHODS, **REFERENCES}, f"row {self.method}"
        require(self.method in known, f"row: method must be one of {', '.join(known)}, got {self.method!r}")
        sizes = [abs(weight) for weight in self.weights or ()]
        require(not sizes or 0 < max(sizes) <= 1, f"{where}: weights must lie between -1 and 1, not all 0")
        found = [name for name in (*MEASURES, "weights", "intervals") if getattr(self, name) is not None]
        require(self.error is None or not found, f"{where}: it failed, and yet it has {', '.join(found)}")

    @property
    def title(self) -> str:
        """What the method is called."""
        return {**METHODS, **REFERENCES}[self.method]


class Baselines(Document, frozen=True, kw_only=True):
    """``baselines.json`` (beside ``schema``): one row per method, all from the same episodes and with the same seed.

    Raises:
        ValueError: a method has two rows, or a row is of other features.
    """

    run: str
    features: tuple[str, ...]
    true_weights: Numbers | None
    """``[d]`` of simulated experts, L1 norm 1."""
    ceiling: Share | None
    """Accuracy that nobody can exceed, since the experts draw their actions; None where that is not known."""
    gap_in: str
    """The world in which feature expectations are compared."""
    episodes: dict[str, int]
    """How many there were to learn from, to choose by and held out; and patients of a return, if simulated."""
    seed: int
    quick: bool
    cross_validated: dict[str, ChanceScores] = field(default_factory=dict)
    """How well the run's own accounts foresee the decisions of all patients, each by what was learnt from others (as in
    its ``likelihood``); empty where the run was judged by held-out episodes, as the rows are."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...]

    def check(self) -> None:
        """No method has two rows, and everything is about the same features."""
        names, d = [row.method for row in self.rows], len(self.features)
        require(len(set(names)) == len(names), f"baselines: a method has two rows: {', '.join(names)}")
        truth = self.true_weights
        require(truth is None or len(truth) == d, f"baselines: true_weights must be {d} numbers, got {truth}")
        for row in self.rows:
            of_all = row.intervals is None or set(row.intervals) == set(self.features)
            require((row.weights is None or len(row.weights) == d) and of_all, f"row {row.method}: not of {d} features")

    @property
    def failed(self) -> dict[str, str]:
        """What went wrong, by method."""
        return {row.method: row.error for row in self.rows if row.error is not None}
