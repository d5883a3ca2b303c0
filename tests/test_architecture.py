"""The shape of the code, computed from its imports: what may import what, what an import loads, who prints."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for package in ("cirl_gym", "agents", "irl") for path in (ROOT / package).rglob("*.py"))
LAZY_DOORS = {
    ("cirl_gym.data.batch", "cirl_gym.tables"),
    ("agents.successor.agent", "agents.successor.training"),
}
"""``Batch.from_dataframe`` and ``SuccessorAgent.fit`` call, when they are called, what is built on their class."""
PAPER_ALONE = ("irl.max_margin", "irl.preferences", "irl.result", "irl.report")
"""What works with numbers alone, whoever computed them: these never see agents."""


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_name(path): path for path in FILES}


def imports_of(code: str) -> Iterator[str]:
    """Absolute names of all that a module imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def module_of(name: str) -> str | None:
    """The module of ours that an imported name stands in."""
    while name and name not in MODULES:
        name = name.rpartition(".")[0]
    return name or None


IMPORTS = {module: set(imports_of(path.read_text())) for module, path in MODULES.items()}
ARROWS = {
    (module, target)
    for module, names in IMPORTS.items()
    for target in map(module_of, names)
    if target is not None
    and target != module
    and not any(module == door and within(target, behind) for door, behind in LAZY_DOORS)
}


def layers() -> list[str]:
    """Packages and single modules from top to bottom, as docs/architecture.md lists them."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    block = re.search(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert block is not None
    return re.findall(r"^(\w[\w.]*)", block.group(1), re.MULTILINE)


def layer_of(module: str) -> str | None:
    found = [layer for layer in layers() if within(module, layer)]
    return max(found, key=len, default=None)


def test_the_walk_sees_every_form_of_import() -> None:
    code = (
        "import a.b as c\nfrom d import e, f\ndef g():\n    from h import i\nif TYPE_CHECKING:\n    from j.k import l\n"
    )
    assert set(imports_of(code)) == {"a.b", "d.e", "d.f", "h.i", "j.k.l"}
    assert module_of("cirl_gym.data.batch.Batch") == "cirl_gym.data.batch"
    assert ("cirl_gym.data.rollout", "cirl_gym.data.batch") in ARROWS
    assert all(any(within(name, behind) for name in IMPORTS[door]) for door, behind in LAZY_DOORS)


def test_there_is_no_circle_of_modules() -> None:
    graph: dict[str, set[str]] = {}
    for module, target in ARROWS:
        graph.setdefault(module, set()).add(target)
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_every_arrow_points_down() -> None:
    order = {layer: place for place, layer in enumerate(layers())}
    where = {module: layer_of(module) for module in MODULES if module.count(".") or module in order}
    assert not [module for module, layer in where.items() if layer is None]
    up = [
        f"{module} imports {target}"
        for module, target in ARROWS
        if module in where and target in where and order[str(where[module])] > order[str(where[target])]
    ]
    assert not sorted(up)


@pytest.mark.parametrize("package", PAPER_ALONE)
def test_what_works_with_numbers_never_sees_agents(package: str) -> None:
    assert not [a for a in ARROWS if within(a[0], package) and within(a[1], "agents")]


def test_only_commands_print() -> None:
    printing = [
        f"{module}:{node.lineno}"
        for module, path in MODULES.items()
        if not within(module, "irl.commands")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printing


@pytest.mark.parametrize("package", ["cirl_gym", "irl"])
def test_importing_a_package_loads_nothing_heavy_and_prints_nothing(package: str) -> None:
    heavy = ("torch", "stable_baselines3", "sb3_contrib", "pandas", "matplotlib", "sklearn")
    code = f"import sys, {package}; sys.exit(', '.join(sorted(set({heavy}) & set(sys.modules))) or 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_module_is_a_drawer_for_everything() -> None:
    assert not [path for path in FILES if path.stem in ("utils", "util", "helpers", "helper", "common", "misc")]
