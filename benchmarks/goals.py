"""The rows of the table: what is measured, and the goal (on two cores, with the broker on the same machine)."""

from __future__ import annotations

from dataclasses import dataclass

TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True)
class Goal:
    """A row. Its figure is in `unit` and must be at most `limit`, or with `at_least` at least that."""

    name: str
    work: str
    measure: str
    limit: float
    unit: str = TIMES
    at_least: bool = False

    def is_met(self, figure: float) -> bool:
        """Return whether the figure reaches the goal."""
        return figure >= self.limit if self.at_least else figure <= self.limit

    @property
    def text(self) -> str:
        """The goal as the table shows it."""
        return f"{'≥' if self.at_least else '≤'} {self.limit:g} {self.unit}"


_OWNED = "from query start until all partitions are OWNED"
_CONSOLE = "against Kafka's console consumer with OffsetsMessageFormatter"
_BATCH = "seconds of a batch, median"
_CONTINUED = "seconds from its continuation until the last batch is logged"
_ONE_BATCH = "seconds of the first batch of a process"
_AGAINST_PARTITIONS = "bytes written against a rewrite of the rows of the same offsets partitions"
_MILLION = "one million groups with one committed offset each: "
_COLD = "a command from a cold process, 100,000 committed offsets and 3 million commits: "
_GOALS = (
    Goal(
        "codec",
        "codec alone, one core, mixed versions, 1 % broken records",
        "records/s against a plain struct loop",
        10,
        at_least=True,
    ),
    Goal(
        "decode",
        "decode in Spark: Kafka → decoded columns → no-op sink",
        "time against the same query without decoding",
        1.5,
    ),
    Goal("first-load", "first load, 3 million commits, 32,000 cells, history and state", f"{_OWNED}, {_CONSOLE}", 0.5),
    Goal("state-only", "first load, state only (--no-history)", f"{_OWNED}, {_CONSOLE}", 0.35),
    Goal("files", "load of the same log from its segments", "time against kafka-dump-log", 1.0),
    Goal("dump", "dump --format kafka of the same topic", f"time {_CONSOLE}, both without startup", 1.0),
    Goal(
        "gaps",
        "first load of a compacted topic with one record per 100 offsets",
        "time against a topic with as many records and no gaps",
        1.1,
    ),
    Goal("steady", "steady state, 10,000 commits a batch, all tables updated", _BATCH, 1.0, "s"),
    Goal("near-empty", "a near-empty batch (10 records)", _BATCH, 0.5, "s"),
    Goal(
        "freshness",
        "freshness, 2,000 commits a second, trigger 1 s",
        "from the client's commit until delta-rs reads it in committed_offsets, 99th percentile",
        3,
        "s",
    ),
    Goal(
        "waiting",
        "500,000 commits that waited while a warm job stood still, 250,000 cells",
        _CONTINUED,
        3,
        "s",
    ),
    Goal("waiting-longer", "2 million commits that waited", _CONTINUED, 10, "s"),
    Goal(
        "sustained",
        "sustained commits of 250,000 cells, ten minutes, trigger 10 s",
        "commits a second that the job applied, upkeep included, while 105,000 were offered",
        100_000,
        "commits/s",
        at_least=True,
    ),
    Goal(
        "steady-sampled",
        "steady state while the job samples the end offsets of 20,000 partitions",
        "seconds of a batch against a job without sampler",
        1.5,
    ),
    Goal(
        "steady-metered",
        "steady state with scraped metrics of groups that have 20,000 partitions",
        "seconds of a batch against batches without scrapes",
        1.1,
    ),
    Goal(
        "growth",
        "growth: a steady batch with 1 million cells in the table, of which 30,000 are active",
        "seconds of a batch against one with 32,000 cells",
        1.2,
    ),
    Goal(
        "growth-10m",
        "growth: the same batch with 10 million cells in the table",
        "seconds of a batch against one with 32,000 cells",
        2.0,
    ),
    Goal(
        "writes-active",
        "bytes that a batch of 10,000 commits writes: 1 million cells, 3 % of them active",
        "bytes written against the bytes of the changed rows",
        4.0,
    ),
    Goal("writes-cells", "the same: 1 % random cells a batch", _AGAINST_PARTITIONS, 1.0),
    Goal("writes-groups", "the same: 1 % random groups a batch", _AGAINST_PARTITIONS, 1.0),
    Goal("writes-sweep", "the same: a sweep over all cells", _AGAINST_PARTITIONS, 1.0),
    Goal(
        "memory",
        "memory, first load of 10 million records",
        "peak resident memory of driver, JVM and Python workers together",
        1.5,
        "GiB",
    ),
    Goal("memory-growth", "memory, first load of 20 million records", "peak against that of 10 million", 1.1),
    Goal("large-load", "first load, 20 million commits, history and state", f"{_OWNED}, {_CONSOLE}", 0.3),
    Goal(
        "executors",
        "first load of 5 million commits on two executors of one core (local-cluster)",
        "times faster than on one executor, each pinned to a core with its Python workers",
        1.5,
        at_least=True,
    ),
    Goal(
        "hot-cells",
        "memory, first load of five million cells in one offsets partition",
        "peak resident memory of driver, JVM and Python workers together",
        3,
        "GiB",
    ),
    Goal(
        "hot-partition",
        "first load of 10 million records in one offsets partition",
        "time against the same records in 50 partitions",
        1.2,
    ),
    Goal("many-cells", "first load of ten million cells", _OWNED, 60, "s"),
    Goal(
        "start",
        "start on a topic with one record: from the command until the first batch is applied",
        "time against a start without our class archives and Java settings",
        0.6,
    ),
    Goal("rewrites", "a classic group of 1,000 members rewritten 50 times in a batch", _ONE_BATCH, 3, "s"),
    Goal("large-groups", "700 groups of 200 members in a batch", _ONE_BATCH, 8, "s"),
    Goal("million-load", f"{_MILLION}first load", _OWNED, 15, "s"),
    Goal("million-batch", f"{_MILLION}a near-empty batch", _BATCH, 1.5, "s"),
    Goal("million-list", f"{_MILLION}groups list --output csv", "wall time", 3, "s"),
    Goal("million-describe", f"{_MILLION}groups describe --all-groups", "wall time", 10, "s"),
    Goal("describe", "look-up without Spark, 100,000 cells: groups describe of one group", "wall time", 0.7, "s"),
    Goal("list", "look-up without Spark, 100,000 cells: groups list", "wall time", 0.25, "s"),
    Goal("help", "offsetstream --help", "wall time", 0.12, "s"),
    Goal("lag", "views without Spark, 100,000 committed offsets: lag", "wall time", 1.0, "s"),
    Goal("group-status", "views without Spark, 100,000 committed offsets: group_status", "wall time", 1.0, "s"),
    Goal("one-instant", "views without Spark: offsets_at of one group, among 3 million commits", "wall time", 0.5, "s"),
    Goal("cold-lag", f"{_COLD}lag --group --time", "wall time", 1.0, "s"),
    Goal("cold-status", f"{_COLD}groups status --group", "wall time", 1.0, "s"),
    Goal("cold-then", f"{_COLD}offsets list --group --at", "wall time", 1.0, "s"),
    Goal("cold-history", f"{_COLD}offsets history --group", "wall time", 1.0, "s"),
    Goal("sampler", "sampler: end offsets of 20,000 partitions, every ten seconds", "time of a round", 5.0, "s"),
    Goal("sampler-2000", "sampler: end offsets of 2,000 partitions", "time of a round", 1.0, "s"),
)
GOALS = {goal.name: goal for goal in _GOALS}
