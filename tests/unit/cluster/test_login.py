"""Amazon MSK's login by IAM, without AWS: what each client gets, and tokens signed by credentials that nobody has."""

from __future__ import annotations

import base64
import sys
import time
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pytest
from confluent_kafka.admin import AdminClient

from offsetstream.cluster.login import Signer, java_plugins
from offsetstream.cluster.properties import librdkafka_config, spark_options
from offsetstream.errors import UnauthorisedError, UsageError
from testkit.processes import within

MODULE = "software.amazon.msk.auth.iam.IAMLoginModule required"
HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
IAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": f"{MODULE};",
    "sasl.client.callback.handler.class": HANDLER,
}
SERVER = "b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098,b-2.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098"


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """Credentials of a user that there is not, and nothing of this machine's own."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "sesame")
    return monkeypatch


def signer(jaas: str = f"{MODULE};", server: str = SERVER) -> Signer:
    made: Signer = librdkafka_config(IAM | {"sasl.jaas.config": jaas}, server)["oauth_cb"]
    return made


def signed(token: str) -> dict[str, list[str]]:
    """What a token says, which is the query of a signed address."""
    url = urlparse(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode())
    return {"host": [str(url.hostname)], **parse_qs(url.query)}


def test_librdkafka_gets_tokens_and_java_the_plugin() -> None:
    config = librdkafka_config(IAM, SERVER)
    assert isinstance(config.pop("oauth_cb"), Signer)
    assert config == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert spark_options(IAM) == {f"kafka.{name}": value for name, value in IAM.items()}
    (plugin,) = java_plugins(IAM)
    assert plugin.startswith("software.amazon.msk:aws-msk-iam-auth:")
    assert java_plugins({"sasl.mechanism": "PLAIN"}) == ()


def test_a_token_is_signed_for_the_brokers_region() -> None:
    token, ends = signer()()
    found = signed(token)
    assert found["host"] == ["kafka.eu-west-1.amazonaws.com"]
    assert found["Action"] == ["kafka-cluster:Connect"]
    assert found["X-Amz-Credential"][0].startswith("AKIDEXAMPLE/")
    assert found["X-Amz-Credential"][0].endswith("/eu-west-1/kafka-cluster/aws4_request")
    assert 890 < ends - time.time() <= 900
    assert "sesame" not in str(found)


def test_a_token_is_reused_until_it_is_about_to_expire(aws: pytest.MonkeyPatch) -> None:
    asked = signer()
    first = asked()
    aws.setenv("AWS_ACCESS_KEY_ID", "ANOTHER")
    assert asked() == first
    aws.setattr(time, "time", lambda now=time.time: now() + 700)
    assert signed(asked()[0])["X-Amz-Credential"][0].startswith("ANOTHER/")


def test_the_region_comes_from_the_host_name_or_the_environment(aws: pytest.MonkeyPatch) -> None:
    serverless = "boot-abc.c1.kafka-serverless.us-east-2.amazonaws.com:9098"
    assert signed(signer(server=serverless)()[0])["host"] == ["kafka.us-east-2.amazonaws.com"]
    with pytest.raises(UsageError, match=r"my\.kafka:9098 does not contain an AWS region: set AWS_REGION"):
        signer(server="my.kafka:9098")
    aws.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    assert signed(signer(server="my.kafka:9098")()[0])["host"] == ["kafka.eu-north-1.amazonaws.com"]


def test_a_profile_signs_the_token(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[kafka]\naws_access_key_id = OFPROFILE\naws_secret_access_key = x\n")
    token, _ = signer(f'{MODULE} awsProfileName="kafka";')()
    assert signed(token)["X-Amz-Credential"][0].startswith("OFPROFILE/")
    with pytest.raises(UnauthorisedError, match=r"cannot get AWS credentials for MSK: .*\(none\)"):
        signer(f'{MODULE} awsProfileName="none";')


def test_missing_credentials_fail_at_once(aws: pytest.MonkeyPatch) -> None:
    aws.delenv("AWS_ACCESS_KEY_ID")
    aws.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(UnauthorisedError, match="no AWS credentials for MSK: set AWS_ACCESS_KEY_ID"):
        signer()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"sasl.jaas.config": f"{MODULE} awsRoleExternalId='x';"},
            "awsRoleExternalId in sasl.jaas.config is not supported",
        ),
        ({"sasl.client.callback.handler.class": ""}, f"needs sasl.client.callback.handler.class={HANDLER}"),
        ({"sasl.jaas.config": "x.Y required;"}, f"AWS_MSK_IAM needs {MODULE.split(maxsplit=1)[0]}"),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "sasl.client.callback.handler.class .* needs no Java class"),
    ],
)
def test_options_that_the_signer_lacks_are_rejected(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        librdkafka_config(IAM | changes, SERVER)


def test_librdkafka_takes_the_login() -> None:
    AdminClient({**librdkafka_config(IAM, SERVER), "bootstrap.servers": "127.0.0.1:1", "log_level": 0})


def test_without_the_signer_one_line_says_what_to_install(aws: pytest.MonkeyPatch, tmp_path: Path) -> None:
    aws.setitem(sys.modules, "aws_msk_iam_sasl_signer", None)
    (tmp_path / "client.properties").write_text("\n".join(f"{name}={value}" for name, value in IAM.items()))
    asked = ("--bootstrap-server", "b.kafka.eu-west-1.amazonaws.com:1", "--command-config")
    done = within("dump", *asked, str(tmp_path / "client.properties"))
    assert (done.returncode, done.stderr) == (
        1,
        "Error: this needs the package aws_msk_iam_sasl_signer: pip install 'offsetstream[msk]'\n",
    )
