"""The sections of a run that say how well decisions are foreseen."""

from __future__ import annotations

from functools import partial

from irl.report import drawing
from irl.report.section import Details, Part, Picture, Section, Table, explained, percent, signed
from irl.result.chances import ChanceScores
from irl.result.result import BEYOND, LEAST, HeldOutLikelihood, Result
from irl.result.sentences import learnt_from

HELD_OUT = "held-out episodes"
ACCOUNTS = {
    "cirl": "preferences and habit (CIRL)",
    "habit": "habit alone",
    "last_action": "last-action table",
    "boosting": "gradient boosting",
    "cloning": "behaviour cloning",
    "frequencies": "frequency of each action",
    "chance": "pure chance",
    "expert": "the experts' own chances",
}


def decisions_sections(result: Result) -> list[Section]:
    """What foresees the decisions, and by how much better with outcomes than by habit alone."""
    found = [_likelihood(result), _accuracy(result), _agreement(result)]
    return [section for section in found if section is not None]


def _foreseen(found: HeldOutLikelihood) -> str:
    """Which decisions were foreseen, and from what."""
    return f"{found.decisions:,} decisions of {found.patients:,} patients, {learnt_from(found)}"


def _likelihood(result: Result) -> Section | None:
    """What foresees the decisions, what outcomes add to habit; the experts' own chances where they are known."""
    found = result.likelihood
    if found is None:
        return None
    names = dict(ACCOUNTS)
    if result.habits is None:  # then habit is no more than the frequencies
        names["cirl"] = "preferences (CIRL)"
        del names["habit"]
    said = {words: getattr(found, name) for name, words in names.items()}
    rows = [
        [words, signed(one.mean, 3), f"{one.standard_error:.3f}", "" if words == ACCOUNTS["chance"] else met]
        for words, one in said.items()
        if one is not None
        for met in [percent(one.accuracy)]
    ]
    added, habit = found.beyond_habit, "habit" if "habit" in names else "frequencies"
    rows.append([f"what outcomes add to {habit}", signed(added.mean, 3), f"{added.standard_error:.3f}", ""])
    table = Table("Log-likelihood per decision", ["account", "mean", "standard error", "decisions met"], rows)
    terms = explained(
        f"How likely each account makes a decision, as the mean logarithm of its chance, over {_foreseen(found)}; and "
        "the share of decisions that its likeliest action meets, as a mean over episodes.",
        "Nearer to zero is better. Unlike the share of decisions met, the log-likelihood also asks how sure each "
        "account was. What does not beat the frequency of each action foresees nothing. The last row is what the "
        f"outcomes add, and the verdict rests on it: it is clear where it is more than {BEYOND} standard errors above "
        f"zero, as one of twenty is by chance alone, and {100 * LEAST:g} % or more of what habit leaves unforeseen. "
        "Standard errors have patients as the unit; all accounts are about "
        "the same decisions, so that a difference is surer than the two numbers it is of.",
        "Why an account foresees decisions well. Trees and cloning know no preferences: where they foresee better, "
        "something that was observed matters to the experts in a way that the outcomes weighed do not explain.",
    )
    page: tuple[Part, ...] = (terms, table)
    if figures := [[words, *_figures(found.scores[name])] for name, words in names.items() if name in found.scores]:
        head = ["account", "AUROC", "AUPRC", "Brier score", "calibration error"]
        says = (
            "How well chances rank decisions (of two actions the rarer, of more the mean), how far they are from what "
            "was done (Brier score, halved) and from frequencies (calibration error), with standard errors by patient."
        )
        page = (*page, Details("Ranking and calibration", (says, Table("Ranking and calibration", head, figures))))
    shown = (table, f"Over {_foreseen(found)}.")
    return Section("likelihood", "How well decisions are foreseen", page, shown)


def _figures(scores: ChanceScores) -> list[str]:
    each = (scores.auroc, scores.auprc, scores.brier, scores.calibration_error)
    return ["" if one is None else f"{one.value:.3f} \N{PLUS-MINUS SIGN} {one.standard_error:.3f}" for one in each]


def _accuracy(result: Result) -> Section:
    """What both named policies meet, beside what needs no preferences."""
    accuracy, found = result.accuracy, result.likelihood
    episodes = f"{result.episodes.test} {HELD_OUT}"
    rows = []
    if found is not None:
        every = f"{found.decisions:,} decisions"
        rows = [
            [name, percent(met), every]
            for name, met in drawing.predicted_bars(found, result.habits is not None).items()
        ]
    rows += [[name, percent(met), episodes] for name, met in drawing.acting_bars(accuracy).items()]
    rows.append(["ceiling", "not known" if accuracy.ceiling is None else percent(accuracy.ceiling), episodes])
    met = Table("Decisions met", ["policy", "accuracy", "of"], rows)
    shows = (
        f"The share of decisions that the likeliest action of each policy meets, as a mean over episodes: above, of "
        f"policies that act, in the {episodes}."
    )
    if found is not None:
        shows = (
            "The share of decisions that the likeliest action of each policy meets, as a mean over episodes. What the "
            "experts are predicted to do, by preferences and habits together, and the references below it are "
            f"about {_foreseen(found)}. What the preferences alone would do, as a policy that never errs and has no "
            f"habits, and what stands below it are about the {episodes}."
        )
    read = (
        "Always the most frequent action, or the last action again, need no learning: what does not beat them predicts "
        "nothing new. Where the preferences alone meet fewer decisions than are predicted with habits, the experts do "
        "not act by preferences alone. "
    ) + (
        "How far the experts act at random is not known here, and so neither is the ceiling; it lies below "
        "100\N{NO-BREAK SPACE}%."
        if accuracy.ceiling is None
        else "The dashed line is the ceiling of the held-out episodes: the experts act at random to some degree, and "
        "nobody can meet more but by luck."
    )
    cannot = "Agreement does not prove the weights: different weights can lead to the same decisions."
    page = (Picture(partial(drawing.accuracy_svg, result)), explained(shows, read, cannot), met)
    return Section("accuracy", "Decisions met", page, (met,))


def _agreement(result: Result) -> Section | None:
    """At every step, the episodes still going on and how many of their decisions each policy meets."""
    over_time = result.agreement
    if over_time is None:
        return None
    every = Table.of(
        "Held-out decisions met at each step",
        {
            "step": map(str, range(len(over_time.episodes))),
            "episodes": map(str, over_time.episodes),
            drawing.ALONE: map(percent, over_time.cirl),
            "behaviour cloning": map(percent, over_time.cloning),
        },
    )
    says = (
        "The share of held-out decisions met at each time step, among the episodes that are still going on, by what "
        "the preferences alone would do and by behaviour cloning; where few are left, a share says little."
    )
    page = (Picture(partial(drawing.agreement_svg, over_time)), says, Details("Every step", (every,)))
    return Section("agreement", "Decisions met over time", page)
