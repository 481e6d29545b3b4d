"""A connection to a cluster: send requests, retry them, and turn Kafka's errors into ours."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import RetryCallState, Retrying, stop_after_delay
from tenacity.retry import retry_base
from tenacity.wait import wait_random_exponential

from offsetstream.cluster.properties import ClientProperties, librdkafka_config
from offsetstream.cluster.rights import Right, in_words
from offsetstream.errors import (
    ClusterError,
    OffsetstreamError,
    OtherClusterError,
    RefusedLoginError,
    UnauthorisedError,
    UnreachableError,
    UsageError,
)

Answer = TypeVar("Answer")
Key = TypeVar("Key")
TIMEOUT = 30.0  # seconds
_FIRST_SHARE = 1 / 3  # of the timeout, after which another broker gets the request
NO_RIGHT = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
}
_POLL_SECONDS = 0.05  # between two checks for a refused login
_STOP_SECONDS = 5.0  # for an answer after a stop was requested
QUIET = logging.getLogger("offsetstream.librdkafka")  # our own errors carry its messages
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
_LOGIN_REFUSED = {KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._AUTHENTICATION, KafkaError._SSL}
_SILENT = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT}
_UNREACHABLE = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._FAIL,
    # librdkafka drops brokers that are no longer in the metadata, together with their pending requests.
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
# During an election or the restart of a broker.
_TEMPORARY = {
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
    """confluent-kafka's Admin client with the user's client properties.

    Raises UsageError for properties that do not work, UnauthorisedError if a right is refused, RefusedLoginError if the
    login is, UnreachableError if no broker answers within 30 seconds, and ClusterError for everything else.
    After a refused login, the next request reads the properties, key stores and trust stores again.
    After `is_stopped` returns True, it raises UnreachableError soon: it does not wait for a first answer, waits at most
    5 seconds for a later one, and does not retry with another broker.
    """

    def __init__(
        self,
        bootstrap_server: str,
        properties: Mapping[str, str] | None = None,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.bootstrap_server = bootstrap_server
        self._is_stopped = is_stopped
        self._errors: deque[KafkaError] = deque(maxlen=100)  # since the last answer
        self._is_connected = False
        self._is_refused = False
        self._cluster_id: str | None = None
        self._addresses: list[str] = []  # of the brokers in the latest metadata
        self._properties = properties or {}
        self._set_up()

    def _set_up(self) -> None:
        """Make the client, with the key and trust stores as they are now."""
        self._settings = {
            "client.id": "offsetstream",
            "socket.connection.setup.timeout.ms": 10_000,
            **librdkafka_config(self._properties, self.bootstrap_server),
            "bootstrap.servers": self.bootstrap_server,
            "error_cb": self._errors.append,
        }
        try:
            self._admin = AdminClient(self._settings, logger=QUIET)
        except KafkaException as error:
            raise UsageError(f"the client properties do not work: {error.args[0].str()}") from error

    def _log_in_again(self) -> None:
        """Use the properties of now."""
        if isinstance(self._properties, ClientProperties):
            self._properties = self._properties.read_again()
        self._set_up()
        self._is_refused = self._is_connected = False

    def lacks(self, rights: list[Right]) -> UnauthorisedError:
        """Return the error for a user who lacks these rights."""
        return UnauthorisedError(
            f"access denied at {self.bootstrap_server}: this user lacks {in_words(rights)}; "
            "docs/reference/rights.md lists the rights of each command"
        )

    def _metadata(self, topic: str | None) -> Any:
        found = self._list_topics(topic=topic) if topic else self._list_topics()
        if self._cluster_id not in {None, str(found.cluster_id)}:
            raise OtherClusterError(
                f"{self.bootstrap_server} is now another cluster: {found.cluster_id} instead of {self._cluster_id}; "
                "use separate --tables and --checkpoint for each cluster"
            )
        self._remember_addresses(found.brokers.values())
        return found

    def _remember_addresses(self, brokers: Iterable[Any]) -> None:
        self._addresses = [f"{broker.host}:{broker.port}" for broker in brokers]

    def _list_topics(self, **topic: str) -> Any:
        return self._or_another_broker(lambda timeout: self._admin.list_topics(**topic, timeout=timeout))

    def _or_another_broker(self, request: Callable[[float], Answer]) -> Answer:
        """Send a request (a function of its timeout in seconds). Without an answer in time, try another broker once."""
        try:
            return request(TIMEOUT * _FIRST_SHARE)
        except KafkaException as error:
            if error.args[0].code() not in _SILENT or self._is_stopped():
                raise
            self._admin.poll(0)  # delivers the reason for the silence
            if self._refusal() is not None:
                raise
        self._renew()
        return request(TIMEOUT * (1 - _FIRST_SHARE))

    def _renew(self) -> None:
        """Replace the client: librdkafka may keep asking a silent broker for minutes."""
        servers = ",".join([*self._addresses, self.bootstrap_server])
        self._admin = AdminClient(self._settings | {"bootstrap.servers": servers}, logger=QUIET)

    def _connect(self) -> None:
        """Wait for the first answer. Stop at a refused login, which librdkafka itself would retry."""
        if self._is_connected:
            return
        self._errors.clear()
        # A broker may wait for a controller that has just died: then another one answers.
        self._remember_addresses(self._or_another_broker(self._nodes))
        self._is_connected = True

    def _nodes(self, timeout: float) -> Any:
        answer = self._admin.describe_cluster(request_timeout=timeout)
        while not answer.done() and self._refusal() is None:
            self._admin.poll(_POLL_SECONDS)  # delivers the errors
            if self._is_stopped():
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if (refusal := self._refusal()) is not None:
            raise KafkaException(refusal)
        return self._wait(answer).nodes

    def _wait(self, answer: Future[Any]) -> Any:
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                return answer.result(timeout=_STOP_SECONDS)
            except TimeoutError as error:
                if self._is_stopped() or time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error

    def _settle(self, futures: Mapping[Key, Future[Any]]) -> tuple[dict[Key, Any], dict[Key, KafkaError]]:
        """Wait for all futures. Return the answers, and the errors of the others."""
        answers: dict[Key, Any] = {}
        errors: dict[Key, KafkaError] = {}
        for name, answer in futures.items():
            try:
                answers[name] = self._wait(answer)
            except KafkaException as error:
                errors[name] = error.args[0]
        return answers, errors

    def _settle_by_coordinators(
        self, futures: Mapping[Key, Future[Any]]
    ) -> tuple[dict[Key, Any], dict[Key, KafkaError]]:
        """Like `_settle`, for requests to group coordinators. If one stays silent, replace the client.

        librdkafka keeps such a request after its timeout, and frees it twice when the coordinator comes back. An
        assertion then ends the process (2.16; confluentinc/librdkafka#4605). A new client does not have the request.
        """
        answers, errors = self._settle(futures)
        if any(error.code() in _SILENT for error in errors.values()):
            self._renew()
        return answers, errors

    def _wait_for_coordinator(self, answer: Future[Any]) -> Any:
        answers, errors = self._settle_by_coordinators({"": answer})
        if errors:
            raise KafkaException(errors[""])
        return answers[""]

    def _refusal(self) -> KafkaError | None:
        return next((error for error in self._errors if _is_refusal(error)), None)

    def _result(self, subject: str, answer: Future[Any], right: Right | None = None) -> Any:
        return self._ask(subject, lambda: self._wait(answer), right)

    def _ask(self, subject: str, request: Callable[[], Answer], right: Right | None = None) -> Answer:
        """Connect and send a request. `subject` names it in errors, such as "the topics"."""
        try:
            if self._is_refused:
                self._log_in_again()
            self._connect()
            answer = request()
        except KafkaException as error:
            raise self._as_error(subject, error.args[0], right) from error
        self._errors.clear()
        return answer

    def _ask_again(self, subject: str, request: Callable[[float], Answer]) -> Answer:
        """Send a request (a function of its timeout in seconds) that any one broker answers.

        Without an answer in time, for example from the controller, try another broker once.
        """
        try:
            return self._ask(subject, lambda: request(TIMEOUT * _FIRST_SHARE))
        except UnreachableError:
            if not self._is_connected or self._is_stopped():  # no broker has ever answered, so no other one is known
                raise
            self._renew()
            return self._ask(subject, lambda: request(TIMEOUT * (1 - _FIRST_SHARE)))

    def _as_error(self, subject: str, error: KafkaError, right: Right | None = None) -> OffsetstreamError:
        self._admin.poll(0)  # delivers earlier errors
        refusal = error if _is_refusal(error) else self._refusal()
        if error.code() in NO_RIGHT:
            if right is not None:
                return self.lacks([right])
            return UnauthorisedError(
                f"{self.bootstrap_server} refuses access to {subject}: {error.str()}; see docs/how-to/security.md"
            )
        if refusal is not None:
            reason = refusal.str().replace("ssl.ca.location", "ssl.truststore.*")  # the name in the user's file
            self._is_refused = True
            return RefusedLoginError(
                f"{self.bootstrap_server} refuses this login, or its certificate is not trusted: {reason}; "
                "check the file that --command-config names"
            )
        if error.code() in _UNREACHABLE:
            reason = self._errors[-1].str() if self._errors else error.str()
            return UnreachableError(f"no broker answers at {self.bootstrap_server}: {reason}")
        if error.code() in _TEMPORARY:
            return UnreachableError(f"{self.bootstrap_server} cannot return {subject} at the moment: {error.str()}")
        return ClusterError(f"cannot get {subject} from {self.bootstrap_server}: {error.str()}")


def _is_refusal(error: KafkaError) -> bool:
    """Return whether a retry is useless. librdkafka reports a TLS alert as a transport failure."""
    return error.code() in _LOGIN_REFUSED or ("SSL" in error.str() and " alert " in error.str())


# The coordinator is moving, loading, or not yet available: retry.
NO_COORDINATOR = "COORDINATOR_NOT_AVAILABLE"
COORDINATOR_MOVES = frozenset({"NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS", NO_COORDINATOR})
# Kafka's names of errors (org.apache.kafka.common.protocol.Errors), where librdkafka's names differ.
_NAMES = {
    -1: "UNKNOWN_SERVER_ERROR",
    0: "NONE",
    2: "CORRUPT_MESSAGE",
    3: "UNKNOWN_TOPIC_OR_PARTITION",
    4: "INVALID_FETCH_SIZE",
    6: "NOT_LEADER_OR_FOLLOWER",
    10: "MESSAGE_TOO_LARGE",
    11: "STALE_CONTROLLER_EPOCH",
    17: "INVALID_TOPIC_EXCEPTION",
    98: "SNAPSHOT_NOT_FOUND",
    99: "POSITION_OUT_OF_RANGE",
    101: "DUPLICATE_BROKER_REGISTRATION",
    102: "BROKER_ID_NOT_REGISTERED",
    104: "INCONSISTENT_CLUSTER_ID",
    105: "TRANSACTIONAL_ID_NOT_FOUND",
    106: "FETCH_SESSION_TOPIC_ID_ERROR",
    107: "INELIGIBLE_REPLICA",
    108: "NEW_LEADER_ELECTED",
    109: "OFFSET_MOVED_TO_TIERED_STORAGE",
    # librdkafka's own errors, which no broker sent.
    KafkaError._UNKNOWN_TOPIC: "UNKNOWN_TOPIC_OR_PARTITION",
    KafkaError._UNKNOWN_PARTITION: "UNKNOWN_TOPIC_OR_PARTITION",
    KafkaError._TIMED_OUT: "REQUEST_TIMED_OUT",
    KafkaError._TIMED_OUT_QUEUE: "REQUEST_TIMED_OUT",
    KafkaError._TRANSPORT: "NETWORK_EXCEPTION",
}


def kafka_name(error: KafkaError) -> str:
    """Return Kafka's name of the error, or librdkafka's name of one that Kafka does not have."""
    return _NAMES.get(error.code()) or str(error.name()).lstrip("_")


FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds


def patience(retry: retry_base, timeout: float) -> Retrying:
    """Return a tenacity Retrying that retries for up to `timeout` seconds while `retry` says so.

    After that, it returns the last answer or raises the last error.
    """
    return Retrying(
        retry=retry,
        stop=stop_after_delay(timeout),
        wait=wait_random_exponential(FIRST_PAUSE, LONGEST_PAUSE),
        retry_error_callback=_last_outcome,
    )


def _last_outcome(state: RetryCallState) -> Any:
    return state.outcome.result() if state.outcome else None
