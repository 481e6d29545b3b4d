"""Change committed offsets on a live cluster: plan, check for objections, write a snapshot, execute, undo."""
