"""``cirl compare``: differences and intervals that can be worked out by hand, and one clear error for what is wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from posteriors import known_posterior
from sample_result import sample_result
from shown import printed
from small_batches import batch_of
from tiny_run import refused

from cirl_gym.data.features import FeatureMap
from cirl_gym.files import read_arrays, write_arrays
from irl.commands.cli import main
from irl.commands.compare import command as compare_command
from irl.commands.options import CompareOptions
from irl.report.comparison import comparison_sentence, report_of_comparison
from irl.result.result import Result
from irl.run import Run, save_posterior
from irl.studies.comparison import Preferences, compare, on_scale, thinned

NAMES = ("volume", "side effects")


def draws_around(first, half, n=1001):
    """``[n, 2]`` both weights negative, the first uniform within ``half`` of ``first``."""
    w = first + half * np.linspace(-1, 1, n)
    return np.stack([w, -1 - w], axis=1)


def found(first, half=0.1, *, run="run", names=NAMES, low=(0.0, 0.0), high=(50.0, 15.0), n=1001, **changes):
    draws = draws_around(first, half, n)
    feature_map = FeatureMap(names, np.array(low), np.array(high))
    return Preferences(run, feature_map, draws, **({"gamma": 0.99} | changes))


def write_run(folder, preferences, **changes):
    """The two files of a run that are compared."""
    phi = preferences.feature_map
    ranges = {name: [float(a), float(b)] for name, a, b in zip(phi.features, phi.low, phi.high, strict=True)}
    result = sample_result()
    low, high = np.quantile(preferences.draws, (0.05, 0.95), axis=0)
    intervals = dict(zip(phi.features, zip(low, high, strict=True), strict=True))
    result = structs.replace(
        result,
        features=phi.features,
        weights=np.median(preferences.draws, axis=0),
        intervals=intervals,
        identified_set=structs.replace(result.identified_set, ranges=intervals),
        config={"command": "demo", "fit": {"gamma": preferences.gamma}, "ranges": ranges} | changes,
        verdict=preferences.verdict,
        table=None if preferences.table is None else {"sha256": preferences.table},
    )
    folder.mkdir(exist_ok=True)
    result.write(folder / "result.json")
    posterior = known_posterior(preferences.draws, np.full(len(preferences.draws), 100.0))
    save_posterior(posterior, folder / "posterior.npz")
    return folder


def test_a_known_difference_and_its_interval():
    # Uniform minus uniform, half-widths .1, is a triangle of half-width .2: its 5 % point lies .2 sqrt(.1) inside.
    told = compare(found(-0.3), found(-0.5)).differences
    inside = 0.2 * np.sqrt(0.1)
    volume, side = told["volume"], told["side effects"]
    assert (volume.a, volume.b) == (pytest.approx(-0.3), pytest.approx(-0.5))
    assert volume.difference == pytest.approx(0.2)
    assert volume.interval == pytest.approx((inside, 0.4 - inside), abs=1e-3)
    assert volume.above_zero == pytest.approx(1.0, abs=1e-3)
    assert side.difference == pytest.approx(-0.2)
    assert side.interval == pytest.approx((inside - 0.4, -inside), abs=1e-3)
    assert side.above_zero == pytest.approx(0.0, abs=1e-3)

    # The triangle around .1: the tail below 0 is a triangle half as wide, half of 1/4.
    told = compare(found(-0.3), found(-0.4))
    assert told.differences["volume"].above_zero == pytest.approx(1 - 0.125, abs=1e-3)
    assert told.clear == ()
    assert told.draws == (1001, 1001)
    # Equal draws differ by nothing.
    for half in (0.0, 0.1):
        told = compare(found(-0.3, half), found(-0.3, half)).differences["volume"]
        assert told.difference == 0
        assert told.interval[0] == pytest.approx(-told.interval[1], abs=1e-12)
        assert told.above_zero == pytest.approx(0.5, abs=1e-12)


@settings(deadline=None, max_examples=15)
@given(st.floats(-0.8, -0.2), st.floats(-0.8, -0.2), st.floats(0.01, 0.15))
def test_exchanged_runs_exchange_signs(one, other, half):
    a = found(one, half, run="one", high=(48.0, 15.0), n=101)
    b = found(other, run="other", n=70)
    forward, back = compare(a, b), compare(b, a)
    assert (forward.a, forward.b) == (back.b, back.a)
    for name in NAMES:
        ahead, behind = forward.differences[name], back.differences[name]
        assert behind.difference == pytest.approx(-ahead.difference, abs=1e-12)
        assert behind.interval == pytest.approx((-ahead.interval[1], -ahead.interval[0]), abs=1e-9)
        assert behind.above_zero == pytest.approx(1 - ahead.above_zero, abs=1e-6)


def test_the_order_of_features_does_not_matter():
    b = found(-0.5, run="b")
    turned = replace(
        b,
        feature_map=FeatureMap(NAMES[::-1], np.zeros(2), np.array([15.0, 50.0])),
        draws=b.draws[:, ::-1],
    )
    assert compare(found(-0.3), turned) == compare(found(-0.3), b)


def test_many_draws_are_thinned_evenly():
    draws = np.linspace(-0.4, -0.2, 10_000)[:, None]
    kept = thinned(draws)
    assert len(kept) == 2000
    assert (kept[0], kept[-1]) == (draws[0], draws[-1])
    assert np.quantile(kept, 0.05) == pytest.approx(-0.39, abs=1e-3)
    assert thinned(draws[:7]) is not draws
    np.testing.assert_array_equal(thinned(draws[:7]), draws[:7])


class TestRanges:
    def test_the_same_reward_in_other_ranges_is_no_difference(self):
        # R = -.006 x - .02 z per unit; ranges of 50 and 35 make (-.3, -.7), of 25 and 35 (-.15, -.7) / .85.
        a = found(-0.3, 0.0, high=(50.0, 35.0))
        b = found(-0.15 / 0.85, 0.0, run="b", high=(25.0, 35.0))
        told = compare(a, b, rescale=True)
        assert told.ranges == {"volume": (0.0, 50.0), "side effects": (0.0, 35.0)}
        assert told.differences["volume"].b == pytest.approx(-0.3)
        assert told.differences["volume"].difference == pytest.approx(0.0, abs=1e-12)
        assert "brought to one range where theirs differ (volume: A 0 to 50, B 0 to 25)" in told.notes[0]

    def test_weights_keep_their_direction_and_norm(self):
        scale = FeatureMap(NAMES, np.array([-10.0, 0.0]), np.array([50.0, 20.0]))
        one = found(-0.3)
        moved = on_scale(one, scale)
        per_unit, again = one.draws / [50, 15], moved.draws / [60, 20]
        np.testing.assert_allclose(per_unit[:, 0] / per_unit[:, 1], again[:, 0] / again[:, 1])
        np.testing.assert_allclose(np.abs(moved.draws).sum(axis=1), 1)

    def test_ranges_that_differ_a_little_are_converted_and_a_lot_refused_unless_asked_for(self):
        told = compare(found(-0.3), found(-0.3, run="b", low=(1.0, 0.0)))
        assert len(told.notes) == 2
        assert "volume: A 0 to 50, B 1 to 50" in told.notes[0]
        assert "Lower ends" in told.notes[1]
        assert compare(found(-0.3), found(-0.3, run="b")).notes == ()
        a, b = found(-0.3, run="here"), found(-0.3, run="there", high=(44.0, 15.0))
        with pytest.raises(ValueError, match=r"'volume' have less than 90% in common: 0 to 50 in here, 0 to 44 in the"):
            compare(a, b)
        assert compare(a, b, rescale=True).ranges["volume"] == (0.0, 50.0)
        # As long, but elsewhere.
        with pytest.raises(ValueError, match="--rescale"):
            compare(a, found(-0.3, low=(10.0, 0.0), high=(60.0, 15.0)))
        with pytest.raises(ValueError, match=r"'volume' \(and of 1 more\)"):
            compare(a, found(-0.3, low=(10.0, 10.0), high=(60.0, 50.0)))


def test_other_features_are_named_and_what_else_differs_is_said():
    with pytest.raises(ValueError, match="different features: only here has 'side effects'; only there has 'pain'"):
        compare(found(-0.3, run="here"), found(-0.3, run="there", names=("volume", "pain")))
    notes = compare(found(-0.3), found(-0.3, gamma=0.5, signs={"volume": -1})).notes
    assert "gamma 0.99 and 0.5" in notes[0]
    assert "different signs" in notes[1]


def test_where_weights_mean_nothing_no_difference_is_announced():
    """Both verdicts come first; a difference as clear as can be is not one if either run's weights mean nothing."""
    good, bad = found(-0.3, run="here"), found(-0.6, run="there", verdict="nothing beyond habit")
    for pair, said in (((good, bad), "B says"), ((bad, good), "A says"), ((bad, bad), "both runs say")):
        told = compare(*pair)
        assert told.clear == ()
        report = report_of_comparison(told)
        assert report.headline == (
            f"A ({told.a}): {told.verdict_a}.",
            f"B ({told.b}): {told.verdict_b}.",
            f"No difference is announced, since {said} that weights mean nothing; comparison.json keeps the numbers.",
        )
        assert "A - B" not in printed(report)
        assert abs(told.differences["volume"].difference) == pytest.approx(0 if pair[0] is pair[1] else 0.3)
    told = compare(good, replace(bad, verdict="beyond habit"))
    assert told.clear == ("volume", "side effects")
    assert report_of_comparison(told).headline[:2] == ("A (here): beyond habit.", "B (there): beyond habit.")


