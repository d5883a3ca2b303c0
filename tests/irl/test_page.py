"""What a page says, read without a browser: the first screen, the contents, repairs, settings, other weights."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from matplotlib.figure import Figure
from msgspec import structs
from sample_result import sample_result
from shown import page_of, printed_result, rows_of

from irl.report.notebook import notebook
from irl.report.overview import facts_of
from irl.report.plots import plot_weights, unread
from irl.report.run import report_of
from irl.report.section import MINUS, Details, Picture, Slider, Table, render, typeset
from irl.report.weights import weights_sections
from irl.result.result import Result


class Cells(HTMLParser):
    """Texts by the tag that they stand in."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, list[str]] = {}
        self.attributes: dict[str, list[dict[str, str | None]]] = {}
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes.setdefault(tag, []).append(dict(attrs))
        if tag not in ("wbr", "meta", "input"):
            self.open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_endtag(self, tag: str) -> None:
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data


def page(result: Result) -> Cells:
    return Cells(page_of(result))


def test_a_finding_is_worded_once_for_terminal_page_notebook_and_plots() -> None:
    result = structs.replace(
        sample_result(5), headline=("Reworded: yes.", "And more."), uninterpreted={"temperature": "for a new reason"}
    )
    shown = [printed_result(result, width=500), " ".join(html.unescape(page_of(result)).replace("<wbr>", "").split())]
    shown.append(notebook(report_of(result), "weights"))
    shown.append(plot_weights(result, Figure().add_subplot()).get_title("left"))
    assert all("Reworded: yes." in front for front in shown)
    assert all("And more." in front for front in shown[:3])
    assert all("temperature" in front for front in shown)
    assert unread(result) == {"temperature": "for a new reason"}
    assert "for a new reason" in shown[1]
    assert result.consequences is not None
    assert all(typeset(result.consequences.sentence) in typeset(front) for front in shown[:2])


def test_the_first_screen_says_what_was_read_when_and_how_much_outcomes_add() -> None:
    result = structs.replace(sample_result(15), config={"file": "stays.csv"})
    facts = dict(facts_of(result, "2026-01-31"))
    assert facts == {
        "File": "stays.csv",
        "Checksum (SHA-256)": "0c1d" * 16,
        "Date": "2026-01-31",
        "Patients": "70",
        "Stays": "77",
        "Decisions": "735",
        "Actions, with decisions": "wait (700), treat (35)",
        "What outcomes add beyond habit": "+0.108 (standard error 0.011) in the log-likelihood of a decision",
    }
    text = render(replace(report_of(result, date="2026-01-31"), sections=report_of(result).sections[:1]))
    assert text.index("<h1>") < text.index("stays.csv") < text.index("<nav") < text.index("<section")
    assert "Date" not in dict(facts_of(result))
    simulated = dict(facts_of(sample_result()))
    assert list(simulated) == ["File", "Episodes", "What outcomes add beyond habit"]
    assert simulated["Episodes"] == "10,000"


def test_of_many_actions_the_most_frequent_are_named() -> None:
    result = sample_result(15)
    taken = [{"action": f"a{i}", "times": 10 * i, "groups": 3} for i in range(9)]
    many = structs.replace(result, table={**result.table, "taken": taken})
    assert (
        dict(facts_of(many))["Actions, with decisions"]
        == "a8 (80), a7 (70), a6 (60), a5 (50), a4 (40), a3 (30), and 3 more"
    )


def test_the_contents_name_every_section() -> None:
    read = page(sample_result())
    links = [attributes["href"] for attributes in read.attributes["a"]]
    assert links == [f"#{attributes['id']}" for attributes in read.attributes["h2"]]
    assert read.texts["a"] == read.texts["h2"]


def test_every_repair_is_told_in_the_sentences_of_the_terminal() -> None:
    items = page(sample_result(15)).texts["li"]
    assert "Warning: the last row of a stay says little" in items
    assert "lactate (arterial, last): 41 empty; 41 carried forward" in items


