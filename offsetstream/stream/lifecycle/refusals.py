"""Why a micro-batch that was read is not written, and its query ends."""

from __future__ import annotations

from offsetstream.stream.monitor.observer import PartitionsChangedError


class StopRequestedError(Exception):
    """Raised inside a micro-batch that must not begin; Spark leaves it undone, and the next run does it."""


class LedAnewError(Exception):
    """Raised when partitions have got another leader since the query began: a new one is to go on.

    The consumers that Spark keeps may still have records of the old leader that are in no log any more: fetched with
    those of an earlier batch, they would be in a later one that no look refuses. Each query has a group, and so
    consumers, of its own. No setting does as much: Spark drops what was idle for a while, and executors of
    spark-submit take no settings any more when the job starts.
    """


class PlacedAnewError(Exception):
    """Raised when the brokers turn out to place groups by another rule: a new query is to tell so of what it reads."""


REFUSALS = (StopRequestedError, LedAnewError, PartitionsChangedError)
