"""Render the page: one HTML file without external resources. Its policy forbids every request.

Its sections are charts and tables from the rows of the queries. Text from clients always stays plain text.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from offsetstream.errors import shortened
from offsetstream.report import charts
from offsetstream.report.queries import Found, Row

_GROUPS_A_CHART = 40
_LONGEST = 80
_SPACES = re.compile(r"^ | $|(?<= ) ")  # HTML collapses these spaces
_SIZES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_UNFOLDED_LAGS, _UNFOLDED_OWNERS, _UNFOLDED_PIECES = 60, 3, 3
_FLOOR = 0.1  # share of the greatest lag that every scale covers, so that small lags look small
_MORE = 1000  # rows of a table; the rest is only counted
_TABLE = 300
_FIRST = 20  # audit rows that are not folded


def render(found: Found, *, hosts: bool = False, warnings: Sequence[str] = ()) -> str:
    """Return the page. Client hosts appear only if `hosts` is true; `warnings` appear in red at the top."""
    labels = Labels()
    shown = {
        "lag": _lag(found, labels),
        "rebalances": _rebalances(found, labels),
        "owners": _owners(found, labels),
        "commits": _commits(found, labels),
        "coordinators": _coordinators(found, labels),
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


@dataclass
class Figure:
    """A chart with its title, whether it is folded, and its legend (names with colours)."""

    title: str
    chart: charts.Spec
    is_folded: bool = False
    legend: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Section:
    """Charts of one subject and the same data as a table. `has_twins`: there are more names than colours."""

    figures: list[Figure] = field(default_factory=list)
    headings: Sequence[str] = ()
    rows: list[Sequence[Any]] = field(default_factory=list)
    has_twins: bool = False


def _lag(found: Found, labels: Labels) -> Section:
    """Return the lag of each group. If some groups are not OK, the others are folded."""
    lines = found.by_group("lag")
    greatest = max([row["lag"] for row in found.rows["lag"] if row["lag"] is not None], default=0)
    bad = {row["group_id"] for row in found.rows["status"] if row["is_bad"]}
    section = Section(headings=("Group", "Lag first", "Greatest lag", "Lag last"))
    for number, group in enumerate(_in_order(found, lines)):
        rows = lines[group]
        drawn = [(row["seconds"], row["lag"]) for row in rows]
        drawn.append((round(found.period.seconds), rows[-1]["lag"]))
        chart = charts.lag_chart(drawn, max(10, _FLOOR * greatest))
        is_folded = number >= _UNFOLDED_LAGS or (bool(bad) and group not in bad)
        section.figures.append(Figure(labels[group], chart, is_folded))
        values = [row["lag"] for row in rows if row["lag"] is not None]
        section.rows.append((labels[group], rows[0]["lag"], max(values, default=None), rows[-1]["lag"]))
    return section


def _rebalances(found: Found, labels: Labels) -> Section:
    """Return the rebalances of each group."""
    lines = found.by_group("rebalances")
    section = Section(headings=("Group", "Rebalances", "Members left", "Members joined"))
    names = ("rebalances", "members_left", "members_joined")
    for number, groups in enumerate(_pieces(_in_order(found, lines))):
        rows = [(labels[group], row["seconds"], *(row[n] for n in names)) for group in groups for row in lines[group]]
        chart = charts.rebalances_chart([labels[group] for group in groups], rows)
        section.figures.append(Figure("Rebalances of " + _names(groups, labels), chart, number >= _UNFOLDED_PIECES))
        section.rows += [(labels[group], *(sum(row[n] for row in lines[group]) for n in names)) for group in groups]
    return section


def _owners(found: Found, labels: Labels) -> Section:
    """Return the owners of partitions: groups with the most rebalances first, the others folded."""
    lines, moved = found.by_group("owners"), found.by_group("rebalances")
    count = {group: sum(row["rebalances"] for row in moved.get(group, ())) for group in lines}
    groups = sorted(_in_order(found, lines), key=lambda group: -count[group])
    section = Section(headings=("Group", "Partition", "Owners", "Changes of owner", "Without owner, seconds"))
    for number, group in enumerate(groups):
        owned: dict[str, list[Row]] = {}
        for row in lines[group]:
            owned.setdefault(f"{labels[row['topic']]}-{row['partition']}", []).append(row)
        rows = [
            (partition, labels[row["owner"]], row["seconds"], row["until"])
            for partition, stretches in owned.items()
            for row in stretches
        ]
        names = list(dict.fromkeys(row[1] for row in rows))
        section.has_twins |= len(names) > len(charts.PALETTE)
        chart = charts.owners_chart(list(owned), names, rows)
        title = f"{labels[group]}: {count[group]} rebalance{'' if count[group] == 1 else 's'}"
        section.figures.append(Figure(title, chart, number >= _UNFOLDED_OWNERS, charts.legend(names)))
        section.rows += [_owned(labels[group], partition, each, labels) for partition, each in owned.items()]
    return section


def _owned(group: str, partition: str, rows: list[Row], labels: Labels) -> Sequence[Any]:
    names = list(dict.fromkeys(labels[row["owner"]] for row in rows))
    covered, end = 0.0, rows[0]["seconds"]
    for row in rows:
        covered += max(0.0, row["until"] - max(row["seconds"], end))
        end = max(end, row["until"])
    return group, partition, shortened(names, 5), len(rows) - 1, round(end - rows[0]["seconds"] - covered, 1)


def _commits(found: Found, labels: Labels) -> Section:
    """Return the commits of each group."""
    lines = found.by_group("commits")
    most = max((row["commits"] for row in found.rows["commits"]), default=0)
    section = Section(headings=("Group", "Commits"))
    for number, groups in enumerate(_pieces(_in_order(found, lines))):
        rows = [(labels[group], row["seconds"], row["commits"]) for group in groups for row in lines[group]]
        chart = charts.commits_chart(found.period, [labels[group] for group in groups], rows, most)
        section.figures.append(Figure("Commits of " + _names(groups, labels), chart, number >= _UNFOLDED_PIECES))
        section.rows += [(labels[group], sum(row["commits"] for row in lines[group])) for group in groups]
    return section


def _coordinators(found: Found, labels: Labels) -> Section:
    """Return the coordinator of each offsets partition."""
    cells = found.rows["coordinators"]
    section = Section(headings=("Offsets partition", "Broker", "Records", "Busiest group"))
    if not cells:
        return section
    named = [("none" if row["coordinator_id"] is None else str(row["coordinator_id"]), row) for row in cells]
    brokers = sorted({broker for broker, _ in named}, key=lambda broker: (not broker.isdigit(), len(broker), broker))
    places = [(row["offsets_partition"], broker, row["records"]) for broker, row in named]
    chart = charts.coordinators_chart(brokers, [(place[0] % 10, place[0] // 10, *place) for place in places])
    legend = charts.legend([broker if broker == "none" else f"broker {broker}" for broker in brokers])
    section.has_twins = len(brokers) > len(charts.PALETTE)
    section.figures.append(Figure("Coordinators of the offsets partitions", chart, legend=legend))
    for broker, row in named:
        busiest = labels[row["busiest_group"]] if row["busiest_group"] else None
        section.rows.append((row["offsets_partition"], broker, row["records"], busiest))
    return section


def _in_order(found: Found, groups: dict[str, Any]) -> list[str]:
    """Return the groups in the order of the status table: those that are not OK first."""
    known = [row["group_id"] for row in found.rows["status"]]
    return [group for group in known if group in groups] + sorted(set(groups) - set(known))


def _pieces(groups: list[str]) -> Iterator[Sequence[str]]:
    return (groups[at : at + _GROUPS_A_CHART] for at in range(0, len(groups), _GROUPS_A_CHART))


def _names(groups: Sequence[str], labels: Labels) -> str:
    return labels[groups[0]] if len(groups) == 1 else f"{labels[groups[0]]} to {labels[groups[-1]]}"


class Labels:
    """Display labels of names. Different names always get different labels."""

    def __init__(self) -> None:
        self._labels: dict[str | None, str] = {}
        self._taken: dict[str, int] = {}

    def __getitem__(self, name: str | None) -> str:
        """Return the label of a name."""
        if name not in self._labels:
            label = "-" if name is None else _clipped(name) or "(empty)"
            number = self._taken[label] = self._taken.get(label, 0) + 1
            self._labels[name] = label if number == 1 else f"{label} #{number}"
        return self._labels[name]


def _clipped(text: str) -> str:
    """Return printable text, shortened to fit the page, with visible spaces."""
    shown = _SPACES.sub(r"\\x20", _printable(text[: _LONGEST + 1]))
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 20]}… ({len(text)} characters)"


def _printable(text: str) -> str:
    r"""Return text with unprintable characters as Python escapes: `\x1b`, `\u202e`."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _duration(seconds: float | None) -> str:
    """Return a duration in its two greatest units; a dash for None."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    at = next((at for at, (size, _) in enumerate(_SIZES) if whole >= size), len(_SIZES) - 1)
    (size, unit), (smaller, its_unit) = _SIZES[at], _SIZES[min(at + 1, len(_SIZES) - 1)]
    rest = whole % size // smaller
    return f"{whole // size} {unit}" + (f" {rest} {its_unit}" if rest else "")


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
    environment.filters |= {"instant": _instant, "clock": _clock, "duration": _duration, "span": _span}
    return environment


def _shown(value: Any) -> Any:
    if value is None:
        return "-"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


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
