"""How long the page of a day of 500 groups (360,000 commits, 144,000 samples) takes to write and to draw.

`python -m benchmarks.page` writes the page with `offsetstream report` and opens it in Chromium. It prints the time from
navigation until the page is loaded, until all visible charts are drawn, and, with all sections open, until all are.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from playwright.sync_api import CDPSession

from benchmarks.views import write_tables
from testkit.browser import Visit, chromium
from testkit.processes import printed
from testkit.tables import new_tables

# Each group has a topic of three partitions, commits every six minutes, and replaces a member eight times. Every fifth
# group lags from midday on, and stops at the end. Record offsets are made from times, so they grow as in a log.
_ARE_DRAWN = """
    () => [...document.querySelectorAll(".chart")].every((each) =>
      each.closest("details:not([open])") || each.dataset.drawn === "yes")"""
_SOURCES = {
    "cell": """
        SELECT i // 3 AS g, 'group-' || g AS group_id, g % 50 AS offsets_partition, 0 AS log_id, 'topic-' || g AS topic,
               i % 3 AS partition, g % 5 = 0 AS lags, true AS in_coordinator_partition, i
        FROM range(3 * {groups}) AS t(i)""",
    "commit_rows": """
        SELECT *, now_at - to_seconds(360 * (239 - k) + g % 300 + 10) AS record_timestamp,
               epoch_ms(record_timestamp) * 10 + partition AS record_offset, record_timestamp AS commit_timestamp,
               epoch_ms(record_timestamp) AS commit_timestamp_ms, false AS is_tombstone, k,
               record_timestamp::DATE AS written_day,
               100 * k - CASE WHEN lags AND k > 120 THEN 60 * (k - 120) ELSE hash(i * 240 + k) % 90 END
                 AS committed_offset
        FROM cell, range(240) AS s(k), clock WHERE NOT lags OR k < 238""",
    "sampled": """
        SELECT topic, partition, 0 AS log_start_offset, 250 * k AS high_watermark, high_watermark AS last_stable_offset,
               now_at - to_seconds(600 + 900 * (95 - k)) AS sampled_at, sampled_at AS changed_at,
               now_at - to_seconds(600 + 900 * (96 - k)) AS previous_sampled_at, sampled_at::DATE AS written_day, k
        FROM cell, range(96) AS s(k), clock""",
    "epoch": """
        SELECT *, now_at - to_seconds(86000 - 10800 * k - g % 10000) AS record_timestamp,
               epoch_ms(record_timestamp) * 10 + 5 AS record_offset, k + 1 AS generation, k + 1 AS epoch,
               record_timestamp::DATE AS written_day, 'Classic' AS group_type, 'Stable' AS state, 2 AS member_count,
               'consumer' AS protocol_type, 'range' AS protocol, false AS is_removed, false AS is_simple
        FROM (FROM cell WHERE partition = 0), range(8) AS s(k), clock""",
    # Epoch k has the members k and k + 1; the first one owns two partitions.
    "member": """
        SELECT e.* EXCLUDE (partition), member_id, member_id AS client_id, change
        FROM epoch AS e, (VALUES (1, 'joined'), (-1, 'left'), (0, 'joined')) AS c(more, change),
             LATERAL (SELECT 'app-' || (k + more) AS member_id)
        WHERE CASE more WHEN 1 THEN true WHEN 0 THEN k = 0 ELSE k > 0 END""",
    "assignment": """
        SELECT e.* EXCLUDE (partition), p.partition, 'assigned' AS kind, change,
               'app-' || (k + p.partition // 2 + CASE change WHEN 'assigned' THEN 0 ELSE -1 END) AS member_id
        FROM epoch AS e, range(3) AS p(partition), (VALUES ('assigned'), ('revoked')) AS c(change)
        WHERE change = 'assigned' OR k > 0""",
}
_TABLES = {
    "offset_commits": "FROM commit_rows",
    "committed_offsets": "FROM commit_rows WHERE k = CASE WHEN lags THEN 237 ELSE 239 END",
    "groups": "FROM epoch WHERE k = 7",
    "group_history": "FROM epoch",
    "member_history": "FROM member",
    "assignment_history": "FROM assignment",
    "end_offsets": "FROM sampled",
    "topic_partitions": "FROM sampled WHERE k = 95",
    "offsets_partitions": """
        SELECT DISTINCT offsets_partition, 0 AS log_id, 'OWNED' AS load_state, offsets_partition % 3 AS coordinator_id,
               now_at - INTERVAL 2 DAY AS history_complete_from
        FROM cell, clock""",
    "decoded_logs": "SELECT DISTINCT offsets_partition, 0 AS log_id, 0 AS decoded_from_offset FROM cell",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__)
    parser.add_argument("--groups", type=int, default=500)
    parser.add_argument("--file", type=Path, help="keep the page in this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tables, file = Path(folder) / "tables", options.file or Path(folder) / "page.html"
        new_tables(tables)
        sources = {name: query.format(groups=options.groups) for name, query in _SOURCES.items()}
        write_tables(tables, sources, _TABLES, datetime.now(UTC))
        started = time.monotonic()
        printed("report", "--file", str(file), "--tables", str(tables))
        print(f"written in {time.monotonic() - started:.1f} s, {file.stat().st_size / 1e6:.1f} MB")
        for what, seconds, worked in _drawn(file):
            print(f"{seconds:.2f} s from navigation until {what} ({worked:.2f} s of work)")


def _drawn(file: Path) -> Iterator[tuple[str, float, float]]:
    """Yield each stage, its seconds since navigation, and the processor seconds of the page's thread."""
    with chromium() as browser:
        for is_unfolded in (False, True):
            visit = Visit(browser)
            session = visit.page.context.new_cdp_session(visit.page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            started = time.monotonic()
            visit.go(file)
            if is_unfolded:
                visit.unfold()
            else:
                yield "the page is loaded", time.monotonic() - started, _worked(session)
            # A printed page needs all charts, so this event draws them without scrolling.
            visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
            visit.page.wait_for_function(_ARE_DRAWN)
            taken, count = time.monotonic() - started, visit.page.locator(".chart svg").count()
            yield (
                f"all {count} {'' if is_unfolded else 'visible '}charts are drawn",
                taken,
                _worked(session),
            )
            visit.close()


def _worked(session: CDPSession) -> float:
    found = {each["name"]: float(each["value"]) for each in session.send("Performance.getMetrics")["metrics"]}
    return found["ThreadTime"]


if __name__ == "__main__":
    main()
