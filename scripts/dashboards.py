"""Write monitoring/grafana/dashboards/ anew from the panels beside it, by Grafana's own classes (`make docs`)."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from grafana_foundation_sdk.builders import bargauge, common, dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as shapes
from grafana_foundation_sdk.models import dashboard as parts
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from offsetstream.metrics.families import COORDINATORS, job_families, queried_families

GRAFANA = Path(__file__).parents[1] / "monitoring" / "grafana"
DASHBOARDS = ("offsetstream-job", "consumer-groups")
SOURCE = parts.DataSourceRef("prometheus", "${datasource}")
AnyPanel: TypeAlias = stat.Panel | timeseries.Panel | table.Panel | bargauge.Panel
_KINDS = {"stat": stat.Panel, "timeseries": timeseries.Panel, "table": table.Panel, "bargauge": bargauge.Panel}
_NOT_MANY = {"stat": 4}  # columns of 24, by kind


def dashboard_json(name: str) -> str:
    """Return a dashboard, as Grafana reads it from a file."""
    told = tomllib.loads((GRAFANA / f"{name}.toml").read_text("utf-8"))
    made = dashboard.Dashboard(told["title"]).uid(told["uid"]).description(told["description"])
    made = made.tags(["offsetstream"]).readonly().refresh("30s").time("now-3h", "now").timezone("browser")
    made = made.tooltip(parts.DashboardCursorSync.CROSSHAIR).link(_to_the_others())
    made = made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for variable in told["variables"]:
        made = made.with_variable(_variable(*variable))
    number = 0
    for row in told["row"]:
        made = made.with_row(dashboard.Row(row["title"]).id(number := number + 1))
        for panel in row["panel"]:
            made = made.with_panel(_panel(panel, told["where"]).id(number := number + 1))
    return JSONEncoder(indent=2).encode(made.build()) + "\n"


def _to_the_others() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("offsetstream").type(parts.DashboardLinkType.DASHBOARDS).tags(["offsetstream"])
    return link.include_vars(include_vars=True).keep_time(keep_time=True)


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(name).label(label).query(query).datasource(SOURCE)
    made = made.refresh(parts.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(parts.VariableSort.ALPHABETICAL_ASC)
    made = made.multi(multi=True).include_all(include_all=True).current(parts.VariableOption(True, "All", "$__all"))
    # All those that there are, but for `up`, which others have too; the label `cluster` need not be there.
    return made if name == "job" else made.all_value(".*")


def _panel(told: dict[str, Any], where: str) -> AnyPanel:
    kind = told.get("kind", "timeseries")
    queries = [(expression.replace("<where>", where), legend) for expression, legend in told["queries"]]
    made = _KINDS[kind]().title(told["title"]).description(_description(told, queries)).datasource(SOURCE)
    made = made.span(told.get("width", _NOT_MANY.get(kind, 8))).height(told.get("height", 4 if kind == "stat" else 7))
    made = made.unit(told.get("unit", "none")).no_value("not known").thresholds(_thresholds(told))
    for place, (expression, legend) in enumerate(queries):
        made = made.with_target(_query(kind, expression, legend).ref_id(chr(ord("A") + place)))
    if "max" in told:
        made = made.max(told["max"])
    return _as(made, told)


def _description(told: dict[str, Any], queries: list[tuple[str, str]]) -> str:
    """Say why the panel is there, and what its metrics mean."""
    helps = {name: family.help for name, family in job_families().items()}
    for file in (COORDINATORS, "kafka-exporter"):
        helps |= {family.name: family.help for each in queried_families(file) for family in each.families}
    words = dict.fromkeys(re.findall(r"\w+", " ".join(expression for expression, _ in queries)))
    named = dict.fromkeys(re.sub("_(bucket|sum|count)$", "", word) if word not in helps else word for word in words)
    said = [told["why"]] if "why" in told else []
    return "\n\n".join([*said, *(f"`{name}`: {helps[name]}." for name in named if name in helps)])


def _thresholds(told: dict[str, Any]) -> dashboard.ThresholdsConfig:
    steps = [parts.Threshold(value, colour) for value, colour in told.get("thresholds", [])]
    made = dashboard.ThresholdsConfig().mode(parts.ThresholdsMode.ABSOLUTE)
    return made.steps([parts.Threshold(None, "green"), *steps])


def _query(kind: str, expression: str, legend: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(expression).datasource(SOURCE)
    if kind == "table":
        return made.instant().format(PromQueryFormat.TABLE)
    made = made.legend_format(legend)
    return made.range() if kind == "timeseries" else made.instant()


def _as(made: Any, told: dict[str, Any]) -> AnyPanel:
    """Give the panel what only its kind has."""
    match made:
        case timeseries.Panel():
            return _over_time(made, told)
        case stat.Panel():
            words = {value: parts.ValueMappingResult(text=text) for value, text in told.get("words", {}).items()}
            made = made.mappings([parts.ValueMap(words)] if words else [])
            return made.graph_mode(shapes.BigValueGraphMode.NONE).reduce_options(_last())
        case table.Panel():
            return _with_columns(made, told["columns"])
        case _:
            return made.orientation(shapes.VizOrientation.HORIZONTAL).min(0).reduce_options(_last())


def _over_time(made: timeseries.Panel, told: dict[str, Any]) -> timeseries.Panel:
    legend = common.VizLegendOptions().show_legend(show_legend=True).calcs(["lastNotNull", "max"])
    legend = legend.display_mode(shapes.LegendDisplayMode.TABLE).placement(shapes.LegendPlacement.BOTTOM)
    made = made.legend(legend).axis_soft_min(0).show_points(shapes.VisibilityMode.NEVER)
    every = common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING)
    made = made.tooltip(every).fill_opacity(30 if told.get("is_stacked") else 10)
    if "thresholds" in told:
        line = common.GraphThresholdsStyleConfig().mode(shapes.GraphTresholdsStyleMode.DASHED)
        made = made.thresholds_style(line)
    if told.get("is_stacked"):
        made = made.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A"))
    return made


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _with_columns(made: table.Panel, columns: list[str]) -> table.Panel:
    """Put the queries side by side: a row for each series, without its time, the greatest of the last first."""
    renamed = {f"Value #{chr(ord('A') + place)}": column for place, column in enumerate(columns)}
    made = made.with_transformation(parts.DataTransformerConfig(id_val="merge", options={}))
    shown = {"excludeByName": {"Time": True}, "renameByName": renamed}
    made = made.with_transformation(parts.DataTransformerConfig(id_val="organize", options=shown))
    return made.sort_by([common.TableSortByFieldState().display_name(columns[-1]).desc(desc=True)])


def _files() -> Iterator[tuple[Path, str]]:
    for name in DASHBOARDS:
        yield GRAFANA / "dashboards" / f"{name}.json", dashboard_json(name)


if __name__ == "__main__":
    for path, text in _files():
        path.write_text(text, encoding="utf-8")
