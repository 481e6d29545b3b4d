"""The offsets partitions that a broker coordinates: loads, unloads, and their groups and offsets (reference 4, 5)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeAlias, get_args

from offsetstream.codec.batches import RecordBatch
from offsetstream.codec.serde import JsonObject
from offsetstream.coordinator.coordinator_kind import Coordinator
from offsetstream.coordinator.load_results import LoadResult, UnloadResult
from offsetstream.coordinator.offset_config import OffsetConfig
from offsetstream.coordinator.ownership import Ownership
from offsetstream.coordinator.partitioning import partition_for
from offsetstream.coordinator.replay.classic_group import ClassicGroup
from offsetstream.coordinator.replay.classic_load import ClassicLoad
from offsetstream.coordinator.replay.group_states import GroupState
from offsetstream.coordinator.replay.new_replay import NewReplay
from offsetstream.coordinator.replay.offsets import GroupOffsets
from offsetstream.coordinator.replay.partition_replay import Group, OnBadRecord, PartitionReplay
from offsetstream.coordinator.replay.release_rules import LAST_RELEASE, rules_for
from offsetstream.coordinator.snapshot import describe_groups, describe_offsets
from offsetstream.errors import ReplayError, UsageError

OnGroup: TypeAlias = Callable[[Group], None]


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
        return {
            "groups": describe_groups(self.current_groups(), topic_names or {}),
            "offsets": describe_offsets(offsets),
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
