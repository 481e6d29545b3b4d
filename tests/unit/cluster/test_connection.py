"""Which errors of the client mean that a cluster is to be waited for, and when it is not any more."""

import threading

import pytest
from confluent_kafka import KafkaError, KafkaException

from offsetstream.cluster import connection
from offsetstream.cluster.client import Cluster
from offsetstream.cluster.connection import Connection
from offsetstream.errors import ClusterError, UnreachableError
from testkit.waiting import SECONDS

FOR_NOW = [
    KafkaError._DESTROY_BROKER,  # "Broker handle destroyed without termination": the metadata had it no more
    KafkaError._DESTROY,
    KafkaError._FAIL,
    KafkaError._TRANSPORT,
    KafkaError._UNKNOWN_BROKER,
    KafkaError._WAIT_COORD,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
]


def error_for(code: int) -> Exception:
    return Connection("127.0.0.1:1")._as_error("the topic", KafkaException(KafkaError(code)).args[0])


@pytest.mark.parametrize("code", FOR_NOW)
def test_a_broker_that_left_during_a_request_is_unreachable(code: int) -> None:
    assert isinstance(error_for(code), UnreachableError)


def test_a_permanent_error_is_not_unreachable() -> None:
    error = error_for(KafkaError.INVALID_REQUEST)
    assert isinstance(error, ClusterError)
    assert not isinstance(error, UnreachableError)


def test_a_stop_ends_the_wait_for_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "TIMEOUT", 10 * SECONDS)
    stop, raised = threading.Event(), list[UnreachableError]()

    def ask() -> None:
        try:
            Cluster("127.0.0.1:1", is_stopped=stop.is_set).cluster_id()
        except UnreachableError as error:
            raised.append(error)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(1)
    assert asking.is_alive()
    stop.set()
    asking.join(SECONDS)
    assert len(raised) == 1