def test_of_a_weight_that_a_run_does_not_interpret_no_difference_is_announced(tmp_path):
    a = found(-0.3, run="here", uninterpreted={"volume": "the effect is unknown"})
    told = compare(a, found(-0.6, run="there", uninterpreted={"volume": "contradicted"}))
    assert told.uninterpreted == {"volume": "A: the effect is unknown; B: contradicted"}
    assert told.clear == ("side effects",)
    text = printed(report_of_comparison(told), 200)
    assert "these weights differ, A's minus B's: side effects (-0.30)." in text
    why = "volume is not compared, since its weight is not interpreted (A: the effect is unknown; B: contradicted)."
    assert why in text
    assert "+0.300" not in text, "the table leaves it out"
    every = compare(a, found(-0.6, uninterpreted={"side effects": "unknown"}))
    assert every.clear == ()
    assert comparison_sentence(every).startswith("No difference is announced, since no weight is interpreted")
    assert "A - B" not in printed(report_of_comparison(every))
    # A run says it in its result.
    result = Result.read(write_run(tmp_path / "a", a) / "result.json")
    structs.replace(result, uninterpreted={"volume": "unknown"}).write(tmp_path / "a" / "result.json")
    assert Run(tmp_path / "a").preferences.uninterpreted == {"volume": "unknown"}


