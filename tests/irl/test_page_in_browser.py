"""The page in a browser without a window: nothing is cut, all of it works by keyboard, and axe-core finds no fault."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sample_result import sample_result, sample_what_if
from shown import page_of

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
BROWSER = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs Debian's chromium"),
    pytest.mark.skipif("CI" in os.environ, reason="a browser is not for continuous integration"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        # Without the sandbox, which containers do not let it have.
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


@contextmanager
def opened_page(browser: Any, path: Path, width: int) -> Iterator[Any]:
    """A file that is opened; no network, and no complaint."""
    context = browser.new_context(viewport={"width": width, "height": 800}, offline=True)
    opened, said = context.new_page(), []
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.on("request", lambda request: None if request.url.startswith("file:") else said.append(request.url))
    opened.goto(path.as_uri())
    yield opened
    context.close()
    assert said == []


@pytest.fixture(params=[(2, 1280), (15, 400)], ids=["two, wide", "fifteen, narrow"])
def page(request: pytest.FixtureRequest, browser: Any, tmp_path: Path) -> Iterator[Any]:
    """A page of two outcomes on a wide screen, one of fifteen on a narrow one."""
    d, width = request.param
    path = tmp_path / "report.html"
    path.write_text(page_of(sample_result(d), sample_what_if(d)), encoding="utf-8")
    with opened_page(browser, path, width) as opened:
        yield opened


def tab_to(page: Any, selector: str) -> None:
    """Press Tab until an element has the focus."""
    for _ in range(300):
        page.keyboard.press("Tab")
        if page.evaluate(f"document.activeElement === document.querySelector({selector!r})"):
            return
    pytest.fail(f"{selector} cannot be reached by Tab")


def test_panels_appear_and_nothing_is_cut(page: Any) -> None:
    assert page.locator("h1").is_visible()
    width = page.viewport_size["width"]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert all(page.locator("section").nth(i).is_visible() for i in range(page.locator("section").count()))
    cut = """[...document.querySelectorAll("td, tbody th, caption, p, dd, svg, h2")]
        .filter(e => e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1).length"""
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    assert page.evaluate(cut) == 0
    assert page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart") < 2000


def test_the_slider_changes_the_numbers_by_keyboard_alone(page: Any) -> None:
    bar = page.locator(".slider input").first
    shown = page.locator(".slider .now").first.locator("tbody td:last-child")
    tab_to(page, ".slider input")
    before = shown.all_inner_texts()
    page.keyboard.press("End")
    after = shown.all_inner_texts()
    assert after[0] == "100.0 %" != before[0]
    assert after[2] == "100.0 %"  # treated, by the sample's numbers
    assert bar.get_attribute("aria-valuetext") == "100.0 %"
    page.keyboard.press("Home")
    assert shown.all_inner_texts()[0] == "0.0 %"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator(".slider details").first.evaluate("fold => fold.open")


def test_patient_and_step_are_chosen_by_keyboard_alone(browser: Any, demo_run: Path) -> None:
    with opened_page(browser, demo_run / "report.html", 1280) as page:
        shown = page.locator(".chosen")
        seen = [shown.inner_text()]
        for number in (1, 2):
            tab_to(page, f".chooser select:nth-of-type({number})")
            page.keyboard.press("ArrowDown")
            seen.append(shown.inner_text())
        assert len(set(seen)) == 3
        page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
        assert axe.Axe().run(page).response["violations"] == []


def test_contrast_and_labels_pass_axe_core(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(e => e.open = true)")
    found = axe.Axe().run(page)
    assert found.response["violations"] == [], found.generate_report()


def test_a_print_leaves_folded_away_what_is(page: Any) -> None:
    page.emulate_media(media="print")
    fold = page.locator("details:not([open])").last
    assert fold.locator("summary").is_visible()
    assert not fold.evaluate("fold => fold.querySelector('summary ~ *').checkVisibility()")
