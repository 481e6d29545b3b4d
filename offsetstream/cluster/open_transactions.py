"""Find open transactions on partitions, with details from their coordinators (KIP-664), by Kafka's Java client."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from tenacity import retry_if_result

from offsetstream.cluster.answers import Place
from offsetstream.cluster.connection import patience
from offsetstream.cluster.java_client import NO_ANSWER, JavaAdmin

_NOT_FOUND = "TRANSACTIONAL_ID_NOT_FOUND"


@dataclass(frozen=True)
class OpenTransaction:
    """An open transaction on a partition. Times are in milliseconds since 1970.

    `transactional_id` and the fields after it come from the transaction coordinator (None: unknown). `is_hanging`: no
    coordinator has this partition in a transaction of the producer, so the transaction will never end here.
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
    """Finds open transactions with Kafka's Admin client (`java_admin`, FEW_TRIES). A request has `timeout` seconds."""

    def __init__(self, jvm: Any, client: Any, timeout: float) -> None:
        self._admin, self._timeout = JavaAdmin(jvm, client), timeout
        self._timeout_ms = round(timeout * 1000)

    def find(self, places: Collection[Place], *, all_coordinate: bool) -> Open:
        """Return the open transactions of each partition, the earliest first, or Kafka's name of the error.

        Needs READ on the topics (DescribeProducers). Without DESCRIBE on all transactional ids (ListTransactions and
        DescribeTransactions), the coordinator's fields are None. `all_coordinate` says that every partition of
        __transaction_state has a leader. Otherwise a transaction that no coordinator knows may belong to a partition
        without one, and `is_hanging` stays None. Raises what `java_admin` raises.
        """
        found = self._producers(places)
        producer_ids = {each.producer_id for opened in _lists(found) for each in opened}
        ids = self._admin.retried(lambda: self._transactional_ids(producer_ids), self._timeout)
        described = self._admin.retried(lambda: self._descriptions(set(ids.values())), self._timeout)
        transactions = {
            place: opened
            if isinstance(opened, str)
            else [self._with_details(place, each, ids.get(each.producer_id), described) for each in opened]
            for place, opened in found.items()
        }
        return self._with_hanging(transactions) if all_coordinate and self._sees_all() else transactions

    def _producers(self, places: Collection[Place]) -> Open:
        found = Open()

        def ask() -> bool:
            found.update(self._producers_now([place for place in places if _needs_request(found.get(place))]))
            return any(map(_needs_request, found.values()))

        patience(retry_if_result(bool), self._timeout)(ask)
        return found

    def _producers_now(self, places: Collection[Place]) -> Open:
        partitions = {place: self._admin.place(place) for place in places}
        options = self._admin.classes.DescribeProducersOptions().timeoutMs(self._timeout_ms)
        result, found = self._admin.client.describeProducers(list(partitions.values()), options), Open()
        for place, java in partitions.items():
            try:
                producers = result.partitionResult(java).get().activeProducers()
            except Py4JJavaError as error:
                found[place] = self._admin.error_name(error)
            else:
                found[place] = sorted(_open(producers), key=lambda each: each.start_offset)
        return found

    def _transactional_ids(self, producer_ids: Collection[int]) -> dict[int, str]:
        """Return the transactional id of each producer, if a coordinator knows it and the user may see it."""
        if not producer_ids:
            return {}
        java_ids = self._longs(producer_ids)
        options = self._admin.classes.ListTransactionsOptions().filterProducerIds(java_ids).timeoutMs(self._timeout_ms)
        listed = self._admin.client.listTransactions(options).all().get()
        return {each.producerId(): each.transactionalId() for each in listed}

    def _descriptions(self, transactional_ids: Collection[str]) -> dict[str, Any]:
        if not transactional_ids:
            return {}
        options = self._admin.classes.DescribeTransactionsOptions().timeoutMs(self._timeout_ms)
        result, found = self._admin.client.describeTransactions(list(transactional_ids), options), {}
        for each in transactional_ids:
            try:
                found[each] = result.description(each).get()
            except Py4JJavaError as error:
                if self._admin.error_name(error) != _NOT_FOUND:  # it has expired just now
                    raise
        return found

    def _with_details(
        self, place: Place, opened: OpenTransaction, transactional_id: str | None, described: Mapping[str, Any]
    ) -> OpenTransaction:
        details = described.get(transactional_id or "")
        if details is None:
            return opened
        started = details.transactionStartTimeMs()
        return replace(
            opened,
            transactional_id=transactional_id,
            state=str(details.state().toString()),
            coordinator_id=details.coordinatorId(),
            started_ms=started.getAsLong() if started.isPresent() else None,
            timeout_ms=details.transactionTimeoutMs(),
            is_hanging=False if details.topicPartitions().contains(self._admin.place(place)) else None,
        )

    def _with_hanging(self, found: Open) -> Open:
        """Request the transactions that no coordinator knows again. Those that are still open are hanging."""
        doubtful = [
            place
            for place, opened in found.items()
            if not isinstance(opened, str) and any(each.is_hanging is None for each in opened)
        ]
        still = self._producers(doubtful) if doubtful else {}
        return found | {place: _still_open(found[place], still[place]) for place in doubtful}

    def _sees_all(self) -> bool:
        """Return whether the user may see all transactional ids. Coordinators silently omit the others."""
        any_id = uuid4().hex
        options = self._admin.classes.DescribeTransactionsOptions().timeoutMs(self._timeout_ms)
        try:
            self._admin.client.describeTransactions([any_id], options).description(any_id).get()
        except Py4JJavaError as error:
            return self._admin.error_name(error) == _NOT_FOUND
        return True

    def _longs(self, numbers: Collection[int]) -> Any:
        """Return a Java list of Longs. py4j would turn small numbers into Integers."""
        found = self._admin.jvm.java.util.ArrayList()
        for number in numbers:
            found.addAll(self._admin.jvm.java.util.stream.LongStream.of(number).boxed().toList())
        return found


def _needs_request(found: list[OpenTransaction] | str | None) -> bool:
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
    still_open = {(each.producer_id, each.start_offset) for each in now}
    return [
        each if each.is_hanging is not None else replace(each, is_hanging=True)
        for each in before
        if each.is_hanging is not None or (each.producer_id, each.start_offset) in still_open
    ]


def _lists(found: Open) -> Iterator[list[OpenTransaction]]:
    return (opened for opened in found.values() if not isinstance(opened, str))
