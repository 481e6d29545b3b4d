"""The decoded history: changes of groups, members and assignments, derived from the records of groups."""
