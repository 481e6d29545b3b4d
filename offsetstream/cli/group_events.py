"""`offsetstream groups history`: each change of groups, members and assignments, in the order of the log."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from offsetstream.cli.age import Age
from offsetstream.cli.answers import (
    Answer,
    Row,
    fetch_sorted,
    group_options,
    in_period,
    open_reader,
    period_options,
    period_start,
    period_text,
    show,
    watch_option,
)
from offsetstream.cli.main import OneLineErrors
from offsetstream.cli.messages import counted
from offsetstream.cli.missing import missing_of
from offsetstream.cli.options import config_option, max_age_option, output_of, output_options, tables_option
from offsetstream.cli.rows import Column
from offsetstream.cli.times import instant_text

if TYPE_CHECKING:
    from offsetstream.views.reader import ViewReader

_COLUMNS = (
    Column("group", "GROUP", 15),
    Column("at", "AT", 24),
    Column("what", "WHAT", 8),
    Column("state", "STATE", 6),
    Column("epoch", "EPOCH", 5),
    Column("members", "#MEMBERS", 8),
    Column("consumer_id"),
    Column("client_id", "CLIENT-ID", 10),
    Column("group_instance_id"),
    Column("host", "HOST", 10),
    Column("partitions", "PARTITIONS"),
    Column("type"),
    Column("offsets_partition"),
    Column("log_id"),
    Column("record_offset"),
)
_TABLES = ("group_history", "member_history", "assignment_history")
_EVENTS = """
WITH clients AS (
  SELECT group_id, member_id, any_value(client_id) AS client_id, any_value(client_host) AS client_host,
         any_value(group_instance_id) AS group_instance_id
  FROM member_history GROUP BY group_id, member_id
), topics_moved AS (
  SELECT offsets_partition, log_id, group_id, record_timestamp, max(record_offset) AS record_offset, member_id, change,
         epoch, concat(coalesce(topic, topic_id, subtopology_id), ':',
                       string_agg(partition::VARCHAR, ',' ORDER BY partition)) AS partitions
  FROM assignment_history WHERE kind IN ('assigned', 'active')
  GROUP BY offsets_partition, log_id, group_id, record_timestamp, member_id, change, epoch,
           coalesce(topic, topic_id, subtopology_id)
), moved AS (
  SELECT offsets_partition, log_id, group_id, record_timestamp, max(record_offset) AS record_offset, member_id,
         change, epoch, string_agg(partitions, ';' ORDER BY partitions) AS partitions
  FROM topics_moved GROUP BY offsets_partition, log_id, group_id, record_timestamp, member_id, change, epoch
)
SELECT offsets_partition, log_id, group_id, record_timestamp, record_offset, 0 AS nth,
       CASE WHEN is_removed THEN 'removed' ELSE 'group' END AS what, state, coalesce(generation, group_epoch) AS epoch,
       member_count, group_type, NULL AS member_id, NULL AS client_id, NULL AS client_host, NULL AS group_instance_id,
       NULL AS partitions
FROM group_history
UNION ALL
SELECT offsets_partition, log_id, group_id, record_timestamp, record_offset, 1, change, NULL, epoch, NULL, NULL,
       member_id, client_id, client_host, group_instance_id, NULL
FROM member_history
UNION ALL
SELECT m.offsets_partition, m.log_id, m.group_id, m.record_timestamp, m.record_offset,
       CASE WHEN m.change = 'revoked' THEN 2 ELSE 3 END, m.change, NULL, m.epoch, NULL, NULL, m.member_id,
       c.client_id, c.client_host, c.group_instance_id, m.partitions
FROM moved AS m LEFT JOIN clients AS c ON c.group_id = m.group_id AND c.member_id = m.member_id"""


@click.command(
    "history",
    cls=OneLineErrors,
    epilog="""\b
Examples:
  offsetstream groups history --group my-group
  offsetstream groups history --group my-group --since 2h
  offsetstream groups history --since 03:00 --until 04:00 --output json

Exit code 1: a group does not exist.""",
)
@config_option("groups.history")
@group_options
@period_options
@max_age_option
@watch_option
@tables_option
@output_options
def group_history(
    *,
    group: tuple[str, ...],
    since: datetime | None,
    until: datetime | None,
    max_age: float | None,
    watch: float | None,
    tables: str,
    **options: Any,
) -> None:
    """Show what happened to groups: state changes, members that joined and left, and partitions that moved."""
    output = output_of(options)
    since = period_start(group, since, until)

    def ask() -> Answer:
        reader = open_reader(tables, groups=group, max_age=max_age)
        rows = _rows(reader, since, until)
        age = Age.of(reader)
        warnings = age.until(until).warnings_for_groups(reader.store, group, since)
        period = period_text(age, reader.store, group, since, until)
        missing = missing_of(reader, rows, group)
        found = counted(len({row["group"] for row in rows}), "group")
        closing = f"{counted(len(rows), 'change')} of {found}{period}."
        return Answer(_COLUMNS, rows, closing, missing=missing, warnings=warnings)

    show(output, watch, ask)


def _rows(reader: ViewReader, since: datetime | None, until: datetime | None) -> list[Row]:
    for table in _TABLES:
        reader.define_table(table)
    relation = reader.connection.sql(_EVENTS)
    if period := in_period("record_timestamp", since, until):
        relation = relation.filter(period)
    order = "group_id, log_id, record_timestamp, record_offset, nth, member_id, partitions"
    return [_row(row) for row in fetch_sorted(relation, order)]


def _row(row: Row) -> Row:
    return row | {
        "group": row["group_id"],
        "at": instant_text(row["record_timestamp"]),
        "members": row["member_count"],
        "consumer_id": row["member_id"],
        "host": row["client_host"],
        "type": row["group_type"],
    }
