"""The settings of the streaming job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast

from offsetstream.maintenance.settings import horizons
from offsetstream.settings.config_file import ConfigFile
from offsetstream.settings.kinds import HOST, INTERVAL, MINUTES, PAIRS, REGEX, SECONDS
from offsetstream.settings.places import parse_checkpoint, parse_tables
from offsetstream.settings.schema import (
    BOOTSTRAP_SERVER,
    CLUSTER_VARIABLE,
    COMMAND_CONFIG,
    CONF,
    CONFIG_VARIABLE,
    KEEP_HISTORY,
    MASTER,
    TABLES,
    Option,
    Settings,
    settings_of,
)

if TYPE_CHECKING:
    from offsetstream.cluster.properties import ClientProperties
    from offsetstream.tables.filters import Filters
    from offsetstream.tables.store import Store

MAX_OFFSETS_AT_ONCE = 5_000_000  # of a load
LoadBy = Literal["auto", "raw", "spark"]
_MAX_BATCH_OFFSETS = 1_000_000  # what the driver applies at once, whatever the records are (tables/rows.py)
LOG_FORMAT = Option("Log as text lines (UTC time, INFO, WARN or ERROR, message), or as one JSON object per line.")
FORCE = Option(
    "Take over the tables from another job at once, without the usual minute of watching whether it still runs. If it "
    "does, it cannot write any more and exits."
)


class WriterSettings(Settings):
    """Settings of a command that writes tables: their folder becomes an absolute path."""

    tables: str

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "tables", parse_tables(self.tables))

    @property
    def store(self) -> Store:
        """Return the tables."""
        from offsetstream.tables.location import store_at  # noqa: PLC0415 - slow: delta-rs

        return store_at(self.tables)


@dataclass(frozen=True, kw_only=True)
class JobSettings(WriterSettings):
    """The settings of the job, which are also the options of `offsetstream run`.

    The constructor checks each value and raises UsageError that names the wrong setting. Folders become absolute paths.
    `max_silence` and `max_transaction_timeout` also accept a number of minutes. `properties` are properties of Kafka
    clients; those in the file `command_config` win, and `properties` then includes them. `master` and `conf` configure
    a Spark that the job itself starts; a session that the caller provides ignores them.
    """

    bootstrap_server: Annotated[str, BOOTSTRAP_SERVER]
    command_config: Annotated[str | None, COMMAND_CONFIG] = None
    tables: Annotated[str, TABLES] = "tables"
    checkpoint: Annotated[str, Option("Keep the checkpoints in this folder or URI.", metavar="DIR")] = "checkpoints"
    trigger: Annotated[str, Option("Start a batch this often.", "TIME", INTERVAL)] = "10 seconds"
    sample_interval: Annotated[
        float,
        Option(
            "Sample the end offsets of topics that groups read this often; 0: never. At least 60 in a catalog or "
            "object store.",
            metavar="SECONDS",
            kind=SECONDS,
        ),
    ] = 10.0
    once: Annotated[bool, Option("Apply all records that exist now, then stop.")] = False
    coordinator: Annotated[
        Literal["new", "classic"] | None, Option("Assume this group coordinator (default: ask the brokers).")
    ] = None
    history: Annotated[
        bool,
        Option("Keep every record in the history tables. Switching it on again reloads all partitions."),
    ] = True
    keep_history: Annotated[tuple[str, ...], KEEP_HISTORY] = ()
    repair: Annotated[
        bool,
        Option(
            "Set a damaged table aside if the topic, the history or the cluster can fill it again; else the job ends."
        ),
    ] = True
    group_filter: Annotated[
        str | None,
        Option(
            "Keep only groups whose complete id matches (RE2). Changing any filter reloads all partitions.",
            "REGEX",
            REGEX,
        ),
    ] = None
    group_exclude: Annotated[str | None, Option("Skip groups whose complete id matches.", "REGEX", REGEX)] = None
    topic_filter: Annotated[
        str | None, Option("Keep only offsets of topics whose complete name matches.", "REGEX", REGEX)
    ] = None
    topic_exclude: Annotated[
        str | None, Option("Skip offsets of topics whose complete name matches.", "REGEX", REGEX)
    ] = None
    short_lived_groups: Annotated[
        bool,
        Option("Also keep groups that a tool creates at each start, such as console-consumer-12345."),
    ] = True
    max_offsets_per_trigger: Annotated[
        int, Option("Read at most this many offsets in one batch.", metavar="N", minimum=1)
    ] = _MAX_BATCH_OFFSETS
    load_by: Annotated[
        LoadBy,
        Option(
            "How a load reads. raw: as batches, by the driver. spark: as rows, by Spark. auto: raw with a local "
            "master, and by Spark what cannot be read raw."
        ),
    ] = "auto"
    max_transaction_timeout: Annotated[
        timedelta,
        Option("Warn of a transaction that blocks an offsets partition for longer.", "MINUTES", MINUTES),
    ] = timedelta(minutes=15)  # the brokers' default transaction.max.timeout.ms
    max_silence: Annotated[
        timedelta,
        Option(
            "Wait this long for a cluster that does not answer, or for tables and checkpoints that cannot be read or "
            "written; then exit.",
            "MINUTES",
            MINUTES,
        ),
    ] = timedelta(minutes=10)
    max_stall: Annotated[
        timedelta,
        Option(
            "Without progress for this long (a store or Spark never answers), answer 503 at /healthz; after twice as "
            "long, exit. 0: never.",
            "MINUTES",
            MINUTES,
        ),
    ] = timedelta(minutes=10)
    metrics_port: Annotated[
        int,
        Option("Serve /metrics (Prometheus), /healthz and /readyz at this port; 0: off.", metavar="PORT", minimum=0),
    ] = 0
    metrics_address: Annotated[
        str, Option("Serve them at this address. There is no login: keep it private.", "ADDRESS")
    ] = "127.0.0.1"
    metrics_allowed_host: Annotated[
        tuple[str, ...],
        Option(
            "Also answer /metrics if a URL has this host name (repeatable); IP addresses, localhost and the machine's "
            "own name always work.",
            "NAME",
            HOST,
        ),
    ] = ()
    group_metrics: Annotated[
        Literal["kafka-exporter", "kminion"] | None,
        Option("Also serve group metrics, under this exporter's names (default: none)."),
    ] = None
    metrics_groups: Annotated[
        str, Option("Serve group metrics only of groups whose complete id matches (RE2).", "REGEX")
    ] = ".*"
    metrics_topics: Annotated[
        str, Option("Serve group metrics only of topics whose complete name matches.", "REGEX")
    ] = ".*"
    metrics_max_series: Annotated[
        int,
        Option(
            "Serve at most this many series of groups; drop those of single partitions first.", metavar="N", minimum=0
        ),
    ] = 100_000
    log_format: Annotated[Literal["text", "json"], LOG_FORMAT] = "text"
    force: Annotated[bool, FORCE] = False
    master: Annotated[str | None, MASTER] = None
    conf: Annotated[Mapping[str, str], CONF] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        from offsetstream.cluster.properties import read_properties  # noqa: PLC0415 - only making settings needs it

        horizons(self.keep_history, datetime.now(UTC).date())
        self.convert("properties", PAIRS.read)
        object.__setattr__(self, "checkpoint", parse_checkpoint(self.checkpoint))
        object.__setattr__(self, "properties", read_properties(self.command_config, self.properties))

    def read_again(self) -> Self:
        """Return these settings with the client properties of now: passwords change while a job runs."""
        again = copy(self)
        object.__setattr__(again, "properties", cast("ClientProperties", self.properties).read_again())
        return again

    @classmethod
    def load(cls, config: str | None = None, cluster: str | None = None, **given: Any) -> Self:
        """Return settings from `given`, else the environment, else the file, else the defaults, as the command does.

        `config` is a TOML file (default: the one that OFFSETSTREAM_CONFIG names). `cluster` is one of its clusters
        (default: the one that OFFSETSTREAM_CLUSTER names). Raise UsageError for an unknown setting, a value of the
        wrong type, or a cluster that the file does not have.
        """
        named = cluster or os.environ.get(CLUSTER_VARIABLE) or None
        file = ConfigFile.read(config or os.environ.get(CONFIG_VARIABLE) or None, named)
        settings = {each.key: each for each in settings_of(cls)}
        values = file.values("run", {key: each.in_toml for key, each in settings.items()})
        from_file = {settings[key].name: value for key, value in values.items()}
        return cls.filled(given, from_file | {"properties": file.kafka})

    @property
    def filters(self) -> Filters:
        """Return which groups and topics the tables exclude."""
        from offsetstream.tables.filters import SHORT_LIVED, Filters  # noqa: PLC0415 - slow: Arrow

        short_lived = None if self.short_lived_groups else SHORT_LIVED
        return Filters(self.group_filter, self.group_exclude, self.topic_filter, self.topic_exclude, short_lived)


@dataclass(frozen=True, kw_only=True)
class FilesSettings(WriterSettings):
    """The settings of `offsetstream load`."""

    tables: Annotated[str, TABLES] = "tables"
    coordinator: Annotated[
        Literal["new", "classic"],
        Option("Load as the group coordinator of Kafka 4 does (new), or as that of 3.9 and older (classic)."),
    ] = "new"
    log_format: Annotated[Literal["text", "json"], LOG_FORMAT] = "text"
    force: Annotated[bool, FORCE] = False
    master: Annotated[str | None, MASTER] = None
    conf: Annotated[Mapping[str, str], CONF] = field(default_factory=dict, repr=False)
