"""One page of what became of the groups: queries, plain rows, charts as data, and a template."""
