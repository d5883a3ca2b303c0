"""The shape of the code: which package may import which, what an import loads, how long files and functions are."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("cirl_gym", "agents", "irl")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TOP = {
    "irl.pipeline",
    "irl.checks.quality",
    "irl.stored_stages",
    "irl.studies.gammas",
    "irl.studies.members",
    "irl.settings",
    "irl.studies.baselines",
    "irl.evaluation",
    "irl.commands.explain",
    "irl.commands.expert",
    "irl.commands.tune",
    "irl.commands.diagnose",
    "irl.commands.compare",
    "irl.run",
    "irl.studies.judge",
    "irl.commands.baselines",
    "irl.commands.cli",
}
"""The only modules that see all three packages."""
SHOWING = ("irl.report", "irl.result.result", "irl.stages")
"""What only the top and the report itself may import: finding something does not depend on how it is shown."""
WITHOUT_TORCH = {"cirl_gym.outcome_models.oracle"}
LONGEST_FILE, LONGEST_FUNCTION = 300, 60


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def names_imported(tree: ast.Module, module: str, is_package: bool) -> Iterator[str]:
    """Absolute names of all that a module imports, wherever in it the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = module.split(".")
                kept = len(parents) - node.level + is_package
                base = ".".join([*parents[:kept], *filter(None, [node.module])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def imports_of(path: Path) -> set[str]:
    return set(names_imported(ast.parse(path.read_text()), module_name(path), path.name == "__init__.py"))


def within(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


def offences(modules: Iterator[tuple[str, str]]) -> list[str]:
    return [f"{module} imports {name}" for module, name in modules]


def edges(package: str) -> Iterator[tuple[str, str]]:
    for path in FILES:
        module = module_name(path)
        if within(module, package):
            yield from ((module, name) for name in sorted(imports_of(path)))


def test_the_walk_sees_every_form_of_import() -> None:
    code = "import a.b as c\nfrom d import e, f\ndef g():\n    from . import h\n    from ..i import j\n"
    assert set(names_imported(ast.parse(code), "p.q.r", False)) == {"a.b", "d.e", "d.f", "p.q.h", "p.i.j"}
    assert set(names_imported(ast.parse("from . import h"), "p.q", True)) == {"p.q.h"}
    assert ("cirl_gym.data.rollout", "cirl_gym.data.batch.Batch") in set(edges("cirl_gym"))


def test_cirl_gym_imports_neither_agents_nor_irl() -> None:
    assert not offences(e for e in edges("cirl_gym") if within(e[1], "agents") or within(e[1], "irl"))


def test_agents_do_not_import_irl() -> None:
    assert not offences(e for e in edges("agents") if within(e[1], "irl"))


def test_only_the_top_of_irl_imports_agents() -> None:
    assert not offences(e for e in edges("irl") if e[0] not in TOP and within(e[1], "agents"))


def test_finding_does_not_depend_on_showing() -> None:
    def allowed(module: str) -> bool:
        return module in TOP or any(within(module, shown) for shown in SHOWING)

    showing = ((module, name) for module, name in edges("irl") if any(within(name, shown) for shown in SHOWING))
    assert not offences(edge for edge in showing if not allowed(edge[0]))


@pytest.mark.parametrize("library", ["torch", "stable_baselines3", "sb3_contrib"])
def test_heavy_libraries_stay_where_they_belong(library: str) -> None:
    def allowed(module: str) -> bool:
        models = within(module, "cirl_gym.outcome_models") and module not in WITHOUT_TORCH
        return within(module, "agents") or module in TOP or (library == "torch" and models)

    heavy = ((module, name) for package in PACKAGES for module, name in edges(package) if within(name, library))
    assert not offences(edge for edge in heavy if not allowed(edge[0]))


def test_no_module_is_a_drawer_for_everything() -> None:
    assert not [path for path in FILES if path.stem in ("utils", "util", "helpers", "helper", "common", "misc")]


@pytest.mark.parametrize("package", ["cirl_gym", "irl"])
def test_importing_a_package_loads_nothing_heavy_and_prints_nothing(package: str) -> None:
    heavy = ("torch", "stable_baselines3", "sb3_contrib", "pandas", "matplotlib")
    code = f"import sys, {package}; sys.exit(', '.join(sorted(set({heavy}) & set(sys.modules))) or 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_files_are_short() -> None:
    assert FILES
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: lines for name, lines in lengths.items() if lines >= LONGEST_FILE}


def test_functions_are_short() -> None:
    lengths = {
        f"{module_name(path)}.{node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert not {name: lines for name, lines in lengths.items() if lines >= LONGEST_FUNCTION}
