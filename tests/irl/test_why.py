"""Why a decision was made: contributions add up, courses are those that the contributions rest on, words follow the
verdict, and the page holds what the command says."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from explained_decisions import measured
from msgspec import structs
from shown import printed
from tiny_run import refused, tiny_demo, tiny_fit

from irl.commands.cli import main
from irl.commands.explain import demo
from irl.preferences.likelihood import PlanPool
from irl.report.section import Chooser, Details, Table
from irl.report.why import report_of_why, why_section
from irl.result.sentences import NO_FINDING
from irl.run import Run
from irl.studies import why as whys


def every_decision(batch):
    return list(zip(*(part.tolist() for part in np.nonzero(batch.mask)), strict=True))


@pytest.fixture(scope="module")
def run(demo_run):
    return Run(demo_run)


@pytest.fixture(scope="module")
def explained(run):
    return whys.why(run.agent, run.posterior, run.test, every_decision(run.test))


@pytest.fixture(scope="module")
def ruled(tmp_path_factory):
    """A run whose experts have habits and may not always treat."""
    folder = tmp_path_factory.mktemp("ruled")
    fit = tiny_fit(habit=("previous",), forbid=("1 when Above(side_effects, 1.2)",))
    demo(tiny_demo(expert_habit=(2.0, -1.0), fit=fit), folder)
    return Run(folder)


def test_contributions_add_up_to_the_log_odds_of_every_held_out_decision(run, explained):
    assert len(explained) == run.test.n_steps
    for one in explained:
        told = np.log(one.chances / one.chances[one.reference])
        np.testing.assert_allclose(one.contributions.sum(axis=1) + one.habit, told, atol=1e-6)
        np.testing.assert_array_equal(one.contributions[one.reference], 0)


def test_chances_are_those_of_the_choice_model_along_the_same_plans(ruled):
    posterior, test = ruled.posterior, ruled.test
    weights = [posterior.mean, *(theta / np.abs(theta).sum() for theta in posterior.thinned(4)[0])]
    pool = PlanPool(test, ruled.agent.psi(test, np.stack(weights), 32), posterior.contexts)
    logs = pool.log_chances(posterior.theta_mean, posterior.logits.mean(axis=0))
    decisions = every_decision(test)
    for (row, step), one in zip(decisions, whys.why(ruled.agent, posterior, test, decisions), strict=True):
        np.testing.assert_allclose(one.log_chances, logs[row, step], atol=2e-3)
        np.testing.assert_array_equal(one.allowed, test.allowed[row, step])


def test_forbidden_actions_and_habits(ruled):
    found = whys.why(ruled.agent, ruled.posterior, ruled.test, every_decision(ruled.test))
    forced = [one for one in found if not one.allowed.all()]
    assert forced
    assert {(one.chances[1], one.reference, one.best) for one in forced} == {(0.0, 0, 0)}
    logits = ruled.posterior.logits.mean(axis=0)  # levels: none yet, 0, 1
    row = int(np.flatnonzero(ruled.test.lengths > 1)[0])
    first, second = whys.why(ruled.agent, ruled.posterior, ruled.test, [(row, 0), (row, 1)])
    before = 1 + int(ruled.test.actions[row, 0])
    for one, level in ((first, 0), (second, before)):
        np.testing.assert_allclose(one.habit, logits[level] - logits[level, one.reference], atol=1e-12)
        assert one.allowed.sum() == 1 or one.reference != one.taken
    shown = printed(report_of_why(ruled.result, forced[0]))
    assert "Rules left no other action." in shown
    assert "forbidden" in shown


def test_the_last_contribution_is_that_of_the_predicted_outcome(run, explained):
    phi, theta = run.agent.feature_map, run.posterior.theta_mean
    last = [one for one in explained if one.step == run.agent.horizon - 1]
    assert last
    for one in last:
        outcome = phi(one.courses[:, 0])
        np.testing.assert_allclose(one.contributions, theta * (outcome - outcome[one.reference]), rtol=1e-4, atol=1e-6)


def test_courses_begin_with_what_the_model_predicts_and_end_where_the_batch_does(run, explained):
    states = run.model.encode(run.test)
    predicted = run.model.predict(states)
    for (row, step), one in zip(every_decision(run.test), explained, strict=True):
        np.testing.assert_allclose(one.courses[:, 0], predicted[row, step], rtol=1e-5, atol=1e-5)
        assert (one.course_ends[0] <= one.course_ends[1]).all()
        left = min(int(run.test.lengths[row]) - step, whys.AHEAD)
        assert len(one.done) == len(one.followed) == left
        np.testing.assert_array_equal(one.followed[0], run.test.obs[row, step + 1])


def test_one_decision_alone_is_explained_as_among_others(run, explained):
    row, step = every_decision(run.test)[7]
    alone = run.why(run.test.ids[row], step)
    np.testing.assert_allclose(alone.contributions, explained[7].contributions, atol=1e-4)
    np.testing.assert_array_equal(alone.courses, explained[7].courses)
    again = run.why(run.test.ids[row], step)
    assert again.contribution_ends.tobytes() == alone.contribution_ends.tobytes()


def test_a_record_that_does_not_add_up_is_refused(explained):
    one = explained[0]
    with pytest.raises(ValueError, match="add up to the log-odds"):
        replace(one, habit=one.habit + 1e-3 * np.arange(2))
    with pytest.raises(ValueError, match="shapes do not agree: now"):
        replace(one, now=one.now[:1])
    with pytest.raises(ValueError, match="chances must add up"):
        replace(one, log_chances=one.log_chances + 1)


def test_patients_and_steps_are_found_or_named(run, demo_run, capsys):
    batch = run.test.take(np.arange(3))
    batch = replace(batch, ids=("stay 1", "stay 2", "stay 3"), groups=("ann", "bob", "bob"))
    assert whys.find_decision(batch, "stay 2", 0) == (1, 0)
    assert whys.find_decision(batch, "ann", 0) == (0, 0)
    with pytest.raises(ValueError, match="'bob' has several episodes; choose one: stay 2, stay 3"):
        whys.find_decision(batch, "bob", 0)
    with pytest.raises(ValueError, match="'eve' is not among those held out: stay 1, stay 2, stay 3"):
        whys.find_decision(batch, "eve", 0)
    length = int(run.test.lengths[0])
    told = refused(capsys, "why", demo_run, run.test.ids[0], length)
    assert told == f"step {length}: {run.test.ids[0]!r} has steps 0 to {length - 1}"


def test_the_command_says_what_tips_a_decision(run, demo_run, capsys):
    assert main(["why", str(demo_run), run.test.ids[0], "1"]) == 0
    shown = capsys.readouterr().out
    one = run.why(run.test.ids[0], 1)
    assert f"Done: {one.actions[one.taken]}, which the model foresees with {100 * one.chances[one.taken]:.1f} %" in (
        " ".join(shown.split())
    )
    assert f"log-odds {one.log_odds[one.taken]:+.2f}." in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


def test_decisions_that_fit_are_evenly_spread(run):
    batch = run.test.take(np.argsort(-run.test.lengths)[:3])
    everything = whys.shown_decisions(batch, 100)
    assert everything == every_decision(batch)
    assert whys.shown_decisions(batch, 100, patients=2) == [pair for pair in everything if pair[0] in (0, 2)]
    last = int(batch.lengths[0]) - 1
    assert whys.shown_decisions(batch, 6)[:2] == [(0, 0), (0, last)]


@pytest.mark.slow
def test_what_is_called_best_is_better_in_the_simulator(tmp_path):
    assert main(["demo", "--quick", "--out", str(tmp_path)]) == 0
    found = measured(tmp_path, 30)
    assert found["the action called best has the higher exact Q"] >= 0.94
    assert found["of these, the action called best has the higher exact Q"] >= 0.99
    assert found["largest distance from the log-odds, held out"] <= 1e-6
    assert found["held-out decisions"] >= 3000


@pytest.mark.parametrize("verdict", ["nothing beyond habit", "not identifiable"])
def test_where_weights_mean_nothing_that_is_said_first_and_outcomes_are_folded_away(run, explained, verdict):
    result = structs.replace(run.result, verdict=verdict)
    report = report_of_why(result, explained[0])
    assert report.verdict.endswith(NO_FINDING)
    tables = [part for part in report.sections[0].terminal if isinstance(part, Table)]
    assert [row[0] for row in tables[1].rows] == ["outcomes, no finding", "together: log-odds"]
    page = why_section(result, explained[:2], 2).page
    assert page[0] == NO_FINDING
    (chooser,) = (part for part in page if isinstance(part, Chooser))
    assert any(isinstance(part, Details) for part in chooser.shown[0])


def test_what_may_not_be_read_is_not_shown(run, explained):
    result = structs.replace(run.result, verdict="beyond habit", uninterpreted={"tumour": "why"})
    report = report_of_why(result, explained[0])
    assert "what is not interpreted" in report.sections[0].terminal[1]
    (table,) = (part for part in report.sections[0].terminal if isinstance(part, Table) and part.head[0] == "of")
    assert table.rows[0] == ["tumour", "not interpreted"]
    assert table.rows[1][1].startswith(
        f"{explained[0].contributions[explained[0].taken, 1]:+.2f}".replace("-", "\N{MINUS SIGN}")
    )


def test_the_page_holds_every_choice_and_runs_its_own_script_alone(run, demo_run):
    page = (demo_run / "report.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'<script type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    assert sum(map(len, data["members"])) == len(data["slots"]) == run.test.n_steps
    assert len({len(texts) for texts in data["slots"]}) == 1
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    # The first choice is shown as it stands, and has as many places for texts as there are texts.
    chosen = page.split('<div class="chosen"')[1].split('<script type="application/json">')[0]
    places = len(re.findall(r"<p[ >]|<td[ >]|data-slot=", chosen)) + len(
        re.findall(r'(?<=</th>)<th scope="col"', chosen)
    )
    assert places == len(data["slots"][0])


def test_a_chooser_checks_what_it_promises():
    chooser = {"name": "x", "labels": ("a", "b"), "groups": ("1",), "without": "", "members": (("0", "1"),)}
    with pytest.raises(ValueError, match="one thing is needed"):
        Chooser(**chooser, shown=(("text",),))
    with pytest.raises(ValueError, match="must be alike"):
        Chooser(**chooser, shown=(("text",), ("text", "more")))
    assert "</script>" not in Chooser(**chooser, shown=(("</script>",), ("&",))).data
