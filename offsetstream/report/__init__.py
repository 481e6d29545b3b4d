"""The report: one HTML page about the groups, from queries, plain rows, charts as data and a template."""