def test_no_cell_is_written_in_a_programming_language() -> None:
    config = {
        "signs": {},
        "fit": {"windows": [], "forbid": ["treat when x"], "rates": [0.1, -2], "deep": [{"a": None}]},
    }
    config |= {"enforce_effects": False, "columns": {"id": "stay", "features": ["x", "y"]}}
    result = structs.replace(sample_result(15), config=config)
    read = page(result)
    cells = [text for tag in ("td", "th") for text in read.texts[tag]]
    assert not [text for text in cells if re.search(r"[{}\[\]\"]|\b(null|true|false|None|True|False)\b", text)]
    every = dict(rows_of(result, "run", "Every setting"))
    assert every["config.fit.rates"] == "0.1, -2"
    assert every["config.fit.deep.0.a"] == "not given"
    assert (every["config.fit.windows"], every["config.enforce_effects"]) == ("none", "no")
    asked = dict(rows_of(result, "run", "What was asked"))
    assert asked["column: id of a stay"] == "stay"
    assert asked["columns: observed"] == "x, y"
    assert asked["rules of what is forbidden"] == "treat when x"
    assert asked["known signs"] == "none"
    assert asked["parts of the cross-validation"] == "5"
    told = structs.replace(result, config={"signs": dict.fromkeys(result.features[:1], -1)})
    assert dict(rows_of(told, "run", "What was asked"))["known signs"].endswith(": lower is better")


def test_there_is_one_sign_for_minus() -> None:
    assert typeset("x-1 from -0.5 (-.3 to 1e-05), a-b, 2026-01-31") == (
        f"x-1 from {MINUS}0.5 ({MINUS}.3 to 1e{MINUS}05), a-b, 2026-01-31"
    )
    text = page_of(structs.replace(sample_result(), headline=("Beyond habit: yes.", "It weighs -0.29.")))
    assert f"It weighs {MINUS}0.29." in text
    for cell in Cells(text).texts["td"]:
        assert not re.search(r"(?<![\w-])-\d", cell)


def test_a_slider_stands_where_the_weights_are_and_lists_all_its_places() -> None:
    result = sample_result()
    (section,) = (one for one in report_of(result).sections if one.name == "other-weights")
    (slider,) = (part for part in section.page if isinstance(part, Slider))
    assert slider.found == 1
    assert [row[0] for row in slider.table.rows] == ["0.0 %", "29.0 %", "100.0 %"]
    assert slider.beside.rows[0] == ["share of all weights", "29.0 %", "29.0 %"]
    assert ["share of treat", "29.0 %", "29.0 %"] in slider.beside.rows
    read = page(result)
    (bar,) = (attributes for attributes in read.attributes["input"] if attributes["type"] == "range")
    assert (bar["min"], bar["max"], bar["value"]) == ("0", "2", "1")
    assert "other-weights" not in [one.name for one in report_of(structs.replace(result, consequences=None)).sections]
    with pytest.raises(ValueError, match="row 3 is none of 3"):
        Slider("s", "x", Table("t", ["a"], [["0"]] * 3), 3)


def test_what_no_weight_rests_on_has_no_slider() -> None:
    result = sample_result()
    unread = structs.replace(result, uninterpreted={result.features[0]: "its effects are unknown"})
    assert "other-weights" not in [one.name for one in report_of(unread).sections]


def test_ends_are_told_on_page_and_terminal_in_the_same_words() -> None:
    result = sample_result()
    (section,) = (one for one in report_of(result).sections if one.name == "endings")
    assert section.page[0] == section.terminal[0] == result.consequences.sentence
    told = structs.replace(result, headline=(*result.headline, result.consequences.sentence))
    assert [one.terminal for one in report_of(told).sections if one.name == "endings"] == [()]  # said above already
    rows = rows_of(result, "endings", "What every policy comes to")
    assert [row[0] for row in rows] == [
        *("experts, as observed", "experts, as predicted", "preferences alone (CIRL)", "always 1")
    ]
    assert rows[0][1:3] == ["17.3", "45.0 %"]


def test_a_page_with_nothing_to_move_has_no_script() -> None:
    result = structs.replace(sample_result(), consequences=None)
    assert "<script" not in page_of(result)
    folded = structs.replace(sample_result(), verdict="nothing beyond habit")
    assert any(isinstance(part, Details) for one in report_of(folded).sections for part in one.page)
    assert "script-src 'sha256-" in page_of(folded)  # its slider is in the fold


def test_a_radar_needs_three_weights_that_may_be_read() -> None:
    def drawn(result: Result) -> list[str]:
        parts = weights_sections(result)[0][0].page
        return [part.svg.func.__name__ for part in parts if isinstance(part, Picture)]

    result = sample_result(15)
    assert drawn(result) == ["weights_svg", "radar_svg"]
    unread = dict.fromkeys(result.features[2:], "its effects are unknown")
    assert drawn(structs.replace(result, uninterpreted=unread)) == drawn(sample_result()) == ["weights_svg"]
