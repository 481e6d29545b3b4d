"""The warnings of a look-up while offsets partitions are still loading: its answer lacks their groups."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from offsetstream.cli.messages import counted, print_line
from offsetstream.tables.lookup import Lookup
from offsetstream.tables.names import OFFSETS_PARTITIONS, OWNED
from offsetstream.tables.placement import Placement, read_placement


def warn_if_loading(lookup: Lookup, group_ids: Collection[str] | None) -> None:
    """Unless all offsets partitions are loaded, write to stderr how many are, and whether those of the groups are."""
    rows = lookup.rows(OFFSETS_PARTITIONS, ["offsets_partition", "load_state"])
    states = {row["offsets_partition"]: row["load_state"] for row in rows}
    is_loaded = all(state == OWNED for state in states.values())
    # Finding homes by records reads all groups, so it is done only if needed.
    homes = read_placement(lookup).homes if group_ids and not is_loaded else None
    for line in loading_lines(states, group_ids or (), homes):
        print_line(line)


def loading_lines(
    states: dict[int, str], group_ids: Collection[str], homes: Mapping[str, int] | None = None
) -> Iterator[str]:
    """Yield the warnings; `states` has the load state of each offsets partition, `homes` is as in `Placement`."""
    loaded = sum(state == OWNED for state in states.values())
    if not states:
        yield "No offsets partition is known yet: the job has not started to load them"
    elif loaded < len(states):
        yield f"{loaded} of {counted(len(states), 'offsets partition')} {'is' if loaded == 1 else 'are'} loaded"
        placement = Placement(len(states), homes)
        for group_id in group_ids:
            partition = placement.of(group_id)
            if partition is None:
                yield f"The offsets partition of group '{group_id}' is unknown"
                continue
            state = states.get(partition, "unknown")
            is_loaded = "loaded" if state == OWNED else f"not loaded ({state})"
            yield f"Offsets partition {partition} of group '{group_id}' is {is_loaded}"
