"""Odd tables of benchmarks/fuzz_tables.py: read with an account that adds up, or refused in one clear sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_files import write_table
from fuzz_mutations import MUTATIONS, make_table
from fuzz_tables import PACKAGE, judged, no_clear_refusal, read, unaccounted, unlike_the_table

from cirl_gym.tables.read import PreparedTable


def faults(seeds: range) -> list[str]:
    return [f"--only {outcome.seed}: {outcome.told}" for outcome in judged(seeds) if outcome.faulty]


def test_every_kind_of_mutation_is_read_or_refused() -> None:
    assert len(MUTATIONS) > 45
    assert faults(range(len(MUTATIONS))) == []


@pytest.mark.slow
def test_a_thousand_odd_tables_are_read_or_refused() -> None:
    outcomes = judged(range(10_000, 11_000))
    assert [outcome.told for outcome in outcomes if outcome.faulty] == []
    assert {name for outcome in outcomes for name in outcome.kinds} == set(MUTATIONS)
    assert 150 < sum(outcome.told == "accepted" for outcome in outcomes) < 850


def test_a_seed_makes_one_table(tmp_path: Path) -> None:
    for seed in range(30):
        once, again = tmp_path / f"once{seed}", tmp_path / f"again{seed}"
        for folder in (once, again):
            folder.mkdir()
            write_table(make_table(seed), folder)
        files = [sorted(path for path in folder.rglob("*") if path.is_file()) for folder in (once, again)]
        assert [path.name for path in files[0]] == [path.name for path in files[1]]
        assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def accepted(folder: Path) -> tuple[PreparedTable, int]:
    """The first table of which nothing but the order of rows was changed, and its seed."""
    first = sorted(MUTATIONS).index("shuffled rows")
    for seed in range(first, 2000, len(MUTATIONS)):
        table = make_table(seed)
        if table.kinds == ["shuffled rows"]:
            return read(write_table(table, folder), table, seed), seed
    raise AssertionError


def test_the_counts_find_what_is_lost(tmp_path: Path) -> None:
    found, seed = accepted(tmp_path)
    table = make_table(seed)
    assert [*unaccounted(found, table), *unlike_the_table(found, table)] == []
    table.truth.iloc[0, table.truth.columns.get_loc("action")] = "another"
    assert unlike_the_table(found, table) == ["decisions by action are not those of the table"]
    table = make_table(seed)
    table.put(table.features[0], 0, "77")
    table.unclear.discard(table.features[0])
    assert unlike_the_table(found, table) == [f"readings of {table.features[0]!r} are not those of the table"]
    table.frame = table.frame.iloc[1:]
    assert "rows read are not the rows of the file" in unaccounted(found, table)


def test_what_is_no_refusal_of_the_projects_own() -> None:
    def why(source: str, file: str = f"{PACKAGE}/tables/none.py") -> str:
        try:
            exec(compile(source, file, "exec"), {})
        except Exception as error:
            return no_clear_refusal(error, Path("t.csv"))
        return ""

    assert why("int('x')").startswith("not of the project's own wording: ValueError")
    assert why("raise KeyError('column')") == "KeyError: \"'column'\""
    assert why("raise ValueError('column x')", "/elsewhere/pandas.py").startswith("not of the project's own wording")
