"""A connection to a cluster: how it is asked, and what its refusals mean to a person."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from offsetstream.cluster.properties import librdkafka_config
from offsetstream.cluster.rights import Right, in_words
from offsetstream.errors import (
    ClusterError,
    OffsetstreamError,
    OtherClusterError,
    UnauthorisedError,
    UnreachableError,
    UsageError,
)

Answer = TypeVar("Answer")
Asked = TypeVar("Asked")
TIMEOUT = 30.0  # seconds
_FIRST = 1 / 3  # of it, after which another broker is asked
NO_RIGHT = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_LOOK = 0.05  # seconds after which a login that was refused is looked for
_ONCE_STOPPED = 5.0  # seconds that an answer may still take
QUIET = logging.getLogger("offsetstream.librdkafka")  # what it says reaches users in our errors
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
_NO_LOGIN = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION, KafkaError._SSL}
_SILENT = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}
_UNREACHABLE = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._FAIL,
    # librdkafka lets brokers go that the metadata has no more, with what they were asked.
    KafkaError._DESTROY_BROKER,
    KafkaError._DESTROY,
}
LEADER_MOVES = {
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,
}
# A cluster in the middle of an election, or of a broker's restart.
_FOR_NOW = {
    *LEADER_MOVES,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._UNKNOWN_BROKER,
    KafkaError._WAIT_COORD,
    KafkaError._NOENT,
}


class Connection:
    """confluent-kafka's Admin client with the user's own client properties.

    Raises UsageError for properties that it cannot have, UnauthorisedError where a right or the login is refused,
    UnreachableError where no broker answers within 30 seconds, ClusterError for the rest. Once `is_stopped` says so it
    does not wait for the first answer any more, for others 5 seconds, and for what librdkafka waits for by itself no
    second time: UnreachableError.
    """

    def __init__(
        self,
        bootstrap_server: str,
        properties: Mapping[str, str] | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.bootstrap_server = bootstrap_server
        self._is_stopped = is_stopped
        self._errors: deque[KafkaError] = deque(maxlen=100)  # heard since the last answer
        self._is_connected = False
        self._cluster_id: str | None = None
        self._addresses: list[str] = []  # of the brokers, as last told
        self._settings = {
            "client.id": "offsetstream",
            "socket.connection.setup.timeout.ms": 10_000,
            **librdkafka_config(properties or {}, bootstrap_server),
            "bootstrap.servers": bootstrap_server,
            "error_cb": self._errors.append,
        }
        try:
            self._admin = AdminClient(self._settings, logger=QUIET)
        except KafkaException as error:
            raise UsageError(f"the client properties do not work: {error.args[0].str()}") from error

    def lacks(self, rights: list[Right]) -> UnauthorisedError:
        """Return the error that the user does not have the rights."""
        return UnauthorisedError(
            f"{self.bootstrap_server} does not let this user do that: it lacks {in_words(rights)}; "
            "docs/how-to/security.md has the rights of each command"
        )

    def _metadata(self, topic: str | None) -> Any:
        found = self._listed(topic=topic) if topic else self._listed()
        if self._cluster_id not in {None, str(found.cluster_id)}:
            raise OtherClusterError(
                f"at {self.bootstrap_server} there is now the cluster {found.cluster_id}, no more {self._cluster_id}: "
                "give each cluster its own --tables and --checkpoint"
            )
        self._know(found.brokers.values())
        return found

    def _know(self, brokers: Iterable[Any]) -> None:
        self._addresses = [f"{broker.host}:{broker.port}" for broker in brokers]

    def _listed(self, **of: str) -> Any:
        return self._or_another(lambda timeout: self._admin.list_topics(**of, timeout=timeout))

    def _or_another(self, question: Callable[[float], Answer]) -> Answer:
        """Ask a question, which is given its timeout in seconds; where nobody answers in time another broker, once."""
        try:
            return question(TIMEOUT * _FIRST)
        except KafkaException as error:
            if error.args[0].code() not in _SILENT or self._is_stopped():
                raise
        self._renew()
        return question(TIMEOUT * (1 - _FIRST))

    def _renew(self) -> None:
        """Begin anew with any broker: librdkafka may go on asking the one that has fallen silent, for minutes."""
        servers = ",".join([*self._addresses, self.bootstrap_server])
        self._admin = AdminClient(self._settings | {"bootstrap.servers": servers}, logger=QUIET)

    def _connect(self) -> None:
        """Wait for the first answer; a refused login, after which librdkafka goes on trying, ends the wait."""
        if self._is_connected:
            return
        self._errors.clear()
        self._know(self._or_another(self._nodes))  # it may wait for a controller that has just died
        self._is_connected = True

    def _nodes(self, timeout: float) -> Any:
        answer = self._admin.describe_cluster(request_timeout=timeout)
        while not answer.done() and self._refusal() is None:
            self._admin.poll(_LOOK)  # which hears the errors
            if self._is_stopped():
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if (refusal := self._refusal()) is not None:
            raise KafkaException(refusal)
        return self._wait(answer).nodes

    def _wait(self, answer: Future[Any]) -> Any:
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                return answer.result(timeout=_ONCE_STOPPED)
            except TimeoutError as error:
                if self._is_stopped() or time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error

    def _settle(self, asked: Mapping[Asked, Future[Any]]) -> tuple[dict[Asked, Any], dict[Asked, KafkaError]]:
        """Return the answers that came, and the errors of the others."""
        answers: dict[Asked, Any] = {}
        errors: dict[Asked, KafkaError] = {}
        for name, answer in asked.items():
            try:
                answers[name] = self._wait(answer)
            except KafkaException as error:
                errors[name] = error.args[0]
        return answers, errors

    def _settle_by_coordinators(
        self, asked: Mapping[Asked, Future[Any]]
    ) -> tuple[dict[Asked, Any], dict[Asked, KafkaError]]:
        """Return the same of what groups' coordinators are asked; where one is silent, the client is another one then.

        librdkafka keeps such a question beyond its time, and frees it twice when the coordinator comes back: an
        assertion that ends the process (2.16; confluentinc/librdkafka#4605). It goes with its client.
        """
        answers, errors = self._settle(asked)
        if any(error.code() in _SILENT for error in errors.values()):
            self._renew()
        return answers, errors

    def _told_by_coordinator(self, answer: Future[Any]) -> Any:
        answers, errors = self._settle_by_coordinators({"": answer})
        if errors:
            raise KafkaException(errors[""])
        return answers[""]

    def _refusal(self) -> KafkaError | None:
        return next((error for error in self._errors if _is_refusal(error)), None)

    def _result(self, what: str, answer: Future[Any], right: Right | None = None) -> Any:
        return self._ask(what, lambda: self._wait(answer), right)

    def _ask(self, what: str, question: Callable[[], Answer], right: Right | None = None) -> Answer:
        try:
            self._connect()
            answer = question()
        except KafkaException as error:
            raise self._as_error(what, error.args[0], right) from error
        self._errors.clear()
        return answer

    def _ask_again(self, what: str, question: Callable[[float], Answer]) -> Answer:
        """Ask what one broker is to answer, the controller above all, giving the question its timeout in seconds.

        Where nobody answers in time another one is asked, once.
        """
        try:
            return self._ask(what, lambda: question(TIMEOUT * _FIRST))
        except UnreachableError:
            if not self._is_connected or self._is_stopped():  # nobody has ever answered: there is no other one
                raise
            self._renew()
            return self._ask(what, lambda: question(TIMEOUT * (1 - _FIRST)))

    def _as_error(self, what: str, error: KafkaError, right: Right | None = None) -> OffsetstreamError:
        self._admin.poll(0)  # hears what went before
        refusal = error if _is_refusal(error) else self._refusal()
        if error.code() in NO_RIGHT:
            if right is not None:
                return self.lacks([right])
            return UnauthorisedError(
                f"{self.bootstrap_server} refuses {what}: {error.str()}; see docs/how-to/security.md"
            )
        if refusal is not None:
            reason = refusal.str().replace("ssl.ca.location", "ssl.truststore.*")  # as the user's file calls it
            return UnauthorisedError(
                f"{self.bootstrap_server} refuses this login, or is not trusted: {reason}; "
                "check the file of --command-config"
            )
        if error.code() in _UNREACHABLE:
            reason = self._errors[-1].str() if self._errors else error.str()
            return UnreachableError(f"no broker answers at {self.bootstrap_server}: {reason}")
        if error.code() in _FOR_NOW:
            return UnreachableError(f"{self.bootstrap_server} cannot answer for {what} for now: {error.str()}")
        return ClusterError(f"cannot ask {self.bootstrap_server} for {what}: {error.str()}")


def _is_refusal(error: KafkaError) -> bool:
    """Tell whether trying again is of no use; a TLS alert comes as a failure of transport."""
    return error.code() in _NO_LOGIN or ("SSL" in error.str() and " alert " in error.str())
