"""Environments of others, from their episodes to weights and a page, as README and docs print it."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from tiny_run import make_the_command_line_tiny

ROOT = Path(__file__).resolve().parents[2]


def recipe(page: str, word: str) -> str:
    """The one block of a page that holds a word."""
    blocks = re.findall(r"^```py\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    (found,) = [block for block in blocks if word in block]
    assert len([line for line in found.splitlines() if line.strip()]) <= 15
    return found


def test_cart_pole(tmp_path, monkeypatch):
    """Quick settings are made tiny here."""
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    make_the_command_line_tiny(monkeypatch)
    names: dict = {}
    exec(compile(recipe("README.md", "CartPole"), "README.md", "exec"), names)
    assert list(names["result"].weights.index) == names["weighed"]
    assert {path.name for path in tmp_path.iterdir()} == {"weights.png", "cartpole.html"}
    pyplot.close("all")


needs_icu_sepsis = pytest.mark.skipif(
    importlib.util.find_spec("icu_sepsis") is None, reason="needs icu-sepsis (tests/compat/sepsis.sh)"
)


@pytest.mark.slow
@needs_icu_sepsis
def test_clinicians_of_icu_sepsis_do_not_lean_to_survival():
    """By the process's own probabilities, as docs/own_environment.md has it."""
    code = "import gymnasium, icu_sepsis; mdp = gymnasium.make('Sepsis/ICU-Sepsis-v2').unwrapped; import numpy as np; "
    code += "np.savez('mdp.npz', expert=mdp.expert_policy, **{k: mdp.dynamics[k] for k in ('tx_mat', 'd_0')})"
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=folder, check=True, capture_output=True)
        with np.load(Path(folder, "mdp.npz")) as found:
            expert, following, first = found["expert"], found["tx_mat"], found["d_0"]
    recovery, going = following[:, :, 714], following.copy()
    going[:, :, 713:] = 0

    def survival(policy=None):
        """Chance by state and action of recovering, if the policy goes on from there; None: the best one."""
        chance = np.zeros(following.shape[:2])
        for _ in range(500):
            chance = recovery + going @ (chance.max(axis=1) if policy is None else (policy * chance).sum(axis=1))
        return chance

    best, own, drawn = survival(), survival(expert), survival(np.full_like(expert, 1 / 25))
    chances = [first @ each for each in (best.max(axis=1), (expert * own).sum(axis=1), drawn.mean(axis=1))]
    np.testing.assert_allclose(chances, [0.875, 0.782, 0.780], atol=5e-4)

    visited, now = np.zeros(716), first * (np.arange(716) < 713)
    for _ in range(300):
        visited, now = visited + now, np.einsum("s,sa,sat->t", now, expert, going)
    taken = (visited[:, None] * expert)[:713] / visited[:713].sum()

    def likely(kappa, values):
        logits = np.log(taken.sum(axis=0)) + kappa * values[:713]
        return float((taken * (logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))).sum())

    for values in (best, own):
        kappas = {kappa: likely(kappa, values) for kappa in (-5, 0, 5)}
        assert kappas[0] == pytest.approx(-2.163, abs=5e-4)
        assert max(kappas.values()) < kappas[0] + 5e-4
    assert float((taken * np.log(np.maximum(expert[:713], 1e-12))).sum()) == pytest.approx(-1.439, abs=5e-4)


@pytest.mark.slow
@needs_icu_sepsis
def test_icu_sepsis(tmp_path):
    code = recipe("docs/own_environment.md", "icu_sepsis")
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    print(told.stdout)
    assert "beyond habit" in told.stdout.lower()
    assert (tmp_path / "sepsis.html").stat().st_size < 5_000_000
