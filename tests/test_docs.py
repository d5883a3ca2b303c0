"""What README and docs say is true: their code runs, their commands and files exist, their figures come out again."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from cirl_gym import Batch
from cirl_gym.data.rollout import returns
from cirl_gym.outcome_models.fitting import OutcomeModelConfig
from cirl_gym.worlds.exact import optimum
from irl.commands.cli import main
from irl.result.result import Result

ROOT = Path(__file__).resolve().parents[1]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
PAGES = {path.name: path.read_text(encoding="utf-8") for path in FILES}
WORDS = "\n".join(PAGES.values())
OF_THE_SITE = ["README.md", "index.md", "api.md", "changes.md"]
HEADINGS = ["Breaking Changes", "New Features", "Bug Fixes", "Documentation", "Others"]


def blocks(language: str, text: str = WORDS) -> list[str]:
    """Contents of the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)


def commands(program: str) -> list[str]:
    """Every command of a program, from shell blocks and from running text, long lines joined."""
    shown = "\n".join(blocks("sh")).replace("\\\n", " ").splitlines()
    prose = re.sub(r"^```.*?^```$", "", WORDS, flags=re.DOTALL | re.MULTILINE)
    shown += re.findall(r"`([^`\n]+)`", prose)
    return [line.removeprefix(".venv/bin/") for line in shown if re.match(rf"(\.venv/bin/)?{program} ", line)]


def table_rows(page: str, title: str) -> dict[str, list[str]]:
    """Cells by first cell, of the table of a page whose header begins with ``title``."""
    body = re.search(rf"^\| {title} \|.*\n\|[-| ]+\|\n((?:\|.*\n)+)", PAGES[page], flags=re.MULTILINE)
    assert body is not None
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in body.group(1).splitlines()]
    return {row[0]: row[1:] for row in rows}


@pytest.fixture(scope="module")
def example():
    """examples/baseline_returns.py as a module."""
    spec = importlib.util.spec_from_file_location("baseline_returns", ROOT / "examples" / "baseline_returns.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
        yield module
    finally:
        del sys.modules[spec.name]


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if "```python" in text])
def test_the_python_blocks_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Batch.load(ROOT / "cirl_gym" / "packaged" / "batch.npz").take(np.arange(60)).save("batch.npz")
    names: dict = {}
    for code in blocks("python", PAGES[page]):
        exec(compile(code, page, "exec"), names)


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z][\w-]*(?: [a-z][\w-]*)*):(?!=)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    known = {name for line in targets for name in line.split()}
    named = [word for line in commands("make") for word in shlex.split(line)[1:] if "=" not in word]
    assert {"demo", "test"} <= set(named)
    assert set(named) <= known


def test_commands_are_taken_by_the_command_line(monkeypatch):
    monkeypatch.chdir(ROOT)
    ran = []
    monkeypatch.setattr("irl.commands.explain.demo", lambda config, out: ran.append(("demo", str(out))))
    monkeypatch.setattr("irl.commands.explain.explain", lambda frame, config, out: ran.append(("explain", str(out))))
    monkeypatch.setattr("irl.commands.expert.command", lambda given: ran.append((given.algorithm, str(given.out))))
    monkeypatch.setattr("irl.commands.diagnose.command", lambda given: ran.append(("diagnose", str(given.run))))
    monkeypatch.setattr("irl.commands.compare.command", lambda given: ran.append(("compare", str(given.out))))
    monkeypatch.setattr("irl.commands.case_study.command", lambda given: ran.append((given.study, str(given.meds))))
    monkeypatch.setattr("irl.commands.why.command", lambda given: ran.append((given.patient, given.step)))
    monkeypatch.setattr("irl.commands.baselines.command", lambda given: ran.append(("baselines", str(given.run))))
    monkeypatch.setattr("irl.commands.benchmark.command", lambda given: ran.append(("benchmark", str(given.out))))
    monkeypatch.setattr("irl.commands.tune.search_settings", lambda given, *parts: ran.append(("tune", str(given.out))))
    monkeypatch.setattr("cirl_gym.tuning.search.read_tuned", lambda path: ("mb_h", OutcomeModelConfig()))
    lines = [line for line in commands("cirl") if len(line.split()) > 2]  # not where a command is only named
    lines += [f"cirl demo {shlex.split(line)[2].removeprefix('ARGS=')}" for line in commands("make") if "ARGS" in line]
    for line in lines:
        given = line.replace("TABLE", "examples/icu_like.csv").replace("PATIENT STEP", "ann 3")
        assert main(shlex.split(given)[1:]) == 0, line
    assert ("explain", "runs/icu") in ran
    assert ("explain", "runs/explain") in ran
    assert ("demo", "runs/demo") in ran
    assert ("drqn", "runs/expert") in ran
    assert ("diagnose", "runs/demo") in ran
    assert ("tune", "runs/tune") in ran
    assert ("benchmark", "runs/benchmark") in ran
    assert ("potassium", "DIR") in ran
    assert ("ann", 3) in ran


def test_options_named_alone_exist(capsys):
    named = set(re.findall(r"`(--[a-z-]+)", WORDS))
    shown = ""
    for command in ("demo", "explain", "case-study", "tune", "compare", "baselines", "benchmark"):
        with pytest.raises(SystemExit) as stop:
            main([command, "--help"])
        assert stop.value.code == 0
        shown += capsys.readouterr().out
    assert "--group" in named
    assert not {option for option in named if f"{option} " not in shown}


