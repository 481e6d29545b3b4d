"""The decoded history: what happened to groups, members and assignments, from the records of the groups."""
