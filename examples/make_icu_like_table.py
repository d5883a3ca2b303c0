"""Make examples/icu_like.csv: a synthetic table with the columns and the flaws of the real ICU tables.

Run: python examples/make_icu_like_table.py [FILE]

Nobody's data: every number is drawn here from a fixed seed. A patient has an infection that antibiotics fight:
untreated, temperature and white cells climb; treated, both fall, while creatinine creeps up. Each of these changes by

    next = now + rate[action] * (goal[action] - now) + noise

with noise that is drawn before the action and used whatever the action is, so that what would have happened under the
other action is defined. The clinician sees what the table shows (a value that was not measured is the last one known)
and treats by chance, the more likely the hotter and the more septic the patient, the less likely the worse the kidneys:
a trade-off that can be learnt from the table. The other twelve covariates wander around a level of the patient's own.

Flaws on purpose: fields that were not measured are empty, stays have unequal lengths, some patients have several stays,
ids have leading zeros, and the last row of a stay is an observation without an action.
"""

from __future__ import annotations

import csv
import io
import math
import sys
from pathlib import Path

import numpy as np

from cirl_gym.files import write_bytes

SEED = 20210503
STAYS = 200
LONGEST = 12

# name: (goal and rate untreated), (goal and rate treated), noise, start mean and sd, bounds, decimals, share missing
DRIVEN = {
    "temperature": ((39.0, 0.12), (36.7, 0.22), 0.20, (38.4, 0.7), (34.0, 42.0), 2, 0.04),
    "wbc": ((18.0, 0.10), (7.0, 0.16), 0.8, (14.0, 3.5), (0.5, 60.0), 1, 0.15),
    "creatinine": ((0.9, 0.12), (2.2, 0.07), 0.06, (1.1, 0.25), (0.3, 8.0), 2, 0.15),
}
# name: level over patients (mean, sd), pull towards the level, noise, bounds, decimals, share missing
WANDERING = {
    "heart_rate": ((88.0, 12.0), 0.4, 5.0, (35.0, 180.0), 0, 0.02),
    "mean_arterial_pressure": ((76.0, 8.0), 0.4, 5.0, (40.0, 130.0), 0, 0.02),
    "respiratory_rate": ((20.0, 3.0), 0.4, 2.5, (6.0, 45.0), 0, 0.02),
    "spo2": ((96.0, 1.5), 0.5, 1.0, (80.0, 100.0), 0, 0.02),
    "bun": ((24.0, 9.0), 0.2, 2.0, (3.0, 150.0), 0, 0.15),
    "platelets": ((210.0, 70.0), 0.2, 12.0, (10.0, 700.0), 0, 0.15),
    "hemoglobin": ((10.6, 1.5), 0.2, 0.3, (5.0, 17.0), 1, 0.12),
    "potassium": ((4.1, 0.3), 0.5, 0.25, (2.5, 6.5), 1, 0.10),
    "sodium": ((138.0, 3.0), 0.3, 1.5, (120.0, 160.0), 0, 0.10),
    "bicarbonate": ((24.0, 3.0), 0.3, 1.3, (8.0, 42.0), 0, 0.15),
    "glucose": ((138.0, 25.0), 0.5, 18.0, (50.0, 450.0), 0, 0.08),
    "lactate": ((1.9, 0.6), 0.4, 0.3, (0.4, 12.0), 1, 0.40),
}
ORDER = ["temperature", "wbc", *list(WANDERING)[:4], "creatinine", *list(WANDERING)[4:]]
HEADER = ["stay_id", "subject_id", "bin", *ORDER, "antibiotic", "terminated", "truncated"]


def treat_probability(temperature: float, wbc: float, creatinine: float) -> float:
    """The clinician's habit, from the last known values."""
    return 1.0 / (1.0 + math.exp(-(2.4 * (temperature - 37.6) + 0.30 * (wbc - 11.0) - 3.0 * (creatinine - 1.2))))


def death_probability(temperature: float) -> float:
    """Per bin; the hotter, the likelier."""
    return 0.05 if temperature > 39.0 else 0.008


def clip(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])


def make_stay(rng: np.random.Generator) -> tuple[list[dict[str, str]], list[int], bool]:
    """Readings as text of T + 1 rows, T actions, and whether the patient died."""
    levels = {name: clip(rng.normal(*spec[0]), spec[3]) for name, spec in WANDERING.items()}
    now = {name: clip(rng.normal(*spec[3]), spec[4]) for name, spec in DRIVEN.items()} | levels
    known = {"temperature": 37.6, "wbc": 11.0, "creatinine": 1.2}
    rows: list[dict[str, str]] = []
    actions: list[int] = []
    died = False
    while True:
        rows.append(observe(now, known, rng))
        noise = {name: rng.normal() for name in now}
        treat, death, discharge = rng.random(), rng.random(), rng.random()
        if actions and (died or len(actions) == LONGEST or discharge < 0.14):
            return rows, actions, died
        action = int(treat < treat_probability(**known))
        actions.append(action)
        for name, (untreated, treated, sd, _, bounds, _, _) in DRIVEN.items():
            goal, rate = treated if action else untreated
            now[name] = clip(now[name] + rate * (goal - now[name]) + sd * noise[name], bounds)
        for name, (_, pull, sd, bounds, _, _) in WANDERING.items():
            now[name] = clip(now[name] + pull * (levels[name] - now[name]) + sd * noise[name], bounds)
        died = death < death_probability(now["temperature"])


def observe(now: dict[str, float], known: dict[str, float], rng: np.random.Generator) -> dict[str, str]:
    """What is measured of a state, as text, empty where it is not; ``known`` takes up what is new."""
    shown = {}
    for name, value in now.items():
        decimals, missing = (DRIVEN.get(name) or WANDERING[name])[-2:]
        text = f"{value:.{decimals}f}" if rng.random() >= missing else ""
        shown[name] = text
        if text and name in known:
            known[name] = float(text)
    return shown


def make_table(seed: int = SEED, stays: int = STAYS) -> bytes:
    """The CSV file's bytes; the same seed gives the same bytes."""
    rng = np.random.default_rng(seed)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    subject = 0
    for number in range(stays):
        if number == 0 or rng.random() < 0.85:  # else the same patient comes back
            subject += 1
        rows, actions, died = make_stay(rng)
        for t, row in enumerate(rows):
            last = t == len(actions)
            action = "" if last else actions[t]
            ids = [f"{700 + 7 * number:06d}", f"{41 + 3 * subject:05d}", t]
            writer.writerow([*ids, *(row[name] for name in ORDER), action, int(last and died), int(last and not died)])
    return text.getvalue().encode("utf-8")


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("icu_like.csv")
    write_bytes(target, make_table())
    print(f"{target}: {STAYS} stays")
