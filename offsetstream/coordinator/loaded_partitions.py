"""The offsets partitions that a broker coordinates: loads, unloads, and their groups and offsets (reference 4, 5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from offsetstream.codec.batches import RecordBatch
from offsetstream.codec.serde import JsonObject
from offsetstream.coordinator.partitioning import Coordinator, partition_for
from offsetstream.coordinator.replay.classic_group import ClassicGroup, GroupState
from offsetstream.coordinator.replay.offsets import GroupOffsets
from offsetstream.coordinator.replay.partition import ClassicLoad, Group, NewReplay, OnBadRecord, PartitionReplay
from offsetstream.coordinator.replay.release_rules import LAST_RELEASE, rules_for
from offsetstream.errors import ReplayError, UsageError

OnGroup: TypeAlias = Callable[[Group], None]
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class OffsetConfig:
    """Kafka's OffsetConfig, with the names of the broker settings. Sizes are bytes, times milliseconds.

    `offset_metadata_max_bytes` is a limit of UTF-16 code units, despite its name (reference 4.9). A load buffer that is
    too small grows, as in a broker. Timeout and acks are for whoever appends the records.
    """

    offsets_topic_num_partitions: int = 50
    offsets_load_buffer_size: int = 5 * 1024 * 1024
    offsets_commit_timeout_ms: int = 5000
    offsets_commit_required_acks: int = -1
    offset_metadata_max_bytes: int = 4096
    offsets_retention_ms: int = 7 * _DAY_MS


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load, or of a replay of later records.

    `status` is `ignored` if the epoch is too old or the partition is already owned. `error` is why the load failed.
    `problem` is what a classic broker logs as an error after it has published everything (reference 4.7 item 5).
    `records`, `size` (bytes) and `buffer_size` (bytes of the load buffer) say what was read; `groups` and `offsets`
    count what the partition has afterwards. `skipped` has the offset of each skipped record, with the reason.
    """

    status: Literal["loaded", "failed", "ignored"]
    error: str | None = None
    problem: str | None = None
    records: int = 0
    size: int = 0
    buffer_size: int = 0
    groups: int = 0
    offsets: int = 0
    skipped: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnloadResult:
    """The result of an unload: the counts that a broker logs. If the epoch was too old, nothing was removed."""

    is_accepted: bool
    groups: int = 0
    offsets: int = 0


