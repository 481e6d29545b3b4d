"""Render the page: one HTML file without external resources. Its policy forbids every request."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from offsetstream.report import charts, sections
from offsetstream.report.queries import Found
from offsetstream.report.sections import Labels, duration, printable

_MORE = 1000  # rows of a table; the rest is only counted
_TABLE = 300
_FIRST = 20  # audit rows that are not folded


def render(found: Found, *, hosts: bool = False, warnings: Sequence[str] = ()) -> str:
    """Return the page. Client hosts appear only if `hosts` is true; `warnings` appear in red at the top."""
    labels = Labels()
    shown = {
        "lag": sections.lag(found, labels),
        "rebalances": sections.rebalances(found, labels),
        "owners": sections.owners(found, labels),
        "commits": sections.commits(found, labels),
        "coordinators": sections.coordinators(found, labels),
    }
    figures = [figure for section in shown.values() for figure in section.figures]
    numbers = {id(figure): number for number, figure in enumerate(figures)}
    environment = _environment()
    library, script = _library(), _source(environment, "page.js")
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("page.html").render(
        found=found,
        facts=found.rows["facts"][0],
        sections=shown,
        data={
            "start": round(found.period.since.timestamp() * 1000),
            "x": charts.time_axis(found.period),
            "charts": [figure.chart for figure in figures],
        },
        number_of=lambda figure: numbers[id(figure)],
        labels=labels,
        hosts=hosts,
        warnings=warnings,
        made_at=datetime.now(UTC),
        policy=Markup(policy),  # noqa: S704 - our own text and hashes
        library=library,
        script=script,
        style=_source(environment, "page.css"),
        most_rows=_MORE,
        table_rows=_TABLE,
        first_rows=_FIRST,
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("offsetstream.report", "page"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    environment.filters |= {"instant": _instant, "clock": _clock, "duration": duration, "span": _span}
    return environment


def _shown(value: Any) -> Any:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _library() -> Markup:
    # A known release without a closing script tag: a test checks this.
    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))  # noqa: S704


def _source(environment: jinja2.Environment, name: str) -> Markup:
    assert environment.loader is not None  # noqa: S101 - it was given above
    return Markup(environment.loader.get_source(environment, name)[0])  # noqa: S704 - a file of ours


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _instant(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def _clock(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%m-%d %H:%M:%S")


def _span(least: int | None, most: int | None) -> str:
    return "-" if least is None else f"{least:,}" if least == most else f"{least:,} … {most:,}"
