"""Record an episode of CIRLTumour-v0 as a GIF.

    python examples/record_gif.py                                     docs/tumour.gif, the one in the README
    python examples/record_gif.py --policy always --seed 3 --out always.gif

Pillow, which writes the file, comes with matplotlib.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import gymnasium as gym
import numpy as np
from PIL import Image

COLOURS = 128
LAST = 2.5
"""Seconds for which the last picture stays."""
Policy = Callable[[np.ndarray], int]


def policies(rng: np.random.Generator) -> dict[str, Policy]:
    """From an observation [tumour, side effects, one-hot previous action] to 0 (leave alone) or 1 (treat)."""
    return {
        # Treats for as long as the side effects of the treatments so far are mild.
        "careful": lambda obs: int(obs[1] < 4.5),
        "always": lambda obs: 1,
        "never": lambda obs: 0,
        "random": lambda obs: int(rng.random() < 0.5),
    }


def record(policy: Policy, seed: int) -> tuple[list[np.ndarray], float]:
    """The pictures [H, W, 3] of one episode, and how many a second shows."""
    env = gym.make("cirl_gym:CIRLTumour-v0", render_mode="rgb_array")
    obs, _ = env.reset(seed=seed)
    frames, over = [env.render()], False
    while not over:
        obs, _, terminated, truncated, _ = env.step(policy(obs))
        frames.append(env.render())
        over = terminated or truncated
    env.close()
    return frames, env.metadata["render_fps"]


def write_gif(frames: list[np.ndarray], fps: float, path: Path) -> None:
    """All pictures in the colours of the last, which shows whatever the others show, so that nothing flickers."""
    # This method keeps white what is white; the others average it with what is nearly so.
    palette = Image.fromarray(frames[-1]).quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE)
    images = [Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    pauses = [round(1000 / fps)] * (len(images) - 1) + [round(1000 * LAST)]
    path.parent.mkdir(parents=True, exist_ok=True)
    images[0].save(path, save_all=True, append_images=images[1:], duration=pauses, loop=0, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record an episode of CIRLTumour-v0 as a GIF.")
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1] / "docs" / "tumour.gif")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policy", choices=sorted(policies(np.random.default_rng(0))), default="careful")
    asked = parser.parse_args()
    frames, fps = record(policies(np.random.default_rng(asked.seed))[asked.policy], asked.seed)
    write_gif(frames, fps, asked.out)
    print(f"{asked.out}: {len(frames)} pictures, {asked.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