def test_patients_of_both_runs_are_counted_and_one_table_is_refused():
    a = found(-0.3, run="here", table="ab12", patients=frozenset("1234"))
    b = found(-0.4, run="there", table="cd34", patients=frozenset("345"))
    told = compare(a, b)
    assert told.shared_patients == 2
    assert told.notes[0].startswith("2 ids of patients are in both runs, which have kept 4 (A) and 3 (B).")
    apart = compare(a, replace(b, patients=frozenset("567")))
    assert (apart.shared_patients, apart.notes) == (0, ())
    # What a run did not keep, or simulated, is not known.
    assert compare(a, replace(b, patients=None)).shared_patients is None
    assert compare(replace(a, table=None), replace(b, table=None)).shared_patients == 2
    with pytest.raises(ValueError, match="here and there are runs of one and the same table"):
        compare(a, replace(b, table="ab12"))


@pytest.mark.parametrize(
    "changes",
    [
        {"draws": np.zeros((0, 2))},
        {"draws": np.full((5, 3), -0.3)},
        {"draws": np.full((5, 2), np.nan)},
        {"draws": np.zeros((5, 2))},
        {"draws": np.full(5, -0.3)},
    ],
)
def test_preferences_check_what_they_promise(changes):
    with pytest.raises(ValueError, match=f"run: {next(iter(changes))} must"):
        replace(found(-0.3), **changes)


def draws(values, kappas):
    """A file of draws, as damage of a run."""
    return lambda run: write_arrays(run / "posterior.npz", {"draws": values, "kappa_draws": np.ones(kappas)})


def without_verdict(run):
    content = json.loads((run / "result.json").read_text())
    del content["verdict"]
    (run / "result.json").write_text(json.dumps(content))


