"""The page's charts: Vega-Lite specifications as plain dicts. Times in their rows are seconds since the period's start.

To keep a page of many groups small, rows have numbers instead of names, and charts share one time axis.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from offsetstream.report.queries import Period

Spec = dict[str, Any]
Rows = Sequence[Sequence[Any]]
# Okabe and Ito's colours: distinct for colour-blind people, on white and on black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C00", "#8A6FD1")
_DARK = PALETTE[0]  # text on it is white, on the others black
# Variables of the page's style, which has lighter colours for dark mode.
_BLUE, _ORANGE = "var(--mark)", "var(--left)"
_DAY = 86_400  # seconds
_ROW = 18  # pixels
_LABEL = 75  # pixels of a time label with its space
_LEGEND_ENTRIES = 16


def time_axis(period: Period) -> Spec:
    """Return the shared time axis, for charts without an x of their own."""
    ends = {"domainMin": {"expr": str(_ms(period.since))}, "domainMax": {"expr": str(_ms(period.until))}}
    scale = {"type": "utc", "nice": False} | ends
    named = "%m-%d %H:%M" if period.seconds > _DAY else "%H:%M" if period.seconds > _DAY / 100 else "%H:%M:%S"
    count = {"expr": f"max(2, floor(width / {_LABEL}))"}
    axis = {"title": "UTC", "labelOverlap": "greedy", "labelSeparation": 6, "format": named, "tickCount": count}
    return {"field": "t", "type": "temporal", "scale": scale, "axis": axis}


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _names(values: Sequence[str]) -> Spec:
    return {
        "field": "group",
        "type": "nominal",
        "sort": None,
        "scale": {"domain": list(values)},
        "axis": {"title": None, "labelLimit": 160, "grid": True},
    }


def _chart(columns: str, rows: Rows, height: int, spec: Spec) -> Spec:
    """Return the input of the page's script: column names, coded rows, and a specification without data."""
    fields = columns.split()
    names = {
        field: list(dict.fromkeys(row[at] for row in rows))
        for at, field in enumerate(fields)
        if rows and isinstance(rows[0][at], str)
    }
    numbers = {field: {name: number for number, name in enumerate(each)} for field, each in names.items()}
    coded = [
        [numbers[field][value] if field in numbers else value for field, value in zip(fields, row, strict=True)]
        for row in rows
    ]
    return {"columns": fields, "names": names, "rows": coded, "spec": {"width": "container", "height": height} | spec}


def legend(names: Sequence[str]) -> dict[str, str]:
    """Return the colours of names as in the charts; empty if there are too many to distinguish."""
    return _colors(names) if len(names) <= _LEGEND_ENTRIES else {}


def _colors(names: Sequence[str]) -> dict[str, str]:
    return {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(names)}


def lag_chart(rows: Rows, floor: float) -> Spec:
    """Return the lag chart of one group; its scale covers at least `floor`."""
    most = max([row[1] for row in rows if row[1] is not None], default=0)
    y = {
        "field": "lag",
        "type": "quantitative",
        "scale": {"domain": [0, max(floor, most)]},
        "axis": {"title": None, "labelExpr": "format(datum.value, '~s')", "tickCount": 3},
    }
    mark = {"type": "area", "interpolate": "step-after", "line": {"color": _BLUE}, "color": _BLUE, "fillOpacity": 0.25}
    return _chart("t lag", rows, 90, {"mark": mark, "encoding": {"y": y}})


def rebalances_chart(groups: Sequence[str], rows: Rows) -> Spec:
    """Return the chart of rebalances: a mark for each, tall and orange if a member left."""
    left = {"condition": {"test": "datum.left > 0", "value": _ORANGE}, "value": _BLUE}
    size = {"condition": {"test": "datum.left > 0", "value": _ROW - 3}, "value": _ROW / 2}
    encoding: Spec = {"y": _names(groups), "color": left, "size": size}
    encoding["tooltip"] = [{"field": name} for name in ("group", "rebalances", "left", "joined")]
    mark = {"type": "tick", "thickness": 2, "opacity": 1}
    return _chart("group t rebalances left joined", rows, _ROW * len(groups), {"mark": mark, "encoding": encoding})


def owners_chart(partitions: Sequence[str], owners: Sequence[str], rows: Rows) -> Spec:
    """Return the chart of partition owners of a group over time."""
    colors = _colors(owners)
    encoding = {
        "x2": {"field": "t2"},
        "y": _names(partitions) | {"field": "partition"},
        "color": {"field": "owner", "scale": {"domain": list(colors), "range": list(colors.values())}, "legend": None},
        "tooltip": [{"field": "partition"}, {"field": "owner"}],
    }
    mark = {"type": "bar", "height": {"band": 0.8}}
    return _chart("partition owner t t2", rows, _ROW * len(partitions), {"mark": mark, "encoding": encoding})


def commits_chart(period: Period, groups: Sequence[str], rows: Rows, most: int) -> Spec:
    """Return the chart of commits by group and bucket. More commits are darker; `most` is the full colour."""
    opacity = {
        "field": "commits",
        "type": "quantitative",
        "scale": {"type": "sqrt", "domain": [0, max(most, 1)], "range": [0.2, 1]},
        "legend": {"title": "commits", "orient": "bottom", "direction": "horizontal", "symbolFillColor": _BLUE},
    }
    encoding = {
        "x2": {"field": "t2"},
        "y": _names(groups),
        "opacity": opacity,
        "tooltip": [{"field": "group"}, {"field": "commits"}],
    }
    mark = {"type": "bar", "color": _BLUE, "height": {"band": 0.9}}
    end = {"calculate": f"min(datum.t + {1000 * period.step}, {_ms(period.until)})", "as": "t2"}
    spec = {"mark": mark, "encoding": encoding, "transform": [end]}
    return _chart("group t commits", rows, _ROW * len(groups), spec)


def coordinators_chart(brokers: Sequence[str], rows: Rows) -> Spec:
    """Return the chart of offsets partitions, ten per row, coloured by coordinator; pale means no records."""
    colors = _colors(brokers)
    place = {"x": {"field": "x", "type": "ordinal", "axis": None}, "y": {"field": "y", "type": "ordinal", "axis": None}}
    color = {
        "field": "broker",
        "scale": {"domain": list(colors), "range": list(colors.values())},
        "legend": None,
    }
    opacity = {"condition": {"test": "datum.records > 0", "value": 1}, "value": 0.2}
    cell = {"mark": {"type": "rect", "stroke": "currentColor", "strokeOpacity": 0.3}}
    cell["encoding"] = {"color": color, "opacity": opacity}
    cell["encoding"]["tooltip"] = [{"field": name} for name in ("partition", "broker", "records")]
    dark = json.dumps([broker for broker, its in colors.items() if its == _DARK])
    on_dark = {"test": f"datum.records > 0 && indexof({dark}, datum.broker) >= 0", "value": "#fff"}
    text = {"condition": [on_dark, {"test": "datum.records > 0", "value": "#000"}], "value": "currentColor"}
    number = {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": {"field": "partition"}, "color": text}}
    height = 26 * (1 + max((row[1] for row in rows), default=0))
    return _chart("x y partition broker records", rows, height, {"encoding": place, "layer": [cell, number]})
