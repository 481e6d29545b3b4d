"""Why a micro-batch is not written although it was read. Its query ends."""

from __future__ import annotations

from offsetstream.stream.monitor.watch import TopicChangedError


class StopRequestedError(Exception):
    """The micro-batch must not start. Spark does not commit it, and the next query reads it again."""


class LeadersChangedSinceStartError(Exception):
    """Partitions have another leader than when the query started. Another query must continue.

    Spark caches consumers, and these may still hold fetched records of the old leader that no log has any more. Such
    records would be in a later batch, which no check refuses. A new query has a new group id, and so new consumers. No
    setting does the same: Spark drops only idle consumers, and executors of spark-submit accept no settings after the
    start.
    """


class PlacementChangedError(Exception):
    """The brokers place groups by another rule than the tables have. Another query must decode by that rule."""


REFUSALS = (StopRequestedError, LeadersChangedSinceStartError, TopicChangedError)
