import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from offsetstream.cluster.client import Cluster
from offsetstream.errors import EnvironmentNotReadyError, OffsetstreamError, UnauthorisedError, UnreachableError
from offsetstream.stream.failures import explain_failure


@pytest.fixture
def cluster() -> Cluster:
    return Cluster("127.0.0.1:1")  # nobody is asked


def failure(error: str) -> PySparkException:
    return PySparkException(f"[STREAM_FAILED] Query terminated\norg.apache.kafka.common.errors.{error}: …\n  at …")


@pytest.mark.parametrize(
    ("error", "meant", "words"),
    [
        ("TopicAuthorizationException", UnauthorisedError, "it lacks READ on the topic __consumer_offsets"),
        ("GroupAuthorizationException", UnauthorisedError, "it lacks DESCRIBE on the groups with the prefix"),
        ("ClusterAuthorizationException", UnauthorisedError, "it lacks DESCRIBE on the cluster"),
        (
            "SaslAuthenticationException",
            UnauthorisedError,
            "Spark's Kafka client cannot log in at 127.0.0.1:1, though .*Sasl",
        ),
        ("TimeoutException", UnreachableError, "127.0.0.1:1 stopped answering"),
    ],
)
def test_what_users_can_mend_is_one_line(
    cluster: Cluster, error: str, meant: type[OffsetstreamError], words: str
) -> None:
    with pytest.raises(meant, match=words) as raised, explain_failure(cluster):
        raise failure(error)
    assert "\n" not in str(raised.value)
    assert "127.0.0.1:1" in str(raised.value)


@pytest.mark.parametrize(
    "error",
    [
        PySparkException("Job aborted due to stage failure: … java.lang.OutOfMemoryError: Java heap space"),
        Py4JNetworkError("Answer from Java side is empty"),
        ConnectionRefusedError(111, "Connection refused"),
    ],
)
def test_a_jvm_without_memory_is_told_what_it_needs(cluster: Cluster, error: Exception) -> None:
    words = r"not enough memory: .* --conf spark\.driver\.memory=4g"
    with pytest.raises(EnvironmentNotReadyError, match=words), explain_failure(cluster):
        raise error


def test_other_failures_pass_as_they_are(cluster: Cluster) -> None:
    error = failure("SomeOtherException")
    with pytest.raises(PySparkException) as raised, explain_failure(cluster):
        raise error
    assert raised.value is error


def test_without_a_failure_nothing_happens(cluster: Cluster) -> None:
    with explain_failure(cluster):
        pass
