"""`offsetstream verify`: compare the tables with the live cluster."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import click

from offsetstream.cli.age import Age
from offsetstream.cli.options import (
    SECONDS,
    client_properties,
    cluster_options,
    open_with_spark,
    output_of,
    output_options,
    own_spark,
    require_server,
    spark_options,
    tables_option,
)
from offsetstream.cli.output import Column, Output
from offsetstream.cli.settings_file import config_option
from offsetstream.cli.text import counted, print_line, warn
from offsetstream.cluster.client import Cluster, readable_partitions, require_to_see, require_to_see_everything
from offsetstream.tables.create import require_cluster
from offsetstream.tables.lease import HeartbeatWatch, is_job_alive
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.store import Store
from offsetstream.verify.compare import Comparison, Found, compare_until_settled, read_position
from offsetstream.verify.decoded_history import compare_derivation, decoded_differences
from offsetstream.verify.difference import Difference, plain
from offsetstream.verify.ledger import doubled_rows, ledger_differences, ledger_since
from offsetstream.verify.records import disagreements, read_records
from offsetstream.verify.sources import kafka_admin, read_tables
from offsetstream.verify.topic import Reconciliation, TopicReader
from offsetstream.views.reader import ViewReader

_COLUMNS = tuple(map(Column, ["table", "group", "key", "column", "in_tables", "other", "against", "explanation"]))
_DIFFERENT, _NOT_COMPARED = 1, 3


@click.command(
    epilog="""\b
Examples:
  offsetstream verify --bootstrap-server localhost:9092 --tables tables
  offsetstream verify --bootstrap-server localhost:9092 --tables tables --output json
  offsetstream verify --bootstrap-server localhost:9092 --tables tables --history

Each difference is one line. A difference that is normal while a cluster runs has an explanation, such as a change in
progress or an open transaction.

