"""Write monitoring/grafana/dashboards/ from the panels in monitoring/grafana/, with Grafana's classes (`make docs`)."""

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
_WIDTH = {"stat": 4}  # of 24 columns, by kind; 8 for all others


def dashboard_json(name: str) -> str:
    """Return the JSON of a dashboard, which Grafana reads from a file."""
    spec = tomllib.loads((GRAFANA / f"{name}.toml").read_text("utf-8"))
    made = dashboard.Dashboard(spec["title"]).uid(spec["uid"]).description(spec["description"])
    made = made.tags(["offsetstream"]).readonly().refresh("30s").time("now-3h", "now").timezone("browser")
    made = made.tooltip(parts.DashboardCursorSync.CROSSHAIR).link(_to_the_others())
    made = made.with_variable(dashboard.DatasourceVariable("datasource").label("Prometheus").type("prometheus"))
    for variable in spec["variables"]:
        made = made.with_variable(_variable(*variable))
    number = 0
    for row in spec["row"]:
        made = made.with_row(dashboard.Row(row["title"]).id(number := number + 1))
        for panel in row["panel"]:
            made = made.with_panel(_panel(panel, spec["where"]).id(number := number + 1))
    return JSONEncoder(indent=2).encode(made.build()) + "\n"


def _to_the_others() -> dashboard.DashboardLink:
    link = dashboard.DashboardLink("offsetstream").type(parts.DashboardLinkType.DASHBOARDS).tags(["offsetstream"])
    return link.include_vars(include_vars=True).keep_time(keep_time=True)


def _variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(name).label(label).query(query).datasource(SOURCE)
    made = made.refresh(parts.VariableRefresh.ON_TIME_RANGE_CHANGED).sort(parts.VariableSort.ALPHABETICAL_ASC)
    made = made.multi(multi=True).include_all(include_all=True).current(parts.VariableOption(True, "All", "$__all"))
    # `.*` also matches metrics without the label. For `job` Grafana lists all values: other jobs have the metric `up`.
    return made if name == "job" else made.all_value(".*")


def _panel(spec: dict[str, Any], where: str) -> AnyPanel:
    kind = spec.get("kind", "timeseries")
    queries = [(expression.replace("<where>", where), legend) for expression, legend in spec["queries"]]
    made = _KINDS[kind]().title(spec["title"]).description(_description(spec, queries)).datasource(SOURCE)
    made = made.span(spec.get("width", _WIDTH.get(kind, 8))).height(spec.get("height", 4 if kind == "stat" else 7))
    made = made.unit(spec.get("unit", "none")).no_value("not known").thresholds(_thresholds(spec))
    for place, (expression, legend) in enumerate(queries):
        made = made.with_target(_query(kind, expression, legend).ref_id(chr(ord("A") + place)))
    if "max" in spec:
        made = made.max(spec["max"])
    return _as(made, spec)


def _description(spec: dict[str, Any], queries: list[tuple[str, str]]) -> str:
    """Return the purpose of the panel, and the meaning of its metrics."""
    helps = {name: family.help for name, family in job_families().items()}
    for file in (COORDINATORS, "kafka-exporter"):
        helps |= {family.name: family.help for each in queried_families(file) for family in each.families}
    words = dict.fromkeys(re.findall(r"\w+", " ".join(expression for expression, _ in queries)))
    named = dict.fromkeys(re.sub("_(bucket|sum|count)$", "", word) if word not in helps else word for word in words)
    why = [spec["why"]] if "why" in spec else []
    return "\n\n".join([*why, *(f"`{name}`: {helps[name]}." for name in named if name in helps)])


def _thresholds(spec: dict[str, Any]) -> dashboard.ThresholdsConfig:
    steps = [parts.Threshold(value, colour) for value, colour in spec.get("thresholds", [])]
    made = dashboard.ThresholdsConfig().mode(parts.ThresholdsMode.ABSOLUTE)
    return made.steps([parts.Threshold(None, "green"), *steps])


def _query(kind: str, expression: str, legend: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(expression).datasource(SOURCE)
    if kind == "table":
        return made.instant().format(PromQueryFormat.TABLE)
    made = made.legend_format(legend)
    return made.range() if kind == "timeseries" else made.instant()


def _as(made: Any, spec: dict[str, Any]) -> AnyPanel:
    """Add the settings that only this kind of panel has."""
    match made:
        case timeseries.Panel():
            return _over_time(made, spec)
        case stat.Panel():
            words = {value: parts.ValueMappingResult(text=text) for value, text in spec.get("words", {}).items()}
            made = made.mappings([parts.ValueMap(words)] if words else [])
            return made.graph_mode(shapes.BigValueGraphMode.NONE).reduce_options(_last())
        case table.Panel():
            return _with_columns(made, spec["columns"])
        case _:
            return made.orientation(shapes.VizOrientation.HORIZONTAL).min(0).reduce_options(_last())


def _over_time(made: timeseries.Panel, spec: dict[str, Any]) -> timeseries.Panel:
    legend = common.VizLegendOptions().show_legend(show_legend=True).calcs(["lastNotNull", "max"])
    legend = legend.display_mode(shapes.LegendDisplayMode.TABLE).placement(shapes.LegendPlacement.BOTTOM)
    made = made.legend(legend).axis_soft_min(0).show_points(shapes.VisibilityMode.NEVER)
    every = common.VizTooltipOptions().mode(shapes.TooltipDisplayMode.MULTI).sort(shapes.SortOrder.DESCENDING)
    made = made.tooltip(every).fill_opacity(30 if spec.get("is_stacked") else 10)
    if "thresholds" in spec:
        line = common.GraphThresholdsStyleConfig().mode(shapes.GraphTresholdsStyleMode.DASHED)
        made = made.thresholds_style(line)
    if spec.get("is_stacked"):
        made = made.stacking(common.StackingConfig().mode(shapes.StackingMode.NORMAL).group("A"))
    return made


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _with_columns(made: table.Panel, columns: list[str]) -> table.Panel:
    """Show a row for each series and a column for each query, without times, sorted down by the last column."""
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
