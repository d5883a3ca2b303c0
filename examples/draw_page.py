"""The two pictures of a result in docs: the first screen of its page, and its weights as a radar.

    cirl explain examples/icu_like.csv --features temperature wbc creatinine \
        --lower-is-better temperature wbc creatinine --quick --out runs/icu
    python examples/draw_page.py runs/icu docs

writes page.png and radar.svg into the folder. The page is shown by Debian's chromium, without a window.
"""

import subprocess
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import irl

SCREEN = (860, 860)
"""Width and height of the first screen, pixels."""


def main(run, folder):
    """Draw both from the folder of a run."""
    page = Path(run, "report.html").resolve()
    shown = ["--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={SCREEN[0]},{SCREEN[1]}"]
    subprocess.run(["chromium", *shown, f"--screenshot={Path(folder, 'page.png')}", page.as_uri()], check=True)
    plt.rcParams.update({"svg.hashsalt": "radar", "svg.fonttype": "none"})
    axes = irl.load(run).plot_radar()
    axes.figure.savefig(Path(folder, "radar.svg"), metadata={"Date": None})


if __name__ == "__main__":
    main(*sys.argv[1:])
