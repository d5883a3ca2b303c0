"""The synthetic table that ships, and the real ones beside a checkout, are read without an option or a warning."""

import importlib.util
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from small_tables import ICU_DATA

from cirl_gym.tables import infer_columns, read_table
from cirl_gym.tables.read import from_dataframe, prepare_table

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_example_table_is_what_its_script_makes_and_is_read_without_a_word() -> None:
    spec = importlib.util.spec_from_file_location("make_icu_like_table", EXAMPLES / "make_icu_like_table.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    made = script.make_table()
    assert (EXAMPLES / "icu_like.csv").read_bytes() == made
    assert len(made) < 150_000
    table = prepare_table(read_table(EXAMPLES / "icu_like.csv"), rng=np.random.default_rng(0))
    report = table.report
    columns = report.columns
    assert (columns.id, columns.group, columns.action) == ("stay_id", "subject_id", "antibiotic")
    assert len(report.columns.features) == 15
    assert report.warnings == ()
    assert report.episodes.used == 200 > report.episodes.groups
    assert all(name.startswith("000") for name in table.train.ids[:10])
    # The trade-off that the example is about: treatment lowers temperature and white cells and raises creatinine.
    change = table.train.next_obs - table.train.obs[:, :-1]
    treated, untreated = (change[table.train.mask & (table.train.actions == a)].mean(axis=0) for a in (1, 0))
    at = table.train.features.index
    assert treated[at("temperature")] < 0 < untreated[at("temperature")]
    assert treated[at("wbc")] < 0 < untreated[at("wbc")]
    assert treated[at("creatinine")] > 0 > untreated[at("creatinine")]


@pytest.mark.parametrize(
    ("name", "count", "subjects", "rows", "actions", "treated", "died", "no_lactate"),
    [
        ("mimic4_demo_24h", 77, 61, 433, 356, 275, 10, 59),
        ("mimic4_demo_12h", 86, 68, 758, 672, 446, 7, 101),
        ("eicu_demo_12h", 625, 556, 4365, 3740, 3011, 41, 2802),
    ],
)
def test_real_icu_tables_are_read_without_a_word(
    name: str, count: int, subjects: int, rows: int, actions: int, treated: int, died: int, no_lactate: int
) -> None:
    path = ICU_DATA / f"icu_antibiotics_{name}.csv"
    if not path.exists():
        pytest.skip("the real ICU tables are not beside this checkout (../shared/data)")
    frame = read_table(path)
    columns = infer_columns(frame)
    assert (columns.id, columns.group, columns.time, columns.action) == ("stay_id", "subject_id", "bin", "antibiotic")
    assert len(columns.features) == 15
    batch, report = from_dataframe(frame, columns)
    assert (len(batch), len(set(batch.groups)), batch.n_steps, report.rows.read) == (count, subjects, actions, rows)
    assert batch.actions[batch.mask].sum() == treated
    assert batch.action_names == ("0", "1")
    assert batch.terminated.sum() == died
    lactate = next(f for f in report.features if f.name == "lactate")
    assert (lactate.empty, lactate.carried, lactate.filled) == (no_lactate, 0, no_lactate)  # carried by its makers
    assert report.rows.used == rows
    assert report.warnings == ()
    assert not Counter(frame["stay_id"]) - Counter(dict(zip(batch.ids, (batch.lengths + 1).tolist(), strict=True)))
