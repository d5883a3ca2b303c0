"""Odd tables, thousands of them: each is read whole, or refused in one clear sentence, and nothing else.

    python benchmarks/fuzz_tables.py [--tables 10000] [--first 0] [--only SEED]

Every table is made of its seed: a sound one, then one to four mutations (benchmarks/fuzz_mutations.py). It is read the
way ``cirl explain`` reads it, up to the batches. If it is accepted, the account must add up: every row of the file is
used or counted as left out, the batches hold what the account says, and what the mutations leave clear (ids, decisions
by action, readings) is what an independent count finds. If it is refused, that is a ValueError which the project itself
raises and which names a file, column, id, row or option. Another exception, a warning of pandas or NumPy, or more than
ten seconds of CPU time is a fault; ``--only`` makes its table again and shows where it came from. 10,000 tables take
four minutes of one core.
"""

from __future__ import annotations

import argparse
import json
import linecache
import re
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import numpy as np
from fuzz_files import write_table
from fuzz_mutations import MUTATIONS, FuzzedTable, make_table

import cirl_gym
from cirl_gym.data.batch import Batch
from cirl_gym.tables.columns import TableOptions, infer_columns
from cirl_gym.tables.files import read_table
from cirl_gym.tables.read import PreparedTable, prepare_table
from cirl_gym.tables.sheet import BadRows, Sheet

MOST_SECONDS = 10
"""Of CPU time for one table."""
PACKAGE = str(Path(cirl_gym.__file__).parent)
NAMED = re.compile(r"column|\bid\b|\bids\b|\brow|\bline\b|position|--\w|groups|patients|actions|outcome|features")
"""What a message of a table's fault speaks of, if it does not name the file."""


@dataclass(frozen=True)
class Outcome:
    """What became of one table."""

    seed: int
    kinds: tuple[str, ...]
    told: str
    """"accepted", "refused", or "fault: ..." in one line."""
    trace: str = ""
    """Of a fault or a refusal: where it was raised."""

    @property
    def faulty(self) -> bool:
        return self.told.startswith("fault")


class TooSlow(BaseException):
    """Not an Exception, so that nothing takes it for a fault of the file."""


def judge(seed: int, folder: Path) -> Outcome:
    """Make the table of a seed in an empty folder, and read it."""
    table = make_table(seed)
    path = write_table(table, folder)
    told, trace = "accepted", ""
    signal.setitimer(signal.ITIMER_VIRTUAL, MOST_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            found = read(path, table, seed)
        broken = [*unaccounted(found, table), *unlike_the_table(found, table)]
        told = f"fault: {'; '.join(broken)}" if broken else told
    except TooSlow:
        told, trace = f"fault: more than {MOST_SECONDS} s of CPU time", traceback.format_exc()
    except Exception as error:
        why = no_clear_refusal(error, path)
        told, trace = f"fault: {why}" if why else "refused", traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return Outcome(seed, tuple(table.kinds), told, trace)


def read(path: Path, table: FuzzedTable, seed: int) -> PreparedTable:
    """From the file to batches, as ``cirl explain`` does it."""
    sheet = Sheet(read_table(path))
    columns = infer_columns(sheet, **table.columns)
    found = prepare_table(sheet, columns, TableOptions(**table.options), rng=np.random.default_rng(seed))
    json.dumps(found.report.as_dict())
    if not all(isinstance(line, str) and line for line in found.report.lines()):
        raise TypeError("a line of the account is no text")
    return found


def no_clear_refusal(error: Exception, path: Path) -> str:
    """Why an exception is no refusal in the project's own words; empty if it is one."""
    told = f"{type(error).__name__}: {str(error)[:200]!r}"
    if type(error) not in (ValueError, BadRows):
        return told
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno or 0).strip()
    if not last.filename.startswith(PACKAGE) or not line.startswith("raise "):
        return f"not of the project's own wording: {told}"
    if "do not add up" in str(error):
        return told
    if not (str(path) in str(error) or NAMED.search(str(error))):
        return f"names nothing: {told}"
    return ""


