import pytest
from pyspark.errors import PySparkException

from offsetstream.cluster.client import Cluster
from offsetstream.errors import OffsetstreamError, UnauthorisedError, UnreachableError
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


def test_other_failures_pass_as_they_are(cluster: Cluster) -> None:
    error = failure("SomeOtherException")
    with pytest.raises(PySparkException) as raised, explain_failure(cluster):
        raise error
    assert raised.value is error


def test_without_a_failure_nothing_happens(cluster: Cluster) -> None:
    with explain_failure(cluster):
        pass