@pytest.mark.parametrize("page", PAGES)
def test_links_and_paths_exist(page):
    folder = ROOT if page == "README.md" else ROOT / "docs"
    links = [link for link in re.findall(r"\]\(([^)]+)\)", PAGES[page]) if not link.startswith("https://")]
    paths = re.findall(r"`([\w.-]+/[\w./-]*)`", PAGES[page])
    missing = [link for link in links if not (folder / link.split("#")[0]).exists()]
    missing += [path for path in paths if not path.startswith(("runs/", ".venv/")) and not (ROOT / path).exists()]
    assert not missing


def test_modules_named_in_the_docs_exist():
    named = re.findall(r"`((?:cirl_gym|agents|irl)(?:\.\w+)+)[`(]", WORDS)
    assert "cirl_gym.interop" in named
    for name in named:
        pkgutil.resolve_name(name)


def test_every_page_is_linked_and_the_readme_is_short():
    assert not [page for page in PAGES if page not in OF_THE_SITE and f"(docs/{page})" not in PAGES["README.md"]]
    assert len(PAGES["README.md"].splitlines()) <= 150


def test_the_readme_says_which_file_must_come_from_a_trusted_source():
    said = " ".join(PAGES["README.md"].split())
    assert "only `expert.zip` (DRQN and RecurrentPPO) holds pickles: read one only from a source that you trust" in said


def test_the_pictures_of_rows_and_time_are_those_that_the_script_draws(tmp_path):
    spec = importlib.util.spec_from_file_location("draw_timing", ROOT / "examples" / "draw_timing.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    script.main(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"timing_measurements.svg", "timing_bins.svg"}
    for drawn in tmp_path.iterdir():  # other versions of Matplotlib write other numbers
        said = [
            re.findall(r"<!--(.*?)-->|>([^<>]+)</text>", path.read_text())
            for path in (drawn, ROOT / "docs" / drawn.name)
        ]
        assert said[0] == said[1]
        assert len(said[0]) > 10


def test_the_table_of_columns_names_the_columns():
    header = (ROOT / "examples" / "icu_like.csv").read_text().splitlines()[0].split(",")
    named = [name for cell in table_rows("tables.md", "column") for name in re.findall(r"`(\w+)`", cell)]
    assert [name for name in named if name not in header] == []
    covariates = header[header.index("temperature") : header.index("lactate") + 1]
    assert [name for name in header if name not in covariates] == [n for n in named if n not in covariates]
    assert f"{len(covariates)} observed covariates" in PAGES["tables.md"]


def test_the_keys_of_the_result_are_all_named():
    cells = table_rows("result_json.md", "key of `result.json`")
    named = [key for cell in cells for key in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(["schema", *Result.__struct_fields__])


@pytest.mark.parametrize("name", ["random", "never treat", "always treat"])
def test_baseline_returns_come_out_again(example, name):
    printed = [re.fullmatch(r"(-?[\d.]+) ± ([\d.]+)", cell) for cell in table_rows("benchmarks.md", "policy")[name][:2]]
    patients = example.draw_patients(300, seed=1)  # other patients and noise than the README's
    again = example.simulated_returns(example.treat(example.constant_policies(1)[name], patients, 1, noise=True))
    for text, mean in zip(printed, again, strict=True):
        value, error = float(text[1]), float(text[2])
        assert abs(mean.value - value) <= 4 * np.hypot(mean.error, error)
        assert error == pytest.approx(mean.error * np.sqrt(300 / 1000), rel=0.3)


def test_the_best_plan_earns_the_exact_optimum(example):
    patient = np.array([[12.0, 1.5]])
    best = optimum(example.PARAMETERS, patient, example.CRITERIA)
    for k, (w, gamma) in enumerate(example.CRITERIA):
        played = example.treat(example.Plans(best.plans[:, k]), patient, 0, noise=False)
        assert returns(played, example.FEATURE_MAP, w, gamma)[0] == pytest.approx(best.values[0, k], abs=1e-9)


def test_the_tables_of_the_example_are_those_of_the_docs(example):
    """Headers and row names, without the long search and training."""
    patients = example.draw_patients(2, 0)
    optima = np.zeros((2, len(example.CRITERIA), example.PARAMETERS.horizon), dtype=np.int64)
    lines = example.optima_table(patients, optima, 0).splitlines()
    assert lines[0] in PAGES["benchmarks.md"]
    assert [line.split(" | ")[0].strip("| ") for line in lines[2:]] == list(table_rows("benchmarks.md", "w"))


@pytest.mark.slow
def test_the_shown_answer_comes_out_again(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    (line,) = {line for line in commands("cirl") if "--out runs/twin" in line}
    assert main(shlex.split(line.replace("runs/twin", str(tmp_path)))[1:]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    (text, *_) = blocks("text", PAGES["README.md"])
    shown = dict(re.findall(r"^(\w+\(\w+, [\d.]+\)) +(-\d\.\d+)  ", text, re.MULTILINE))
    assert {name: float(value) for name, value in shown.items()} == pytest.approx(
        dict(zip(result["features"], result["weights"], strict=True)), abs=0.02
    )


def test_the_changelog_has_the_fixed_headings():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## Release (.+)$", text, re.MULTILINE)[-1] == "0.1.0"
    for release in text.split("\n## ")[1:]:
        assert re.findall(r"^### (.+)$", release, re.MULTILINE) == HEADINGS