class LoadedPartitions:
    """The groups and committed offsets of the partitions that one broker coordinates.

    `coordinator` is `new` (the only one from 4.1 on) or `classic`; reference 5.9 has the differences. `release` is the
    release of the new one: `4.0` to `4.4`, or `unmerged` with rules that are only proposed (reference 5.11). A load
    fails at a record that a broker cannot replay; with `on_bad_record="skip"` it skips such records, as the job does.
    `clock` returns the current time in ms since 1970. Raises UsageError for another coordinator or release.
    """

    def __init__(
        self,
        coordinator: Coordinator = "new",
        config: OffsetConfig | None = None,
        *,
        release: str = LAST_RELEASE,
        on_bad_record: OnBadRecord = "fail",
        clock: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        if coordinator not in get_args(Coordinator):
            raise UsageError(f"unknown coordinator {coordinator!r}: choose classic or new")
        self.coordinator = coordinator
        self.rules = rules_for(release)
        self.config = config or OffsetConfig()
        self.on_bad_record = on_bad_record
        self.clock = clock
        self.ownership = Ownership(is_new=self.is_new)
        self._partitions: dict[int, PartitionReplay] = {}
        self._load_errors: dict[int, str] = {}
        self._cached: dict[str, PartitionReplay] = {}  # the classic coordinator has one cache for all partitions

    @property
    def is_new(self) -> bool:
        """Whether this is the new coordinator."""
        return self.coordinator == "new"

    def partition_for(self, group_id: str) -> int:
        """Return the offsets partition of a group."""
        return partition_for(group_id, self.config.offsets_topic_num_partitions)

    def load_partition(
        self,
        partition: int,
        batches: Iterable[RecordBatch],
        *,
        coordinator_epoch: int = 0,
        on_group_loaded: OnGroup | None = None,
    ) -> LoadResult:
        """Replay a partition from the start of its log. It is loading until all batches are read.

        A record that cannot be replayed raises nothing. Nothing of the partition is visible then: a classic coordinator
        owns an empty partition, and the new one has it as FAILED and answers NOT_COORDINATOR. An error raised while
        reading the batches has the same effect, and reaches the caller.
        """
        if not self.ownership.start_load(partition, coordinator_epoch):
            return LoadResult("ignored")
        self._load_errors.pop(partition, None)
        result = self._replay(partition, self._empty(), batches)
        if on_group_loaded is not None and result.status == "loaded":
            for group in list(self._partitions[partition].groups.values()):
                on_group_loaded(group)
        return result

    def apply(self, partition: int, batches: Iterable[RecordBatch]) -> LoadResult:
        """Replay the records that follow a load, as if the load had continued.

        Ignored for a partition that is not owned. Fails if the load failed, as a load of the complete log would. Do not
        pass records that this cache wrote itself: it has them already.
        """
        if partition in self._load_errors:
            return LoadResult("failed", error=self._load_errors[partition])
        replay = self._partitions.get(partition)
        if replay is None:
            return LoadResult("ignored")
        return self._replay(partition, replay, batches)

    def unload_partition(
        self, partition: int, coordinator_epoch: int | None = None, on_group_unloaded: OnGroup | None = None
    ) -> UnloadResult:
        """Unload a partition: remove its groups (classic ones become Dead) and its producers' open transactions.

        The classic coordinator removes all groups whose hash gives this partition, wherever they were loaded from.
        """
        if not self.ownership.unload(partition, coordinator_epoch):
            return UnloadResult(is_accepted=False)
        replay = self._partitions.pop(partition, None)
        self._load_errors.pop(partition, None)
        if self.is_new:
            removed = [] if replay is None else [(group_id, replay) for group_id in replay.groups]
        else:
            removed = [(g, owner) for g, owner in self._cached.items() if self.partition_for(g) == partition]
        offsets = sum(len(self._offsets_in(owner, group_id).committed) for group_id, owner in removed)
        for group_id, owner in removed:
            group = owner.groups[group_id]
            if isinstance(group, ClassicGroup):
                group.transition_to(GroupState.DEAD, self.clock())
            if on_group_unloaded is not None:
                on_group_unloaded(group)
            owner.remove(group_id)
        return UnloadResult(True, len(removed), offsets)

    def add_partition_ownership(self, partition: int) -> None:
        """Own a partition as if an empty log had been loaded."""
        self.load_partition(partition, ())

    def is_partition_owned(self, partition: int) -> bool:
        """Whether the partition is loaded and served."""
        return partition in self.ownership.owned

    def is_partition_loading(self, partition: int) -> bool:
        """Whether the partition is being loaded."""
        return partition in self.ownership.loading

    def get_group(self, group_id: str) -> Group | None:
        """Return a group of the cache, None if it is not there."""
        owner = self.owner(group_id)
        return None if owner is None else owner.groups.get(group_id)

    def add_group(self, group: Group) -> Group | None:
        """Add a group, unless its id is cached; return the cached group. None if its partition is not owned."""
        present = self.get_group(group.group_id)
        if present is not None:
            return present
        partition = self._partitions.get(self.partition_for(group.group_id))
        if partition is None:
            return None
        partition.add(group)
        return group

    def get_or_maybe_create_group(self, group_id: str, *, create_if_not_exists: bool) -> Group | None:
        """Return a group, or create an Empty one of generation 0. None if its partition is not owned."""
        group = self.get_group(group_id)
        if group is None and create_if_not_exists:
            return self.add_group(ClassicGroup(group_id, GroupState.EMPTY, self.clock()))
        return group

    def group_not_exists(self, group_id: str) -> bool:
        """Whether the group certainly does not exist: its partition is owned, and the group is absent or Dead."""
        group = self.get_group(group_id)
        is_absent = group is None or group.state is GroupState.DEAD
        return self.is_partition_owned(self.partition_for(group_id)) and is_absent

    def current_groups(self) -> Iterator[Group]:
        """Yield every group. The new coordinator yields a group twice if two partitions have it."""
        if self.is_new:
            for replay in self._partitions.values():
                yield from replay.groups.values()
        else:
            for group_id, replay in self._cached.items():
                yield replay.groups[group_id]

    def partitions(self) -> Iterator[PartitionReplay]:
        """Yield the replay of each loaded partition."""
        yield from self._partitions.values()

    def owner(self, group_id: str) -> PartitionReplay | None:
        """Return the replay that has a group and its offsets. A cached classic group may be in another partition's."""
        own = self._partitions.get(self.partition_for(group_id))
        return own if self.is_new else self._cached.get(group_id, own)

    def offsets_of(self, group_id: str) -> GroupOffsets:
        """Return a group's offsets: committed, in flight and pending. Empty if no partition has them."""
        owner = self.owner(group_id)
        return GroupOffsets() if owner is None else self._offsets_in(owner, group_id)

    def snapshot(self, topic_names: Mapping[str, str] | None = None) -> JsonObject:
        """Return all groups and committed offsets as plain data, sorted. Topic ids with a known name become names."""
        if self.is_new:
            offsets = [item for replay in self._partitions.values() for item in replay.offsets.items()]
        else:
            offsets = [(group_id, owner.offsets.for_group(group_id)) for group_id, owner in self._cached.items()]
        groups = sorted(self.current_groups(), key=lambda group: group.group_id)
        return {
            "groups": [group.describe(topic_names or {}) for group in groups],
            "offsets": [
                {
                    "group_id": group_id,
                    "topic": partition.topic,
                    "partition": partition.partition,
                    "offset": commit.offset,
                    "leader_epoch": commit.leader_epoch,
                    "metadata": commit.metadata,
                    "commit_timestamp": commit.commit_timestamp_ms,
                }
                for group_id, group_offsets in sorted(offsets, key=lambda item: item[0])
                for partition, commit in sorted(group_offsets.committed.items())
            ],
        }

    def _empty(self) -> PartitionReplay:
        return NewReplay(self.rules) if self.is_new else ClassicLoad(self._cached)

    def _replay(self, partition: int, replay: PartitionReplay, batches: Iterable[RecordBatch]) -> LoadResult:
        try:
            summary = replay.replay(batches, self.on_bad_record, self.config.offsets_load_buffer_size)
        except ReplayError as reason:
            self._fail(partition, replay, reason)
            return LoadResult("failed", error=str(reason))
        except BaseException as reason:  # reading the log failed
            self._fail(partition, replay, reason)
            raise
        problem = replay.publish(self.clock())
        self._partitions[partition] = replay
        self.ownership.end_load(partition)
        return LoadResult(
            "loaded",
            problem=problem,
            records=summary.records,
            size=summary.size,
            buffer_size=summary.buffer_size,
            groups=len(replay.groups),
            offsets=replay.offsets.count(),
            skipped=summary.skipped,
        )

    def _fail(self, partition: int, replay: PartitionReplay, reason: BaseException) -> None:
        for group_id in list(replay.groups):
            replay.remove(group_id)
        self._partitions.pop(partition, None)
        if not self.is_new:
            self._partitions[partition] = self._empty()
        self._load_errors[partition] = str(reason)
        self.ownership.fail(partition)

    @staticmethod
    def _offsets_in(owner: PartitionReplay, group_id: str) -> GroupOffsets:
        return owner.offsets.groups.get(group_id) or GroupOffsets()


class Ownership:
    """The partitions that are loading, owned (ACTIVE in the new coordinator) or failed, and their epochs.

    The classic coordinator accepts the same epoch again, keeps the epoch of an unloaded partition, and owns a partition
    even if its load failed. The new one requires a higher epoch, forgets the epoch at unload, and keeps a failed
    partition as such.
    """

    def __init__(self, *, is_new: bool) -> None:
        self._is_new = is_new
        self.loading: set[int] = set()
        self.owned: set[int] = set()
        self.failed: set[int] = set()
        self.epochs: dict[int, int] = {}

    def start_load(self, partition: int, epoch: int) -> bool:
        """Start a load. False if the epoch is too old, or the partition is already owned or loading."""
        if not self._accept(partition, epoch) or partition in self.owned | self.loading:
            return False
        self.failed.discard(partition)
        self.loading.add(partition)
        return True

    def end_load(self, partition: int) -> None:
        """Own a partition after all its records were replayed."""
        self.loading.discard(partition)
        self.owned.add(partition)

    def fail(self, partition: int) -> None:
        """Drop a partition whose replay failed. A classic coordinator then owns it, empty."""
        self.loading.discard(partition)
        self.owned.discard(partition)
        (self.failed if self._is_new else self.owned).add(partition)

    def unload(self, partition: int, epoch: int | None) -> bool:
        """Give up a partition. False if the epoch is too old. Without an epoch (StopReplica) it always succeeds."""
        if epoch is not None and not self._accept(partition, epoch):
            return False
        for partitions in (self.loading, self.owned, self.failed):
            partitions.discard(partition)
        if self._is_new:
            self.epochs.pop(partition, None)
        return True

    def _accept(self, partition: int, epoch: int) -> bool:
        known_epoch = self.epochs.get(partition)
        if known_epoch is not None and (epoch <= known_epoch if self._is_new else epoch < known_epoch):
            return False
        self.epochs[partition] = epoch
        return True
