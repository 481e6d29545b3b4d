"""What a user says of the job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from offsetstream.settings.config_file import ConfigFile
from offsetstream.settings.kinds import INTERVAL, MINUTES, REGEX, SECONDS
from offsetstream.settings.schema import (
    BOOTSTRAP_SERVER,
    CLUSTER_VARIABLE,
    COMMAND_CONFIG,
    CONF,
    CONFIG_VARIABLE,
    MASTER,
    TABLES,
    Option,
    Settings,
    settings_of,
)

if TYPE_CHECKING:
    from offsetstream.tables.filters import Filters
    from offsetstream.tables.store import Store

MAX_OFFSETS_AT_ONCE = 5_000_000


@dataclass(frozen=True, kw_only=True)
class JobSettings(Settings):
    """The settings of the job, as `offsetstream run` has them for options.

    Each is checked: UsageError in one line that names it. Folders are made absolute. `max_silence` and
    `max_transaction_timeout` also take a number of minutes. `properties` are those of Kafka clients; what
    `command_config` has, wins over them, and is among them afterwards. `master` and `conf` are for a Spark that
    the job starts, not for a session that it is given.
    """

    bootstrap_server: Annotated[str, BOOTSTRAP_SERVER]
    command_config: Annotated[str | None, COMMAND_CONFIG] = None
    tables: Annotated[str, TABLES] = "tables"
    checkpoint: Annotated[str, Option("Folder or URI of the checkpoints.", metavar="DIR")] = "checkpoints"
    trigger: Annotated[str, Option("Time between two batches, in Spark's words.", "TIME", INTERVAL)] = "10 seconds"
    sample_interval: Annotated[
        float,
        Option(
            "Time between two looks at where the logs end that groups read; 0 for none. In a catalog and on object "
            "stores 60 at least.",
            metavar="SECONDS",
            kind=SECONDS,
        ),
    ] = 10.0
    once: Annotated[bool, Option("Apply everything there is now, then stop.")] = False
    coordinator: Annotated[
        Literal["new", "classic"] | None, Option("The brokers' group coordinator [default: ask them].")
    ] = None
    history: Annotated[
        bool,
        Option("Keep every record in offset_commits and group_records; switched on again, all is loaded anew."),
    ] = True
    group_filter: Annotated[
        str | None,
        Option(
            "Keep groups only whose whole id matches (RE2); as of the other filters, where it is another than before, "
            "all is loaded anew.",
            "REGEX",
            REGEX,
        ),
    ] = None
    group_exclude: Annotated[str | None, Option("Leave out groups whose whole id matches.", "REGEX", REGEX)] = None
    topic_filter: Annotated[
        str | None, Option("Keep offsets of topics only whose whole name matches.", "REGEX", REGEX)
    ] = None
    topic_exclude: Annotated[
        str | None, Option("Leave out offsets of topics whose whole name matches.", "REGEX", REGEX)
    ] = None
    short_lived_groups: Annotated[
        bool,
        Option("Keep groups too whose ids tools make up at each start, as console-consumer-12345."),
    ] = True
    state_writes: Annotated[
        Literal["auto", "driver", "spark"],
        Option("Who merges into the state tables: the driver by delta-rs, Spark's MERGE, or as the size suggests."),
    ] = "auto"
    max_offsets_per_trigger: Annotated[
        int, Option("Take at most so many offsets in one batch.", metavar="N", minimum=1)
    ] = MAX_OFFSETS_AT_ONCE
    max_transaction_timeout: Annotated[
        timedelta,
        Option("Warn of a transaction that blocks an offsets partition for longer.", "MINUTES", MINUTES),
    ] = timedelta(minutes=15)  # the brokers' transaction.max.timeout.ms, where nobody has changed it
    max_silence: Annotated[
        timedelta,
        Option(
            "Wait so long for a cluster that does not answer, at the start and later; then give up.", "MINUTES", MINUTES
        ),
    ] = timedelta(minutes=10)
    metrics_port: Annotated[
        int, Option("Port of /metrics (Prometheus), /healthz and /readyz; 0 for none.", metavar="PORT", minimum=0)
    ] = 0
    metrics_address: Annotated[
        str, Option("Address to listen at for these; of another than this machine's own anybody may ask.", "ADDRESS")
    ] = "127.0.0.1"
    group_metrics: Annotated[
        Literal["kafka-exporter", "kminion"] | None,
        Option("Metrics of the groups too, under the names that this exporter gives them [default: none]."),
    ] = None
    metrics_groups: Annotated[
        str, Option("Of the groups with such names: a regular expression (RE2) of the whole name.", "REGEX")
    ] = ".*"
    metrics_topics: Annotated[str, Option("Of the topics with such names, likewise.", "REGEX")] = ".*"
    metrics_max_series: Annotated[
        int, Option("At most so many series of groups: single partitions are left out first.", metavar="N", minimum=0)
    ] = 100_000
    log_format: Annotated[
        Literal["text", "json"], Option("What the job says: lines for people, or an object of JSON a line.")
    ] = "text"
    force: Annotated[
        bool,
        Option(
            "Take over at once from another job that holds the tables, without watching for a minute whether it "
            "lives: for one that you know to be gone. If it does run, it cannot write any more, and ends."
        ),
    ] = False
    master: Annotated[str | None, MASTER] = None
    conf: Annotated[Mapping[str, str], CONF] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        # Only who makes settings needs what reads them.
        from offsetstream.cluster.properties import read_properties  # noqa: PLC0415
        from offsetstream.tables.location import parse_checkpoint, parse_tables  # noqa: PLC0415

        object.__setattr__(self, "tables", parse_tables(self.tables))
        object.__setattr__(self, "checkpoint", parse_checkpoint(self.checkpoint))
        object.__setattr__(self, "properties", read_properties(self.command_config, self.properties))

    @classmethod
    def load(cls, config: str | None = None, cluster: str | None = None, **given: Any) -> Self:
        """Return what is given, else what the environment says, else the file, else the defaults, as the command does.

        `config`: a TOML file, else the one that OFFSETSTREAM_CONFIG names, else none; `cluster`: the one of its
        clusters that is meant, else the one that OFFSETSTREAM_CLUSTER names, else none. Raises UsageError for what no
        setting is, or not of its type, and for a cluster that the file does not have.
        """
        from offsetstream.settings.model import filled  # noqa: PLC0415 - of pydantic-settings

        named = cluster or os.environ.get(CLUSTER_VARIABLE) or None
        file = ConfigFile.read(config or os.environ.get(CONFIG_VARIABLE) or None, named)
        settings = {each.key: each for each in settings_of(cls)}
        values = file.values("run", {key: each.in_toml for key, each in settings.items()})
        found = {settings[key].name: value for key, value in values.items()}
        return cls(**filled(cls, given, found | {"properties": file.kafka}))

    @property
    def filters(self) -> Filters:
        """What the tables leave out."""
        from offsetstream.tables.filters import SHORT_LIVED, Filters  # noqa: PLC0415 - of Arrow, for those that use it

        short_lived = None if self.short_lived_groups else SHORT_LIVED
        return Filters(self.group_filter, self.group_exclude, self.topic_filter, self.topic_exclude, short_lived)

    @property
    def store(self) -> Store:
        """The tables."""
        from offsetstream.tables.location import store_at  # noqa: PLC0415

        return store_at(self.tables)
