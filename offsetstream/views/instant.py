"""The views as of an instant: over the content that the tables had at that time, according to the history."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from offsetstream.tables.lookup import fetch_rows
from offsetstream.tables.schema import all_schemas, is_history
from offsetstream.tables.store import Store
from offsetstream.views.files import load_view
from offsetstream.views.reader import ViewReader, columns_of, instant_sql

# State tables, and the view with their content at an instant.
_STATE = {
    "committed_offsets": "offsets_at",
    "groups": "group_state_at",
    "group_members": "members_at",
    "member_assignments": "assignments_at",
}
_THEN = {
    "member_subscriptions": """
        SELECT offsets_partition, group_id, member_id, unnest(string_split(subscribed_topics, ',')) AS topic,
               'name' AS subscribed_by, record_offset, record_timestamp, log_id, true AS in_coordinator_partition
        FROM "group_members as it was" WHERE coalesce(subscribed_topics, '') <> ''""",
    # Ids that the job saw later name topics of that time, too, unless a topic of the same name existed.
    "topics": """
        SELECT * REPLACE (CASE WHEN deleted_at <= {at} THEN deleted_at END AS deleted_at) FROM ({topics})
        QUALIFY NOT coalesce(first_seen_at > greatest({at}, min(first_seen_at) OVER (PARTITION BY topic)), false)""",
    # A row of end_offsets is valid until the previous sample of the next row; the newest sample may not be there yet.
    # known_until says how long after that the row may be used.
    "topic_partitions": """
        WITH looks AS (
          SELECT *, lead(previous_sampled_at) OVER parts AS held_until FROM ({end_offsets})
          WINDOW parts AS (PARTITION BY topic, topic_id, partition ORDER BY sampled_at)
        ), then_ AS (
          SELECT topic_id, topic, partition, leader_id, leader_epoch, log_start_offset, high_watermark,
                 last_stable_offset, readable_end, NULL::VARCHAR AS open_transaction,
                 NULL::TIMESTAMPTZ AS open_transaction_since,
                 greatest(sampled_at, least(coalesce(held_until, sampled_at), {at})) AS sampled_at,
                 sampled_at AS changed_at
          FROM looks WHERE sampled_at <= {at}
          UNION ALL
          SELECT topic_id, topic, partition, leader_id, leader_epoch, log_start_offset, high_watermark,
                 last_stable_offset, readable_end, CASE WHEN open_transaction_since <= {at} THEN open_transaction END,
                 CASE WHEN open_transaction_since <= {at} THEN open_transaction_since END,
                 least(sampled_at, {at}), changed_at
          FROM ({topic_partitions}) WHERE changed_at <= {at} AND error IS NULL
        ), newest AS (
          SELECT * FROM then_
          QUALIFY row_number() OVER (
            PARTITION BY topic, topic_id, partition ORDER BY changed_at DESC, sampled_at DESC) = 1
        )
        SELECT n.*, CASE WHEN {at} > i.known_until
                         THEN strftime(n.sampled_at, 'not sampled after %Y-%m-%dT%H:%M:%SZ') END AS error
        FROM newest AS n LEFT JOIN (
          WITH end_offsets AS ({end_offsets}), topic_partitions AS ({topic_partitions}) FROM ({end_intervals})
        ) AS i
          ON i.topic = n.topic AND i.topic_id IS NOT DISTINCT FROM n.topic_id AND i.partition = n.partition
            AND i.sampled_at = n.changed_at""",
}


class InstantReader(ViewReader):
    """The views of a store's tables as of an instant, optionally for some `groups` only.

    After a view was read, `unknown` has a row for each group and offsets partition whose history does not reach back
    that far. Raises what ViewReader raises.
    """

    def __init__(self, store: Store, at: datetime, groups: Collection[str] | None = None) -> None:
        self._literal = instant_sql(at)
        super().__init__(
            store,
            {"clock": f"SELECT {self._literal} AS now_at, {self._literal} - INTERVAL '1' DAY AS since_at"},
            groups=groups,
        )
        self._at = at
        self._now = ViewReader(store)
        self.unknown: list[dict[str, Any]] = []

    def table_query(self, table: str) -> str:
        """Return the query of a table's rows at that time."""
        if table in _STATE:
            return self._state(table)
        if table == "member_subscriptions":
            self.define_table("group_members")
        if table in _THEN:
            read = ("end_offsets", "topic_partitions") if table == "topic_partitions" else ("topics",)
            queries = {each: super(InstantReader, self).table_query(each) for each in read}
            return _THEN[table].format(at=self._literal, end_intervals=load_view("end_intervals").duckdb_sql, **queries)
        query = super().table_query(table)
        times = all_schemas()[table].column_names if is_history(table) else ()
        time = next((name for name in ("record_timestamp", "sampled_at", "event_at") if name in times), None)
        return f"SELECT * FROM ({query}) WHERE {time} < {self._literal}" if time else query  # noqa: S608 - all ours

    def _open(self, tables: Iterable[str]) -> None:
        """Skip state tables, which come from the history."""
        super()._open(table for table in tables if table not in _STATE and table != "member_subscriptions")

    def _state(self, table: str) -> str:
        found = self._now.arrow(_STATE[table], {"group_id": self._groups}, at=self._at)
        rows = f"{table} as it was"
        self.connection.from_arrow(found).to_table(rows)
        unknown = self.connection.sql(
            f'SELECT DISTINCT offsets_partition, group_id, unknown_before, unknown_reason FROM "{rows}"'  # noqa: S608
            " WHERE unknown_reason IS NOT NULL"
        )
        self.unknown += fetch_rows(unknown)
        columns = columns_of(all_schemas()[table], found.column_names).replace(
            'CAST(NULL AS BOOLEAN) AS "in_coordinator_partition"', 'true AS "in_coordinator_partition"'
        )
        return f'SELECT {columns} FROM "{rows}" WHERE unknown_reason IS NULL'  # noqa: S608 - likewise
