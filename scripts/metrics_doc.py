"""Write the tables of docs/reference/metrics.md from `offsetstream/metrics/families/` (`make docs`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from offsetstream.metrics.families import COORDINATORS, GROUPS, Family, job_families, queried_families

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "metrics.md"
_BEGIN, _END = "<!-- metrics: made by `make docs` -->\n", "<!-- end of metrics -->"
_GROUP_METRICS = ("kafka-exporter", "kminion")
_BETWEEN = re.compile(f"(?<={re.escape(_BEGIN)}).*?(?={_END})", re.DOTALL)


def page_with_metrics(page: str) -> str:
    """Return the page with new tables of metrics; ValueError unless it has exactly one place for them."""
    changed, places = _BETWEEN.subn(lambda _: "\n".join(["", *_tables(), ""]), page)
    if places != 1:
        raise ValueError(f"{PAGE} has {places} places for the metrics instead of one")
    return changed


def _tables() -> Iterator[str]:
    yield from _table("Of the job", job_families().values())
    yield from _table("Of the coordinators, under Kafka's own names", _queried(COORDINATORS))
    yield from _table("Of groups, by `--group-metrics` of whatever name", _queried(GROUPS))
    for names in _GROUP_METRICS:
        yield from _table(f"Of groups, by `--group-metrics {names}`", _queried(names))


def _table(title: str, families: Iterable[Family]) -> Iterator[str]:
    yield from (f"**{title}**", "", "| metric | type | labels | what |", "|---|---|---|---|")
    for each in families:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        yield f"| `{each.name}` | {each.type} | {labels} | {each.help} |"
    yield ""


def _queried(file: str) -> Iterator[Family]:
    for rows in queried_families(file):
        yield from rows.families


if __name__ == "__main__":
    PAGE.write_text(page_with_metrics(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
