"""The page in a browser: its requests, its drawing, and its use by screen reader, phone, paper and keyboard."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pypdf import PdfReader

from testkit.browser import Scheme, Visit

pytestmark = pytest.mark.nightly

Open = Callable[..., Visit]
# A chart's drawing: marks by layer, each with path and place; the extent of the chart and of its texts.
_DRAWN = """
  () => [...document.querySelectorAll(".chart")].map((chart) => {
    const box = (each) => { const b = each.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
    const marks = {};
    for (const layer of chart.querySelectorAll(".role-mark"))
      marks[layer.classList[0]] = [...layer.children].map((each) => ({ d: each.getAttribute("d"), box: box(each) }));
    return { number: Number(chart.dataset.chart), marks, box: box(chart.querySelector("svg")),
      words: [...chart.querySelectorAll("text")].filter((each) => each.textContent).map(box) };
  })"""
_UNFOLDED_TEXTS = """
  (all) => all.filter((each) => !each.closest("details:not([open])")).map((each) => each.textContent)"""
_WIDER = """
  () => [...document.body.querySelectorAll("*")].filter((each) => each.checkVisibility() &&
    (each.getBoundingClientRect().right > innerWidth + 1 || each.scrollWidth > each.clientWidth + 1 &&
      getComputedStyle(each).overflowX !== "visible")
    // Of a table as cards the heads are there for screen readers only.
    && getComputedStyle(each.closest("thead") ?? each).position !== "absolute").map((each) => each.outerHTML)"""


def test_the_page_sends_no_request(visit: Open, page: Path, internet: tuple[str, list[str]]) -> None:
    shown = visit(page)
    shown.unfold()
    shown.draw()
    shown.page.pdf()
    assert shown.requests == [page.as_uri()]
    assert internet[1] == []
    assert shown.complaints == []


@pytest.mark.parametrize("width", [1200, 420])
def test_each_chart_has_a_mark_for_each_row(visit: Open, page: Path, width: int) -> None:
    shown = visit(page, width)
    shown.unfold()
    shown.draw()
    charts = json.loads(shown.page.inner_text("#data"))["charts"]
    drawings: list[dict[str, Any]] = shown.page.evaluate(_DRAWN)
    assert sorted(drawing["number"] for drawing in drawings) == list(range(len(charts)))
    assert bool(charts) == (page.stem != "empty")
    for drawing in drawings:
        chart = charts[drawing["number"]]
        counted = {layer: len(marks) for layer, marks in drawing["marks"].items()}
        if "lag" in chart["columns"]:
            assert counted == {"mark-area": 1, "mark-line": 1}
            # A step is two lines: one along, one up or down.
            assert drawing["marks"]["mark-line"][0]["d"].count("L") == 2 * (len(chart["rows"]) - 1)
        elif "broker" in chart["columns"]:
            assert counted == {"mark-rect": len(chart["rows"]), "mark-text": len(chart["rows"])}
        else:
            assert counted == {"mark-rect": len(chart["rows"])}
        boxes = [mark["box"] for marks in drawing["marks"].values() for mark in marks]
        assert all(box[2] > box[0] for box in boxes)
        assert [box for box in [*boxes, *drawing["words"]] if not _is_within(box, drawing["box"])] == []


def _is_within(box: list[float], whole: list[float]) -> bool:
    return all(box[at] >= whole[at] - 1 and box[at + 2] <= whole[at + 2] + 1 for at in (0, 1))


@pytest.mark.parametrize("width", [1200, 420])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_accessibility_rule_is_broken(visit: Open, page: Path, width: int, scheme: Scheme) -> None:
    shown = visit(page, width, scheme)
    assert shown.broken_rules() == []
    shown.unfold()
    shown.draw()
    assert shown.broken_rules() == []


def test_folded_parts_open_by_keyboard(visit: Open, pages: dict[str, Path]) -> None:
    shown = visit(pages["ordinary"])
    folded = shown.page.locator("details:not([open])")
    wanted = [each for each in folded.all() if each.locator(".chart").count()]
    assert [each.locator("svg").count() for each in wanted] == [0, 0]
    closed = folded.count()
    for _ in range(200):
        shown.page.keyboard.press("Tab")
        at = shown.page.evaluate("document.activeElement.closest('details:not([open])') !== null")
        if at:
            assert shown.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
            shown.page.keyboard.press("Enter")
            closed -= 1
        if shown.page.evaluate("document.activeElement === document.body"):
            break
    assert (closed, folded.count()) == (0, 0)
    shown.draw()
    charts = shown.page.locator(".chart").count()
    assert shown.page.locator(".chart svg").count() == charts


def test_a_phone_scrolls_only_vertically(visit: Open, page: Path) -> None:
    shown = visit(page, 420)
    shown.unfold()
    shown.draw()
    assert shown.page.evaluate("document.scrollingElement.scrollWidth") == 420
    assert shown.page.evaluate(_WIDER) == []


@pytest.mark.parametrize("width", [1200, 420])
def test_a_screen_reader_finds_tables(visit: Open, pages: dict[str, Path], width: int) -> None:
    shown = visit(pages["ordinary"], width)
    shown.unfold()
    session = shown.page.context.new_cdp_session(shown.page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    roles = [node["role"]["value"] for node in nodes if not node["ignored"]]
    for role, name in {"table": "table", "row": "tr", "columnheader": "th", "cell": "td"}.items():
        assert roles.count(role) == shown.page.locator(name).count(), role
    charts = [node["name"]["value"] for node in nodes if not node["ignored"] and node["role"]["value"] == "image"]
    assert len(charts) == shown.page.locator(".chart").count()
    assert all(name.endswith("as a chart; the table below has the same data") for name in charts)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_paper_shows_everything_that_is_not_folded(visit: Open, page: Path, scheme: Scheme) -> None:
    """Including charts that nobody has scrolled to."""
    shown = visit(page, scheme=scheme)
    paper = PdfReader(io.BytesIO(shown.page.pdf(format="A4")))
    printed = _squeezed(" ".join(each.extract_text() for each in paper.pages))
    words = shown.page.locator("h1, h2, h3, p, th, td, summary, .legend li, .chart text")
    wanted = [_squeezed(text) for text in words.evaluate_all(_UNFOLDED_TEXTS)]
    assert [text for text in wanted if text not in printed] == []
    shown.page.emulate_media(media="print")
    shown.page.set_viewport_size({"width": 700, "height": 990})  # A4 without margins
    unfolded = shown.page.locator(".chart:visible")
    assert unfolded.locator("svg").count() == unfolded.count()
    assert bool(unfolded.count()) == (page.stem != "empty")
    assert shown.page.evaluate(_WIDER) == []
    assert shown.page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert shown.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def _squeezed(text: str) -> str:
    """Return text without spaces and ligatures, which differ on paper."""
    return re.sub(r"\s", "", unicodedata.normalize("NFKC", text))
