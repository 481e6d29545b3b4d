"""Transactions that are open on partitions, and what their coordinators know of them (KIP-664), by Kafka's client."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from tenacity import retry_if_result

from offsetstream.cluster.committed import Place
from offsetstream.cluster.java_client import NO_ANSWER, asked_again, error_name
from offsetstream.cluster.patience import patience

_NOT_FOUND = "TRANSACTIONAL_ID_NOT_FOUND"


@dataclass(frozen=True)
class OpenTransaction:
    """A producer's transaction that is open on a partition; times in milliseconds since 1970.

    From `transactional_id` on it is what the coordinator tells, None where that is not known. `is_hanging`: no
    coordinator has this partition in a transaction of the producer, so that none will ever end it there.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start_offset: int
    last_written_ms: int
    transactional_id: str | None = None
    state: str | None = None
    coordinator_id: int | None = None
    started_ms: int | None = None
    timeout_ms: int | None = None
    is_hanging: bool | None = None


Open: TypeAlias = dict[Place, list[OpenTransaction] | str]


class OpenTransactions:
    """Kafka's Admin client (`java_admin`, FEW_TRIES), asked for open transactions; a question has `timeout` seconds."""

    def __init__(self, jvm: Any, client: Any, timeout: float) -> None:
        self._jvm, self._client, self._timeout = jvm, client, timeout
        self._admin = jvm.org.apache.kafka.clients.admin
        self._timeout_ms = round(timeout * 1000)

    def find(self, places: Collection[Place], *, all_coordinate: bool) -> Open:
        """Return the open transactions of each partition, the earliest first, or the error by Kafka's name.

        Needs READ on the topics (DescribeProducers); without DESCRIBE on all transactional ids (ListTransactions and
        DescribeTransactions) what coordinators tell is None. `all_coordinate`: no partition of __transaction_state is
        without a leader; else one that no coordinator knows may be that partition's. Raises what `java_admin` does.
        """
        found = self._producers(places)
        producer_ids = {each.producer_id for opened in _lists(found) for each in opened}
        ids = asked_again(self._jvm, lambda: self._transactional_ids(producer_ids), self._timeout)
        described = asked_again(self._jvm, lambda: self._descriptions(set(ids.values())), self._timeout)
        whole = {
            place: opened
            if isinstance(opened, str)
            else [self._told(place, each, ids.get(each.producer_id), described) for each in opened]
            for place, opened in found.items()
        }
        return self._with_hanging(whole) if all_coordinate and self._sees_all() else whole

    def _producers(self, places: Collection[Place]) -> Open:
        found = Open()

        def ask() -> bool:
            found.update(self._producers_now([place for place in places if _is_to_ask(found.get(place))]))
            return any(map(_is_to_ask, found.values()))

        patience(retry_if_result(bool), self._timeout)(ask)
        return found

    def _producers_now(self, places: Collection[Place]) -> Open:
        asked = {place: self._java(place) for place in places}
        options = self._admin.DescribeProducersOptions().timeoutMs(self._timeout_ms)
        told, found = self._client.describeProducers(list(asked.values()), options), Open()
        for place, java in asked.items():
            try:
                producers = told.partitionResult(java).get().activeProducers()
            except Py4JJavaError as error:
                found[place] = error_name(self._jvm, error)
            else:
                found[place] = sorted(_open(producers), key=lambda each: each.start_offset)
        return found

    def _transactional_ids(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the transactional id of each producer, as far as coordinators know it and the user may see it."""
        if not producer_ids:
            return {}
        wanted = self._longs(producer_ids)
        options = self._admin.ListTransactionsOptions().filterProducerIds(wanted).timeoutMs(self._timeout_ms)
        listed = self._client.listTransactions(options).all().get()
        return {each.producerId(): each.transactionalId() for each in listed}

    def _descriptions(self, transactional_ids: Collection[str]) -> dict[str, Any]:
        if not transactional_ids:
            return {}
        options = self._admin.DescribeTransactionsOptions().timeoutMs(self._timeout_ms)
        told, found = self._client.describeTransactions(list(transactional_ids), options), {}
        for each in transactional_ids:
            try:
                found[each] = told.description(each).get()
            except Py4JJavaError as error:
                if error_name(self._jvm, error) != _NOT_FOUND:  # it has expired just now
                    raise
        return found

    def _told(
        self, place: Place, opened: OpenTransaction, transactional_id: str | None, described: Mapping[str, Any]
    ) -> OpenTransaction:
        about = described.get(transactional_id or "")
        if about is None:
            return opened
        started = about.transactionStartTimeMs()
        return replace(
            opened,
            transactional_id=transactional_id,
            state=str(about.state().toString()),
            coordinator_id=about.coordinatorId(),
            started_ms=started.getAsLong() if started.isPresent() else None,
            timeout_ms=about.transactionTimeoutMs(),
            is_hanging=False if about.topicPartitions().contains(self._java(place)) else None,
        )

    def _with_hanging(self, found: Open) -> Open:
        """Ask for those again that no coordinator knows: what is open still was not ended in between."""
        doubtful = [
            place
            for place, opened in found.items()
            if not isinstance(opened, str) and any(each.is_hanging is None for each in opened)
        ]
        still = self._producers(doubtful) if doubtful else {}
        return found | {place: _still_open(found[place], still[place]) for place in doubtful}

    def _sees_all(self) -> bool:
        """Tell whether the user may see all transactional ids: coordinators leave out the others without a word."""
        some = uuid4().hex
        options = self._admin.DescribeTransactionsOptions().timeoutMs(self._timeout_ms)
        try:
            self._client.describeTransactions([some], options).description(some).get()
        except Py4JJavaError as error:
            return error_name(self._jvm, error) == _NOT_FOUND
        return True

    def _longs(self, numbers: Collection[int]) -> Any:
        """Return a list of Java's Longs: py4j would make Integers of small numbers."""
        found = self._jvm.java.util.ArrayList()
        for number in numbers:
            found.addAll(self._jvm.java.util.stream.LongStream.of(number).boxed().toList())
        return found

    def _java(self, place: Place) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(*place)


def _is_to_ask(found: list[OpenTransaction] | str | None) -> bool:
    return found is None or (isinstance(found, str) and found in NO_ANSWER)


def _open(producers: Any) -> Iterator[OpenTransaction]:
    for each in producers:
        start, epoch = each.currentTransactionStartOffset(), each.coordinatorEpoch()
        if start.isPresent():
            yield OpenTransaction(
                each.producerId(),
                each.producerEpoch(),
                epoch.getAsInt() if epoch.isPresent() and epoch.getAsInt() >= 0 else None,
                start.getAsLong(),
                each.lastTimestamp(),
            )


def _still_open(before: list[OpenTransaction] | str, now: list[OpenTransaction] | str) -> list[OpenTransaction] | str:
    if isinstance(before, str) or isinstance(now, str):
        return before
    left = {(each.producer_id, each.start_offset) for each in now}
    return [
        each if each.is_hanging is not None else replace(each, is_hanging=True)
        for each in before
        if each.is_hanging is not None or (each.producer_id, each.start_offset) in left
    ]


def _lists(found: Open) -> Iterator[list[OpenTransaction]]:
    return (opened for opened in found.values() if not isinstance(opened, str))