def unaccounted(found: PreparedTable, table: FuzzedTable) -> list[str]:
    """Where the account and the batches do not agree with each other, or rows are lost."""
    report, splits = found.report, (found.train, found.validation, found.test)
    rows, episodes = report.rows, report.episodes
    decided = Counter[str]()
    for batch in splits:
        decided.update(batch.action_names[a] for a in batch.actions[batch.mask].tolist())
    owners = [set(batch.groups) for batch in splits]
    checks = {
        "rows read are not the rows of the file": "rows" in table.unclear or rows.read == len(table.frame),
        "rows do not add up": rows.read == rows.used + rows.identical + rows.merged + rows.lone + rows.cut + rows.bad,
        "rows of the batches": sum(int((batch.lengths + 1).sum()) for batch in splits) == rows.used,
        "decisions of the batches": sum(batch.n_steps for batch in splits) == episodes.steps,
        "episodes": sum(len(batch.ids) for batch in splits)
        == episodes.used
        == episodes.read - episodes.lone - episodes.bad,
        "ends": [
            sum(int(batch.terminated.sum()) for batch in splits),
            sum(int(batch.truncated.sum()) for batch in splits),
        ]
        == [episodes.terminated, episodes.truncated],
        "decisions by action": {counts.action: counts.times for counts in report.taken if counts.times}
        == dict(decided),
        "every split has somebody, nobody is in two": all(owners) and sum(map(len, owners)) == len(set.union(*owners)),
        "patients": len(set.union(*owners)) == episodes.groups,
        "finite readings": all(bool(np.isfinite(batch.obs).all()) for batch in splits),
        "readings add up": all(
            f.observed + f.empty + f.below + f.above == rows.used
            and f.carried + f.filled == f.empty + f.below + f.above
            for f in report.features
        ),
    }
    return [what for what, holds in checks.items() if not holds]


def unlike_the_table(found: PreparedTable, table: FuzzedTable) -> list[str]:
    """Where ids, decisions or readings are not those that the table was made with, as far as they are clear."""
    if found.report.rows.bad:
        return []
    truth = table.truth.loc[table.frame.index.unique()]
    sizes = truth.groupby("id")["order"].size()
    whole = truth[truth["id"].isin(sizes[sizes > 1].index)].sort_values(["id", "order"])
    splits = (found.train, found.validation, found.test)
    broken = []
    if "rows" not in table.unclear:
        lengths = {id: int(length) + 1 for batch in splits for id, length in zip(batch.ids, batch.lengths, strict=True)}
        if lengths != {str(id): int(size) for id, size in sizes.items() if size > 1}:
            broken.append("episodes or their lengths are not those of the table")
    if not {"rows", "actions"} & table.unclear:
        told = Counter({counts.action: counts.times for counts in found.report.taken if counts.times})
        if told != Counter(action for action in whole["action"] if action):
            broken.append("decisions by action are not those of the table")
    if "rows" in table.unclear:
        return broken
    first = table.frame[~table.frame.index.duplicated()]
    clear = sorted(set(found.train.features) & set(table.features) - table.unclear)
    wrong = [
        name for name in clear if readings(splits, name) != first[name].loc[whole.index].astype(np.float32).tolist()
    ]
    return [*broken, *(f"readings of {name!r} are not those of the table" for name in wrong)]


def readings(splits: tuple[Batch, ...], name: str) -> list[float]:
    """Of all episodes in the order of their ids, one after the other."""
    by_id = {}
    for batch in splits:
        column = batch.obs[..., batch.features.index(name)]
        by_id |= {
            id: row[: length + 1].tolist() for id, row, length in zip(batch.ids, column, batch.lengths, strict=True)
        }
    return [value for id in sorted(by_id) for value in by_id[id]]


def judged(seeds: range) -> list[Outcome]:
    """Every table of these seeds; faults are printed at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGVTALRM, stop)
    outcomes = []
    try:
        for seed in seeds:
            with tempfile.TemporaryDirectory() as folder:
                outcome = judge(seed, Path(folder))
            outcomes.append(outcome)
            if outcome.faulty:
                print(f"--only {seed} ({', '.join(outcome.kinds)}): {outcome.told}", flush=True)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    return outcomes


def summary(outcomes: list[Outcome]) -> str:
    """Tables by the kinds of their mutations (a table with two kinds counts in both)."""
    lines = [f"{'mutation':28}{'tables':>8}{'accepted':>10}{'refused':>9}{'faults':>8}"]
    for name in (*sorted(MUTATIONS), "all"):
        of = [outcome for outcome in outcomes if name == "all" or name in outcome.kinds]
        faults, accepted = sum(o.faulty for o in of), sum(o.told == "accepted" for o in of)
        lines.append(f"{name:28}{len(of):8}{accepted:10}{len(of) - accepted - faults:9}{faults:8}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first table")
    parser.add_argument("--only", type=int, help="the one table of this seed, and where what it ended with came from")
    chosen = parser.parse_args()
    began = time.process_time()
    seeds = range(chosen.first, chosen.first + chosen.tables)
    outcomes = judged(seeds if chosen.only is None else range(chosen.only, chosen.only + 1))
    if chosen.only is not None:
        print(f"{', '.join(outcomes[0].kinds)}: {outcomes[0].told}\n{outcomes[0].trace}")
        return int(outcomes[0].faulty)
    print(f"{summary(outcomes)}\n{time.process_time() - began:.0f} s of CPU time")
    return int(any(outcome.faulty for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
