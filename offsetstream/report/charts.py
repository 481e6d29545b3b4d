"""The page's charts: Vega-Lite specifications as plain dicts; times in their rows are seconds of the period."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from offsetstream.report.queries import Period

Spec = dict[str, Any]
Rows = Sequence[Sequence[Any]]
# Okabe and Ito's colours, which colour-blind people tell apart, on white and on black.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C8C00", "#8A6FD1")
_BLUE, _ORANGE = PALETTE[0], PALETTE[1]
_DAY = 86_400  # seconds
_ROW = 18  # pixels
_LEGEND_ENTRIES = 16


def _time(period: Period, field: str = "t") -> Spec:
    ends = {"domainMin": {"expr": str(_ms(period.since))}, "domainMax": {"expr": str(_ms(period.until))}}
    scale = {"type": "utc", "nice": False} | ends
    named = "%m-%d %H:%M" if period.seconds > _DAY else "%H:%M" if period.seconds > _DAY / 100 else "%H:%M:%S"
    axis = {"title": "UTC", "labelOverlap": "greedy", "format": named}
    return {"field": field, "type": "temporal", "scale": scale, "axis": axis}


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
    """Return what the page's script draws: rows under names of columns, and a specification that lacks them."""
    return {"columns": columns.split(), "rows": list(rows), "spec": {"width": "container", "height": height} | spec}


def lag_chart(period: Period, rows: Rows, floor: float) -> Spec:
    """Return the lag of one group; its scale reaches to `floor` at least."""
    most = max([row[1] for row in rows if row[1] is not None], default=0)
    y = {
        "field": "lag",
        "type": "quantitative",
        "scale": {"domain": [0, max(floor, most)]},
        "axis": {"title": None, "format": "~s", "tickCount": 3},
    }
    mark = {"type": "area", "interpolate": "step-after", "line": {"color": _BLUE}, "color": _BLUE, "fillOpacity": 0.25}
    return _chart("t lag", rows, 90, {"mark": mark, "encoding": {"x": _time(period), "y": y}})


def rebalances_chart(period: Period, groups: Sequence[str], rows: Rows) -> Spec:
    """Return a mark for each rebalance, of another colour and taller where a member left."""
    left = {"condition": {"test": "datum.left > 0", "value": _ORANGE}, "value": _BLUE}
    size = {"condition": {"test": "datum.left > 0", "value": _ROW - 3}, "value": _ROW / 2}
    encoding: Spec = {"x": _time(period), "y": _names(groups), "color": left, "size": size}
    encoding["tooltip"] = [{"field": name} for name in ("group", "rebalances", "left", "joined")]
    mark = {"type": "tick", "thickness": 2}
    return _chart("group t rebalances left joined", rows, _ROW * len(groups), {"mark": mark, "encoding": encoding})


def owners_chart(period: Period, partitions: Sequence[str], owners: Sequence[str], rows: Rows) -> Spec:
    """Return who owned which partition of a group, and when."""
    colors = [PALETTE[number % len(PALETTE)] for number in range(len(owners))]
    legend = {"title": None, "orient": "bottom", "columns": 4} if len(owners) <= _LEGEND_ENTRIES else None
    encoding = {
        "x": _time(period),
        "x2": {"field": "t2"},
        "y": _names(partitions) | {"field": "partition"},
        "color": {"field": "owner", "scale": {"domain": list(owners), "range": colors}, "legend": legend},
        "tooltip": [{"field": "partition"}, {"field": "owner"}],
    }
    mark = {"type": "bar", "height": {"band": 0.8}}
    return _chart("partition owner t t2", rows, _ROW * len(partitions), {"mark": mark, "encoding": encoding})


def commits_chart(period: Period, groups: Sequence[str], rows: Rows, most: int) -> Spec:
    """Return commits by group and bucket: the more, the less pale; `most` is what is not pale at all."""
    opacity = {
        "field": "commits",
        "type": "quantitative",
        "scale": {"type": "sqrt", "domain": [0, max(most, 1)], "range": [0.1, 1]},
        "legend": {"title": "commits", "orient": "bottom", "direction": "horizontal", "symbolFillColor": _BLUE},
    }
    encoding = {
        "x": _time(period),
        "x2": {"field": "t2"},
        "y": _names(groups),
        "opacity": opacity,
        "tooltip": [{"field": "group"}, {"field": "commits"}],
    }
    mark = {"type": "bar", "color": _BLUE, "height": {"band": 0.9}}
    return _chart("group t t2 commits", rows, _ROW * len(groups), {"mark": mark, "encoding": encoding})


def coordinators_chart(brokers: Sequence[str], rows: Rows) -> Spec:
    """Return the offsets partitions, ten in a row, in the colours of their coordinators; pale: nothing was written."""
    colors = [PALETTE[number % len(PALETTE)] for number in range(len(brokers))]
    place = {"x": {"field": "x", "type": "ordinal", "axis": None}, "y": {"field": "y", "type": "ordinal", "axis": None}}
    color = {
        "field": "broker",
        "scale": {"domain": list(brokers), "range": colors},
        "legend": {"title": "broker", "orient": "bottom", "columns": 4},
    }
    opacity = {"condition": {"test": "datum.records > 0", "value": 1}, "value": 0.2}
    cell = {"mark": {"type": "rect", "stroke": "currentColor", "strokeOpacity": 0.3}}
    cell["encoding"] = {"color": color, "opacity": opacity}
    cell["encoding"]["tooltip"] = [{"field": name} for name in ("partition", "broker", "records")]
    text = {"condition": {"test": "datum.records > 0", "value": "#000"}, "value": "#808080"}
    number = {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": {"field": "partition"}, "color": text}}
    height = 26 * (1 + max((row[1] for row in rows), default=0))
    return _chart("x y partition broker records", rows, height, {"encoding": place, "layer": [cell, number]})
