"""The folder of a run: what ``cirl demo`` and ``cirl explain`` leave in it, written and read in one place.

A folder is whole or has no result: what an earlier run left is taken away first, the result before all else, and the
new result is written last of all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agents.expert import Expert, simulated_habit, simulator_model
from agents.successor.agent import SuccessorAgent, SuccessorPolicy
from cirl_gym.data.batch import Batch
from cirl_gym.data.habits import Contexts
from cirl_gym.data.outcome_model import OutcomeModel, check_model
from cirl_gym.data.rules import ActionRules, rules_for
from cirl_gym.files import (
    check_finite,
    loading,
    read_arrays,
    read_json,
    write_arrays,
    write_bytes,
    write_json,
    write_text,
)
from cirl_gym.outcome_models.masked import with_rules
from cirl_gym.outcome_models.store import can_be_saved, load_model, save_model
from cirl_gym.types import FloatArray
from cirl_gym.worlds.tumour import TumourParameters
from cirl_gym.wrappers.learned_reward import LinearReward, load_reward
from irl.pipeline import Fit
from irl.preferences.posterior import PosteriorResult, SamplerReport
from irl.result.result import Result
from irl.studies.comparison import Preferences
from irl.studies.why import Why, find_decision, why

FILES = (
    "result.json",
    "report.html",
    "diagnostics.json",
    "diagnostics.html",
    "baselines.json",
    "batch.npz",
    "test.npz",
    "outcome_model.npz",
    "agent.npz",
    "cloning.npz",
    "posterior.npz",
    "foreseen.npz",
    "expert.npz",
)
"""What a run and the commands that take one write, beside ``config.json``; removed in this order."""


class Run:
    """The folder of a run. Each file is read when it is first asked for.

    Args:
        folder: of the run.
        model: the outcome model, where it was one of the user's own, which no file holds.

    Raises:
        ValueError: by whatever is read: the folder is not a whole run's; the message names the file and what is wrong.
    """

    def __init__(self, folder: Path, model: OutcomeModel | None = None) -> None:
        self.folder = folder
        self._own_model = model

    @classmethod
    def begin(cls, folder: Path, settings: Mapping[str, Any], model: OutcomeModel | None = None) -> Run:
        """Take away what an earlier run wrote, so that nothing of it can be taken for this one's; say what is asked.

        Args:
            folder: made if it does not exist.
            settings: content of ``config.json``, in JSON's own types; the day is added.
            model: an outcome model that no file will hold.

        Raises:
            OSError: the folder cannot be written to.
        """
        folder.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            (folder / name).unlink(missing_ok=True)
        # The day stands here and not in the result, which is the same for the same seed.
        write_json(folder / "config.json", {**settings, "date": date.today().isoformat()})
        return cls(folder, model)

    def write(self, result: Result, page: str, found: Fit, train: Batch, test: Batch, expert: Expert | None) -> None:
        """Write the training and held-out episodes and the models, then the page, and last of all the result.

        Raises:
            OSError: the folder cannot be written to.
        """
        train.save(self.folder / "batch.npz")
        test.save(self.folder / "test.npz")
        if can_be_saved(found.model.model):
            save_model(found.model.model, self.folder / "outcome_model.npz")
        found.agent.save(self.folder / "agent.npz")
        found.cloning.save(self.folder / "cloning.npz")
        save_posterior(found.posterior, self.folder / "posterior.npz")
        if found.foreseen is not None:
            found.foreseen.save(self.folder / "foreseen.npz")
        if expert is not None:
            expert.agent.save(self.folder / "expert.npz")
        write_text(self.folder / "report.html", page)
        result.write(self.folder / "result.json")

    def copy(self, folder: Path) -> Run:
        """The same files in another folder, as :meth:`write` leaves them: what an earlier run left there is replaced.

        Raises:
            ValueError: this is not the folder of a whole run, or both are the same.
            OSError: the folder cannot be written to.
        """
        if folder.resolve() == self.folder.resolve():
            raise ValueError(f"the run is in {folder} already")
        with self.whole("result.json"):
            Result.read(self.folder / "result.json")
        copied = Run.begin(folder, self.settings, self._own_model)
        for name in ("config.json", *reversed(FILES)):  # the result last
            if (self.folder / name).is_file():
                write_bytes(folder / name, (self.folder / name).read_bytes())
        return copied

    @contextmanager
    def whole(self, name: str = "config.json") -> Iterator[None]:
        """Whatever is missing or wrong inside becomes one error that names the folder and the file, ``name``."""
        try:
            with loading(self.folder / name, "that of a whole run"):
                yield
        except (OSError, ValueError) as error:
            if str(error).startswith(f"{self.folder} is not the folder"):
                raise
            raise ValueError(f"{self.folder} is not the folder of a whole run: {error}") from error

    @cached_property
    def reward(self) -> LinearReward:
        """The weights that were found, as a reward of the training episodes' features (``result.json``)."""
        with self.whole("result.json"):
            return load_reward(self.folder).among(self.train.features)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What the run was asked to do (``config.json``)."""
        with self.whole():
            settings = read_json(self.folder / "config.json")
            if not isinstance(settings, dict) or settings.get("command") not in ("demo", "explain"):
                raise ValueError(f"{self.folder / 'config.json'} is not the configuration of cirl demo or cirl explain")
            return settings

    @property
    def date(self) -> str:
        """The day on which the run began, as ``2026-01-31``; empty for a run of an earlier version."""
        return str(self.settings.get("date", ""))

    @property
    def simulated(self) -> bool:
        """Whether the experts were simulated, so that the truth is known."""
        return bool(self.settings["command"] == "demo")

    @property
    def forbid(self) -> list[str]:
        """The rules of what could not be done (``--forbid``); a run of an earlier version had none."""
        with self.whole():
            return list(self.settings["fit"].get("forbid", ()))

    @cached_property
    def train(self) -> Batch:
        """The training episodes."""
        with self.whole("batch.npz"):
            return Batch.load(self.folder / "batch.npz")

    @cached_property
    def test(self) -> Batch:
        """The episodes that were held out."""
        with self.whole("test.npz"):
            return Batch.load(self.folder / "test.npz")

    @cached_property
    def model(self) -> OutcomeModel:
        """The outcome model."""
        if self._own_model is not None:
            check_model(self._own_model, self.train)
            return self._own_model
        if (self.folder / "agent.npz").is_file() and not (self.folder / "outcome_model.npz").is_file():
            raise ValueError(
                f"{self.folder} is not the folder of a whole run: it has no outcome_model.npz; a run whose model "
                "was your own is read by Run(folder, model)"
            )
        with self.whole("outcome_model.npz"):
            return load_model(self.folder / "outcome_model.npz")

    @property
    def rules(self) -> ActionRules | None:
        """What was forbidden to the experts, and is to every policy."""
        with self.whole():
            return rules_for(self.train, self.forbid)

    @cached_property
    def agent(self) -> SuccessorAgent:
        """Candidate policies of every w, in the world of the outcome model."""
        with self.whole("agent.npz"):
            return SuccessorAgent.load(self.folder / "agent.npz", with_rules(self.model, self.rules))

    @property
    def policy(self) -> SuccessorPolicy:
        """What the preferences alone would do: optimal in the world model, without mistakes and habits."""
        return self.agent.policy(self.posterior.mean)

    @property
    def predicted_experts(self) -> SuccessorPolicy:
        """What the experts are predicted to do: preferences, mistakes and habits together.

        Drawn with its chances where ``deterministic=False``, else what is most likely. Habits that depend on columns of
        a table are taken at the mean of their levels, since no policy sees such columns.
        """
        posterior = self.posterior
        kappa = float(np.abs(posterior.theta_mean).sum())
        return self.agent.policy(posterior.mean, kappa, habit=posterior.habit)

    @cached_property
    def posterior(self) -> PosteriorResult:
        """Draws of weights, kappa and habits (``posterior.npz``), and how far they can be trusted (``result.json``)."""
        with self.whole("posterior.npz"):
            draws = _load_draws(self.folder / "posterior.npz")
            # A run of an earlier version knew of no habits, or not of how many worlds its draws are.
            contexts = Contexts.of(self.train, self.settings["fit"].get("habit", ()))
            none = np.zeros((len(draws["draws"]), 0, self.train.n_actions))
            theta = draws.get("theta", draws["kappa_draws"][:, None] * draws["draws"])
            signs, worlds = draws.get("signs", np.zeros(theta.shape[1])), int(draws.get("worlds", np.ones(1))[0])
            sampler = self.result.sampler
            r_hat, effective = (np.array([*each.values()]) for each in (sampler.r_hat, sampler.effective))
            report = SamplerReport(r_hat, effective, sampler.power)
            return PosteriorResult(theta, draws.get("logits", none), contexts, report, signs, worlds)

    def why(self, patient: str, step: int) -> Why:
        """Why a decision of a held-out patient was made.

        Args:
            patient: id of the episode, or of a patient who has one alone.
            step: counted from 0.

        Raises:
            ValueError: there is no such patient or step; the message names what there is.
        """
        return why(self.agent, self.posterior, self.test, [find_decision(self.test, patient, step)])[0]

    @cached_property
    def parameters(self) -> TumourParameters:
        """The simulator, of a simulated run."""
        with self.whole():
            return TumourParameters(**self.settings["parameters"])

    @cached_property
    def expert(self) -> Expert:
        """The expert who acted in the simulator."""
        with self.whole("expert.npz"):
            model = simulator_model(self.parameters, self.forbid)
            agent, asked = SuccessorAgent.load(self.folder / "expert.npz", model), self.settings
            # A run of an earlier version knew of no habits.
            habit = simulated_habit(asked.get("expert_habit"))
            return Expert.of(agent, np.asarray(asked["weights"], dtype=np.float64), asked["kappa"], habit)

    @cached_property
    def result(self) -> Result:
        """What was found (``result.json``)."""
        with self.whole("result.json"):
            return Result.read(self.folder / "result.json")

    @property
    def chosen_gamma(self) -> float | None:
        """The discount factor that held-out decisions chose; None where it was given."""
        with self.whole("result.json"):
            choice = read_json(self.folder / "result.json").get("gammas")
            return None if choice is None else float(choice["chosen"])

    def digests(self, *names: str) -> dict[str, str]:
        """SHA-256 of files, by name."""
        with self.whole():
            return {name: hashlib.sha256((self.folder / name).read_bytes()).hexdigest() for name in names}

    @property
    def preferences(self) -> Preferences:
        """What was found of the weights, with the draws behind it (``result.json`` and ``posterior.npz``).

        Of a folder that lacks all other files too.
        """
        path = self.folder / "posterior.npz"
        try:
            learned = load_reward(self.folder)
        except FileNotFoundError as error:
            raise ValueError(f"{self.folder} is not the folder of a whole run: {error}") from error
        if not path.is_file():
            raise ValueError(
                f"{self.folder} has no {path.name}: run the command that made it again, which now keeps the draws"
            )
        draws = _load_draws(path)
        with loading(self.folder / "result.json", "the result of a run"):
            result = read_json(self.folder / "result.json")
            if "verdict" not in result:
                raise KeyError("verdict")
            # A run that was made otherwise may lack discount factor, signs, the table's checksum and the episodes.
            config, chosen, table = result["config"], result.get("gammas"), result.get("table")
            signs, fit = config.get("signs"), config.get("fit")
            given = fit.get("gamma") if isinstance(fit, Mapping) else None
            return Preferences(
                run=str(self.folder),
                feature_map=learned.feature_map,
                draws=draws["draws"],
                gamma=chosen["chosen"] if isinstance(chosen, Mapping) else given,
                signs=dict(signs) if isinstance(signs, Mapping) else {},
                verdict=str(result["verdict"]),
                table=table.get("sha256") if isinstance(table, Mapping) else None,
                patients=self._patients() if config.get("command") == "explain" else None,
                uninterpreted=result.get("uninterpreted", {}),
            )

    def _patients(self) -> frozenset[str] | None:
        """Ids of the patients of all episodes that the folder holds; None where it holds no episodes."""
        if not all((self.folder / name).is_file() for name in ("batch.npz", "test.npz")):
            return None
        return frozenset(self.train.groups) | frozenset(self.test.groups)


def save_posterior(posterior: PosteriorResult, path: Path) -> None:
    """Write ``draws [M, d]`` and ``kappa_draws [M]``, put apart as intervals have them; ``theta [M, d]`` and the logits
    of habits ``[M, C, A]`` as each of the ``worlds [1]`` says them; and ``signs [d]``. All are float32.
    """
    arrays = {name: getattr(posterior, name) for name in (*_DRAWN, "signs")}
    arrays["worlds"] = np.array([posterior.worlds])
    write_arrays(path, {name: values.astype(np.float32) for name, values in arrays.items()})


_DRAWN = {"draws": 2, "kappa_draws": 1, "theta": 2, "logits": 3}
"""Dimensions of what there is of every draw."""


def _load_draws(path: Path) -> dict[str, FloatArray]:
    """What :func:`save_posterior` wrote, as float64; a ValueError that names the file where it does not hold that."""
    arrays: dict[str, npt.NDArray[Any]] = read_arrays(path)
    with loading(path, "a whole posterior"):
        each = {"theta", "signs", "worlds"}  # which earlier versions did not write
        if not {"draws", "kappa_draws"} <= set(arrays) or 0 < len(each & set(arrays)) < len(each):
            raise ValueError(f"it lacks the draws; it holds {', '.join(sorted(arrays)) or 'nothing'}")
        for name, dimensions in {**_DRAWN, "signs": 1, "worlds": 1}.items():
            if name in arrays and (arrays[name].dtype.kind != "f" or arrays[name].ndim != dimensions):
                raise ValueError(f"{name} must be floating-point numbers with {dimensions} dimensions")
        drawn = {name: values for name, values in arrays.items() if name in _DRAWN}
        if not len(arrays["draws"]) or len({len(values) for values in drawn.values()}) > 1:
            raise ValueError(f"{', '.join(drawn)} differ in length, or there are none")
        check_finite(arrays)
        if not (arrays["kappa_draws"] > 0).all():
            raise ValueError("a kappa is not positive")
        return {name: values.astype(np.float64) for name, values in arrays.items()}