class TestFolders:
    @pytest.fixture
    def runs(self, tmp_path):
        a = write_run(tmp_path / "a", found(-0.3))
        return a, write_run(tmp_path / "b", found(-0.6))

    def test_what_was_written_is_read_with_its_signs(self, runs, tmp_path, capsys):
        read = Run(runs[0]).preferences
        assert (read.run, read.feature_map.features, read.gamma) == (str(runs[0]), NAMES, 0.99)
        np.testing.assert_allclose(read.draws, draws_around(-0.3, 0.1), atol=1e-7)
        assert read_arrays(runs[0] / "posterior.npz")["draws"].dtype == np.float32
        told = write_run(tmp_path / "told", found(-0.3), signs={"volume": -1})
        assert Run(told).preferences.signs == {"volume": -1}
        other = write_run(tmp_path / "other", found(-0.3, names=("volume", "pain")))
        message = refused(capsys, "compare", runs[0], other, "--out", tmp_path / "out")
        assert f"only {other} has 'pain'" in message
        assert "the same run" in refused(capsys, "compare", runs[0], runs[0] / ".." / "a")
        assert "absent is not the folder of a whole run" in refused(capsys, "compare", runs[0], "absent")

    def test_the_command_line(self, runs, tmp_path, capsys):
        out = tmp_path / "deep" / "out"
        assert main(["compare", *map(str, runs), "--out", str(out)]) == 0
        shown = capsys.readouterr()
        assert shown.err == ""
        said = " ".join(shown.out.split())
        assert "these weights differ, A's minus B's: volume (+0.30), side effects (-0.30)." in said
        assert "+0.163 to +0.437" in shown.out
        written = json.loads((out / "comparison.json").read_text())
        keys = {"schema", "a", "b", "verdict_a", "verdict_b", "differences", "ranges", "draws", "notes"}
        assert set(written) == keys | {"shared_patients", "uninterpreted"}
        assert (written["a"], written["b"]) == tuple(map(str, runs))
        assert written["differences"]["volume"]["difference"] == pytest.approx(0.3, abs=1e-6)
        again = compare_command(CompareOptions(*runs, out=tmp_path))
        assert again.as_dict() == written
        assert (tmp_path / "comparison.json").read_bytes() == (out / "comparison.json").read_bytes()

    def test_runs_of_tables_tell_their_table_and_patients(self, tmp_path, capsys):
        batch = batch_of([0, 1], [1, 1], [0, 0], groups=("ann", "bob", "ann"))
        folders = []
        for name, told in (("a", "ab12"), ("b", "cd34"), ("c", "ab12")):
            folder = write_run(tmp_path / name, found(-0.3, table=told), command="explain", signs={})
            folders.append(folder)
            batch.save(folder / "batch.npz")
            batch.take(np.array([0])).save(folder / "test.npz")
        kept = Run(folders[0]).preferences
        assert (kept.table, kept.patients, kept.verdict) == ("ab12", {"ann", "bob"}, "beyond habit")
        (folders[1] / "test.npz").unlink()
        assert Run(folders[1]).preferences.patients is None
        a, _, c = folders
        assert "one and the same table" in refused(capsys, "compare", a, c, "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_rescale_is_an_option(self, runs, tmp_path, capsys):
        far = write_run(tmp_path / "far", found(-0.3, high=(10.0, 15.0)))
        message = refused(capsys, "compare", runs[0], far, "--out", tmp_path / "out")
        assert "less than 90% in common" in message
        assert not (tmp_path / "out").exists()
        assert main(["compare", str(runs[0]), str(far), "--out", str(tmp_path / "out"), "--rescale"]) == 0
        assert "A 0 to 50, B 0 to 10" in " ".join(capsys.readouterr().out.split())

    @pytest.mark.parametrize(
        ("damage", "message"),
        [
            (lambda run: (run / "result.json").unlink(), "is not the folder of a whole run"),
            (lambda run: (run / "result.json").write_text("{"), "result.json is not JSON"),
            (lambda run: (run / "result.json").write_text('{"schema": 1}'), "result.json lacks 'features'"),
            (without_verdict, "result.json lacks 'verdict'"),
            (lambda run: (run / "posterior.npz").unlink(), "has no posterior.npz"),
            (lambda run: (run / "posterior.npz").write_bytes(b"PK"), "posterior.npz cannot be read as arrays"),
            (lambda run: write_arrays(run / "posterior.npz", {"w": np.ones(3)}), "lacks the draws; it holds w"),
            (draws(np.ones((4, 2), dtype=int), 4), "draws must be floating-point"),
            (draws(np.ones((4, 2)), 3), "draws, kappa_draws differ in length"),
            (draws(np.ones((4, 5)), 4), "draws must be rows of 2 finite numbers"),
        ],
    )
    @pytest.mark.parametrize("which", [0, 1])
    def test_a_damaged_folder_is_one_clear_error(self, runs, which, damage, message, tmp_path, capsys):
        damage(runs[which])
        told = refused(capsys, "compare", *runs, "--out", tmp_path / "out")
        assert message in told
        assert str(runs[which]) in told
        assert not (tmp_path / "out").exists()


def test_what_is_printed_fits_and_is_never_markup(tmp_path):
    names = ("[red]volume[/red]", "z")
    told = compare(found(-0.3, names=names), found(-0.3, run="[b]", names=names))
    assert comparison_sentence(told) == "By the 90 % intervals, no weight differs between the two runs."
    text = printed(report_of_comparison(told, tmp_path), width=80)
    assert "[red]volume[/red]" in text
    assert "B ([b]): beyond habit." in text
    assert max(map(len, text.splitlines()[:-1])) <= 80


def test_a_whole_run_keeps_its_draws(demo_run, tmp_path, capsys):
    result, kept = Result.read(demo_run / "result.json"), Run(demo_run).preferences
    np.testing.assert_allclose(np.abs(kept.draws).sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(np.median(kept.draws, axis=0), result.weights, atol=1e-6)
    ends = np.quantile(kept.draws, (0.05, 0.95), axis=0)
    np.testing.assert_allclose(ends, np.array(list(result.intervals.values())).T, atol=1e-6)
    other = write_run(tmp_path / "other", found(-0.3, names=result.features))
    assert main(["compare", str(demo_run), str(other), "--out", str(tmp_path)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    whole = shown.replace(" ", "")  # long paths are broken
    assert whole.startswith(f"A({demo_run}):{result.verdict}.".replace(" ", ""))
    assert f"B({other}):beyondhabit." in whole
