"""Amazon MSK's login, as far as it can be tested without AWS: a callback's token reaches a broker, and Java finds
the plugin.
"""

from __future__ import annotations

import base64
import json
import time

import pytest

from offsetstream.cluster.client import Cluster
from offsetstream.cluster.login import Signer, Token
from offsetstream.errors import ClusterError, UnauthorisedError
from offsetstream.verify.sources import kafka_admin
from tests.kafka.security.broker import Secured

pytestmark = pytest.mark.long

IAM = {
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}


@pytest.fixture(autouse=True)
def _aws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")


def unsecured(_: Signer) -> Token:
    """Return a token that a test broker accepts in place of Amazon's."""
    now = time.time()
    parts = ({"alg": "none"}, {"sub": "alice", "iat": now, "exp": now + 900})
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts)
    return f"{'.'.join(encoded)}.", now + 900


def test_librdkafka_logs_in_with_the_callbacks_tokens(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Signer, "_sign", unsecured)
    cluster = Cluster(secured.servers["unsecured"], secured.properties("unsecured") | IAM)
    assert len(cluster.leader_addresses()) == 50


def test_another_broker_refuses_amazons_token(secured: Secured) -> None:
    cluster = Cluster(secured.servers["unsecured"], secured.properties("unsecured") | IAM)
    with pytest.raises(UnauthorisedError, match="refuses this login") as raised:
        cluster.cluster_id()
    assert "sesame" not in str(raised.value)


def test_kafkas_admin_client_has_the_plugin(secured: Secured) -> None:
    properties = secured.properties("plain") | IAM
    with (
        pytest.raises(ClusterError, match=r"UnsupportedSaslMechanism.*AWS_MSK_IAM"),
        kafka_admin(secured.servers["plain"], properties) as admin,
    ):
        admin.list_groups()