Exit codes: 0 no unexplained difference; 1 at least one; 3 some groups could not be compared."""
)
@config_option("verify")
@cluster_options
@tables_option
@output_options
@spark_options
@click.option(
    "--settle",
    type=SECONDS,
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="Wait this long for changes in progress; must exceed the job's --trigger.",
)
@click.option(
    "--history",
    is_flag=True,
    help="Also compare every row of the history with the topic, which this reads completely, and with the ledger.",
)
@click.pass_context
def verify(
    context: click.Context,
    /,
    bootstrap_server: str | None,
    command_config: str | None,
    tables: str,
    master: str | None,
    conf: dict[str, str],
    **options: Any,
) -> None:
    """Compare the tables with the live cluster: groups, members, assignments, committed offsets and coordinators.

    verify also compares every column of the state tables with the history, finds duplicate rows, and compares the row
    counts of the history with the job's ledger. It needs DESCRIBE on all groups and topics, and Java.

    With --history it also reads the complete topic, and needs READ on it. Each record must be in the history once, with
    the same content. A row whose record is gone from the topic must be superseded or a tombstone. The decoded history
    must equal a second decoding of the group records, except for rows that retention has thinned.
    """
    server = require_server(bootstrap_server, "verify")
    properties = client_properties(command_config)
    with open_with_spark(tables, partial(own_spark, master, conf)) as store:
        code = _verify(store, Cluster(server, properties), properties, options)
    context.exit(code)


def _verify(store: Store, cluster: Cluster, properties: dict[str, str], options: dict[str, Any]) -> int:
    """Compare, print the differences, and return the exit code."""
    output, settle, with_topic = output_of(options), options["settle"], options["history"]
    require_cluster(store, cluster.cluster_id())
    require_to_see_everything(cluster)
    if with_topic:
        readable_partitions(cluster)
    warn(Age.of(ViewReader(store)).lines())
    has_job = partial(is_job_alive, store, print_line, HeartbeatWatch())
    has_job()  # watch a job of another host now, so that --settle is left for the comparison
    with kafka_admin(cluster.bootstrap_server, properties) as admin:
        result = compare_until_settled(
            lambda: read_tables(Lookup(store)),
            admin.answers,
            partial(read_position, cluster, has_job),
            settle,
            lambda: disagreements(read_records(store)),
        )
    reader = TopicReader(cluster, properties, store, print_line) if with_topic else None
    history = _check_history(store, reader)
    result.found.extend(Found(each, None) for each in [*doubled_rows(store), *history.differences])
    _require_visible(cluster, result)
    print_result(result, output)
    if with_topic:
        print_line(str(history))
    return exit_code_of(result)


def exit_code_of(result: Comparison) -> int:
    """Return the exit code: an unexplained difference counts more than groups that were not compared."""
    unexplained = any(found.explanation is None for found in result.found)
    return _DIFFERENT if unexplained else _NOT_COMPARED if result.unreadable else 0


def _check_history(store: Store, reader: TopicReader | None) -> Reconciliation:
    """Compare the history with its ledger and, if `reader` is given, with the topic."""
    since = ledger_since(store)
    if since is None:
        print_line("The history has no ledger yet, so lost rows cannot be found. The next job starts one.")
    elif reader is not None:
        print_line(f"The history's ledger starts at {since:%Y-%m-%d %H:%M} UTC: it does not show rows lost before")
    differences = [] if since is None else ledger_differences(store, checksums=reader is not None)
    differences += decoded_differences(store)
    if reader is not None:
        derived = compare_derivation(store)
        differences += derived.differences
        print_line(str(derived))
    result = Reconciliation() if reader is None else reader.reconcile()
    for partition, reason in sorted(result.not_compared.items()):
        print_line(f"Offsets partition {partition} was not compared with the topic: {reason}")
    return replace(result, differences=[*differences, *result.differences])


def _require_visible(cluster: Cluster, result: Comparison) -> None:
    """Raise if an ACL hides from the user what seems to be only in the tables."""
    only_ours = [found.difference for found in result.found if found.difference.is_only_in_tables]
    topics = {value for each in only_ours if (value := each.value_of("topic"))}
    require_to_see(cluster, topics, {each.group_id for each in only_ours if each.group_id is not None})


def print_result(result: Comparison, output: Output) -> None:
    """Print the differences, and how many groups were compared."""
    if result.unchanged_partitions:
        partitions = ", ".join(map(str, result.unchanged_partitions))
        print_line(f"The job applied nothing from offsets partitions {partitions} meanwhile: increase --settle")
    if not output.is_text:
        output.table(_COLUMNS, [_row(found.difference, found.explanation) for found in result.found])
        _report_not_compared(result)
        return
    output.lines(
        f"{found.difference}" + (f" (explained: {found.explanation})" if found.explanation else "")
        for found in result.found
    )
    explained = sum(found.explanation is not None for found in result.found)
    differences = f"{counted(len(result.found) - explained, 'unexplained difference')}, {explained} explained"
    print_line(f"{counted(result.groups, 'group')} compared: {differences}")
    if result.filtered.groups or result.filtered.offsets:
        print_line(
            f"The filters of the tables exclude {counted(len(result.filtered.groups), 'group')} of the cluster and "
            f"{counted(result.filtered.offsets, 'offset')} of other groups"
        )
    _report_not_compared(result)
    if not result.standing.has_job and (lags := result.standing.lags):
        partitions, are = counted(len(lags), "offsets partition"), "is" if len(lags) == 1 else "are"
        behind = f"{partitions} {are} {counted(sum(lags.values()), 'offset')} behind the topic"
        print_line(f"No job runs on these tables: {behind}. 'offsetstream run' applies them.")


def _report_not_compared(result: Comparison) -> None:
    for group_id, error in sorted(result.unreadable.items()):
        print_line(f"Not compared: {group_id}: Kafka's client cannot read a member's assignment ({error})")


def _row(difference: Difference, explanation: str | None) -> dict[str, Any]:
    return {
        "table": difference.table,
        "group": difference.group_id,
        "key": "/".join("" if part is None else str(part) for part in difference.key),
        "column": difference.column,
        "in_tables": plain(difference.in_tables),
        "other": plain(difference.other),
        "against": difference.against,
        "explanation": explanation,
    }
