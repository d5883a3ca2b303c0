"""Make the run on which ``gymnasium.make("CIRLCounterfactual-v0")`` stands where no other is given.

It is what ``cirl demo`` leaves for 2,000 simulated episodes: the training episodes, the outcome model fitted to them,
and what was found. About three minutes on one core.

    python examples/make_packaged_run.py [--out cirl_gym/packaged]
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from cirl_gym.envs.counterfactual import PACKAGED
from irl.commands.explain import demo
from irl.settings import DemoConfig

KEPT = ("batch.npz", "outcome_model.npz", "result.json")
"""What the environment reads."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=PACKAGED, help="folder to write to")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # Erring experts show more of what can happen than careful ones: what nobody did, no model can foresee.
        demo(DemoConfig(episodes=2000, kappa=20.0), Path(folder))
        for name in KEPT:
            shutil.copyfile(Path(folder) / name, out / name)
            print(f"{out / name}: {(out / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
