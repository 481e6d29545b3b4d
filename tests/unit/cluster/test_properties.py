"""Client properties: read from a file, with variables, and translated for librdkafka and for Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from offsetstream.cluster.login import parse_login
from offsetstream.cluster.properties import java_system_properties, librdkafka_config, read_properties, spark_options
from offsetstream.errors import UsageError
from testkit.certificates import sign

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
TOKENS = {
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.login.callback.handler.class": HANDLER,
    "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
    "sasl.jaas.config": f"{OAUTH} clientId='me' clientSecret='sesame' scope=\"a b\" extension_pool='p1';",
}


PROVIDER = "org.apache.kafka.common.config.provider."
ENV = "config.providers=env\nconfig.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"


def file(tmp_path: Path, text: str) -> str:
    path = tmp_path / "client.properties"
    path.write_text(text, "latin-1")
    return str(path)


def sasl(**properties: str) -> dict[str, str]:
    return librdkafka_config({"security.protocol": "SASL_PLAINTEXT", **properties})


def credentials(jaas: str) -> dict[str, str]:
    found = sasl(**{"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})
    return {name: found[name] for name in ("sasl.username", "sasl.password")}


def test_no_file_means_no_properties() -> None:
    assert read_properties(None) == {}


def test_a_file_is_read_as_java_reads_it(tmp_path: Path) -> None:
    text = "# comment\nsecurity.protocol = SASL_SSL\nclient.id:a\\\n   b\nssl.key.password=gr\\u00fc\u00df\\=\nempty=\n"
    assert read_properties(file(tmp_path, text)) == {
        "security.protocol": "SASL_SSL",
        "client.id": "ab",
        "ssl.key.password": "grüß=",
        "empty": "",
    }


def test_properties_can_be_read_again(tmp_path: Path) -> None:
    """Those given beside the file keep their variables, and those that the file no longer has are gone."""
    path, secret = file(tmp_path, "client.id=mine\nsecurity.protocol=SSL"), tmp_path / "secret.properties"
    provider = {"config.providers": "file", "config.providers.file.class": PROVIDER + "FileConfigProvider"}
    secret.write_text("password=old")
    first = read_properties(path, provider | {"ssl.key.password": f"${{file:{secret}:password}}"})
    secret.write_text("password=new")
    file(tmp_path, "security.protocol=SSL")
    both = [{"security.protocol": "SSL", "ssl.key.password": each} for each in ("old", "new")]
    assert first == both[0] | {"client.id": "mine"}
    assert first.read_again() == read_properties(path, first) == both[1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read the client properties {path}: No such file or directory"),
        (
            b"\xfe\xed\xfe\xed\x00\x00\x00\x02sesame",
            "{path} is not a file of client properties: it is binary (byte 0x00)",
        ),
        (b"password=a\\u12sesame", "cannot read the client properties {path}: "),
    ],
    ids=["missing", "keystore", "broken escape"],
)
def test_an_unreadable_file_is_named_and_not_quoted(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "client.properties"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        read_properties(str(path))
    assert str(raised.value).startswith(said.format(path=path))
    assert "sesame" not in str(raised.value)
    with pytest.raises(UsageError, match=r"cannot read the client properties .*: Is a directory"):
        read_properties(str(tmp_path))


def test_sparks_options_are_kafkas_with_a_prefix() -> None:
    given = {"security.protocol": "SSL", "sasl.jaas.config": "x;", "client.id": "mine"}
    assert spark_options(given) == {"kafka.security.protocol": "SSL", "kafka.sasl.jaas.config": "x;"}


def test_properties_that_the_job_sets_are_dropped() -> None:
    given = {"group.id": "mine", "auto.offset.reset": "earliest", "isolation.level": "x", "request.timeout.ms": "5"}
    assert spark_options(given) == {"kafka.request.timeout.ms": "5"}


def test_librdkafka_gets_only_its_own_properties() -> None:
    given = {"security.protocol": "ssl", "client.id": "me", "fetch.max.wait.ms": "5", "ssl.cipher.suites": ""}
    found = librdkafka_config(given)
    assert found == {
        "security.protocol": "SSL",
        "client.id": "me",
        "ssl.endpoint.identification.algorithm": "https",
    }
    AdminClient(found)  # it takes them


def test_no_properties_are_plaintext() -> None:
    assert librdkafka_config({}) == {"security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(("ours", "theirs"), [("", "none"), ("https", "https"), ("HTTPS", "https")])
def test_the_check_of_host_names_is_translated(ours: str, theirs: str) -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert librdkafka_config({"security.protocol": "SSL", name: ours})[name] == theirs


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"ssl.cipher.suites": "x"}, "ssl.cipher.suites .* restrict them on the brokers' listener"),
        ({"ssl.engine.factory.class": "x"}, "librdkafka does not support ssl.engine.factory.class"),
        ({"ssl.provider": "BCFIPS"}, "ssl.provider"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol"),
        ({"ssl.trustmanager.algorithm": "SunX509"}, "ssl.trustmanager.algorithm"),
        ({"ssl.a.thing.of.kafka.9": "x"}, "ssl.a.thing.of.kafka.9 .* remove it"),
        ({"security.providers": "x"}, "security.providers"),
        ({"config.providers": "env"}, "config.providers .* the file for --command-config"),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "ssl.enabled.protocols lacks TLSv1.2"),
        ({"ssl.endpoint.identification.algorithm": "LDAPS"}, "must be https, or empty"),
    ],
)
def test_security_properties_that_librdkafka_lacks_are_rejected(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        librdkafka_config({"security.protocol": "SSL", **given})


@pytest.mark.parametrize(
    "given",
    [
        {"ssl.enabled.protocols": "TLSv1.2,TLSv1.3", "ssl.protocol": "TLSv1.3"},
        {"ssl.keymanager.algorithm": "SunX509", "ssl.trustmanager.algorithm": "PKIX"},
        {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"},  # of no use without SASL
    ],
)
def test_properties_without_effect_are_dropped(given: dict[str, str]) -> None:
    assert librdkafka_config({"security.protocol": "SSL", **given}) == librdkafka_config({"security.protocol": "SSL"})


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", f"kafkashaded.{SCRAM}")]
)
def test_a_user_with_a_password(mechanism: str, module: str) -> None:
    found = sasl(**{"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} username=alice password='p';"})
    expected = {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": "p"}
    assert found == {"security.protocol": "SASL_PLAINTEXT", **expected}
    AdminClient(found)


def test_a_token_from_an_endpoint() -> None:
    found = sasl(**TOKENS)
    assert found == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "sesame",
        "sasl.oauthbearer.scope": "a b",
        "sasl.oauthbearer.extensions": "pool=p1",
    }


def test_the_certificates_of_an_endpoint() -> None:
    pem = sign("root", is_authority=True).pem
    jaas = f"{OAUTH} clientId=me clientSecret=x ssl.truststore.type=PEM ssl.truststore.certificates='{one_line(pem)}';"
    found = sasl(**TOKENS | {"sasl.jaas.config": jaas})
    assert found["https.ca.pem"] == pem
    assert "ssl.ca.pem" not in found


def one_line(pem: str) -> str:
    return " ".join(pem.split("\n"))


def test_an_unsecured_token() -> None:
    jaas = f'{OAUTH} unsecuredLoginStringClaim_sub="alice" unsecuredLoginLifetimeSeconds="60";'
    found = sasl(**{"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": jaas})
    assert found == {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "enable.sasl.oauthbearer.unsecure.jwt": "true",
        "sasl.oauthbearer.config": "principal=alice lifeSeconds=60",
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "sasl.mechanism is GSSAPI .* set it to one of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER"),
        ({"sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{SCRAM} username=a password=b;"}, "needs .*PlainLogin"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": f"{PLAIN};"}, "has no username and no password"),
        (
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": f"{SCRAM} username=a password=b tokenauth=true;"},
            "delegation tokens",
        ),
        (
            {
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": f"{PLAIN} username=a password=b;",
                "sasl.client.callback.handler.class": "x.Y",
            },
            "sasl.client.callback.handler.class .* needs no Java class",
        ),
        (TOKENS | {"sasl.login.callback.handler.class": "com.example.Mine"}, "which librdkafka cannot run"),
        (TOKENS | {"sasl.login.callback.handler.class": ""}, "also needs sasl.login.callback.handler.class"),
        (TOKENS | {"sasl.oauthbearer.token.endpoint.url": "file:///token"}, "must be an http or https URL"),
        (TOKENS | {"sasl.jaas.config": f"{OAUTH} clientId=me;"}, "has no clientSecret"),
        (TOKENS | {"sasl.jaas.config": f"{OAUTH} clientId=me clientSecret=x odd=x;"}, "odd in sasl.jaas.config"),
        (
            TOKENS | {"sasl.oauthbearer.client.credentials.client.secret": "sesame"},
            "client.credentials.client.secret .* give clientId and clientSecret in sasl.jaas.config",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH};"},
            "has no unsecuredLoginStringClaim_sub",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH} unsecuredLoginStringClaim_sub='a b';"},
            "a space or a quote",
        ),
    ],
)
def test_a_login_that_librdkafka_lacks_is_rejected(given: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message) as raised:
        sasl(**given)
    assert "sesame" not in str(raised.value)


@pytest.mark.parametrize(
    "jaas",
    [
        "sesame",
        f"{PLAIN} username=alice password=sesame",  # no semicolon
        f'{PLAIN} username="alice" password="open sesame;',
        f'{PLAIN} username="alice" password="open" sesame";',
        f"{PLAIN} username=alice password=open@sesame;",
        f"{PLAIN} username=alice password=1sesame;",
        f"{PLAIN} username=alice password='open\nsesame';",
        f"{PLAIN} username=a password=b; {PLAIN} username=a password=sesame;",
    ],
)
def test_a_malformed_login_is_not_quoted(jaas: str) -> None:
    with pytest.raises(UsageError, match=r"sasl\.jaas\.config of the client properties is not one login") as raised:
        credentials(jaas)
    assert "sesame" not in str(raised.value)


def test_a_login_does_not_print_its_secrets() -> None:
    assert "sesame" not in repr(parse_login(f"{PLAIN} username=alice password=sesame;"))


@pytest.mark.parametrize(
    ("written", "password"),
    [
        ('"secret"', "secret"),
        ("'secret'", "secret"),
        ('""', ""),
        ('"it\'s"', "it's"),
        ("'say \"x\"'", 'say "x"'),
        (r'"say \"x\""', 'say "x"'),
        (r"'it\'s'", "it's"),
        (r'"back\\slash"', r"back\slash"),
        (r'"a\\"', "a\\"),
        (r'"tab\there"', "tab\there"),
        (r'"line\nfeed"', "line\nfeed"),
        (r'"\101\0601"', "A01"),
        (r'"\z"', "z"),
        ('"a;b=c d"', "a;b=c d"),
        ("\"username='no'\"", "username='no'"),
        ('"grüß"', "grüß"),
        ("secret-1.x_$", "secret-1.x_$"),
    ],
)
def test_a_password_is_unescaped_like_in_java(written: str, password: str) -> None:
    expected = {"sasl.username": "alice", "sasl.password": password}
    assert credentials(f'{PLAIN} username="alice" password={written};') == expected
    assert credentials(f"{PLAIN} password = {written}\n  username = 'alice' ;") == expected


def test_other_options_of_a_login_module_are_not_credentials() -> None:
    jaas = f'{PLAIN} serviceName="kafka" user_alice="x" useKeyTab=true username="bob" password="p";'
    assert credentials(jaas) == {"sasl.username": "bob", "sasl.password": "p"}


def test_a_password_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter${2:3}")
    found = read_properties(
        file(tmp_path, ENV + 'sasl.jaas.config=a.b.PlainLoginModule required password="${env:KAFKA_PASSWORD}";')
    )
    assert found == {"sasl.jaas.config": 'a.b.PlainLoginModule required password="hunter${2:3}";'}


def test_spaces_around_the_name_of_a_provider_are_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_CLIENT", "me")
    assert (
        read_properties(file(tmp_path, ENV.replace("=env\n", "= env , \n") + "client.id=${env:KAFKA_CLIENT}"))[
            "client.id"
        ]
        == "me"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ENV + "ssl.key.password=${env:NOT_THERE}", r"ssl.key.password of .*: \$\{env:NOT_THERE\} has no value$"),
        (
            "ssl.key.password=${env:X}",
            r"\$\{env:X\}, but the provider env is not declared: add config.providers=env and .*EnvVarConfig",
        ),
        (
            "ssl.key.password=${file:/x:y}",
            r"provider file is not declared: add config.providers=file and .*\.FileConfigProvider$",
        ),
        ("config.providers=vault", r"config.providers.vault.class .* is missing: it must be org.apache"),
        ("config.providers=v\nconfig.providers.v.class=a.V", r"config.providers.v.class .* is a.V: it must be"),
        (
            "config.providers=f\nconfig.providers.f.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
            "client.id=${f:/no/such/file:key}",
            "client.id of the client properties: cannot read /no/such/file: No such file",
        ),
    ],
)
def test_the_error_is_one_line_that_names_the_property(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as error:
        read_properties(file(tmp_path, text))
    assert len(str(error.value).splitlines()) == 1


def test_a_java_only_pattern_and_a_binary_file_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"config\.providers\.env\.param\.allowlist\.pattern .* not a valid regular expr"
    ):
        read_properties(
            file(tmp_path, ENV + "config.providers.env.param.allowlist.pattern=\\\\p{Upper}+\nclient.id=${env:HOME}")
        )
    (tmp_path / "token").write_bytes(b"\xff\xfe")
    mounted = ENV.replace("env", "d").replace("EnvVarConfig", "DirectoryConfig")
    with pytest.raises(UsageError, match=r"cannot read .*token: it is not UTF-8$"):
        read_properties(file(tmp_path, f"{mounted}client.id=${{d:{tmp_path}:token}}"))


LOGIN = f"{SCRAM} username='me' password='p';"
IAM = "software.amazon.msk.auth.iam"


@pytest.fixture
def databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("sasl.jaas.config", LOGIN, f"kafkashaded.{LOGIN}"),
        ("sasl.jaas.config", f" \n {LOGIN}", f"kafkashaded.{LOGIN}"),
        ("sasl.jaas.config", f"kafkashaded.{LOGIN}", f"kafkashaded.{LOGIN}"),
        ("sasl.jaas.config", f"{IAM}.IAMLoginModule required;", f"shadedmskiam.{IAM}.IAMLoginModule required;"),
        ("sasl.login.callback.handler.class", HANDLER, f"kafkashaded.{HANDLER}"),
        ("sasl.client.callback.handler.class", f"{IAM}.X", f"shadedmskiam.{IAM}.X"),
        ("sasl.jaas.config", "com.example.Login required;", "com.example.Login required;"),
        ("ssl.key.password", "org.apache.kafka.", "org.apache.kafka."),  # names no class
    ],
)
@pytest.mark.usefixtures("databricks")
def test_sparks_source_gets_the_runtimes_class_names(name: str, given: str, expected: str) -> None:
    assert spark_options({name: given}) == {f"kafka.{name}": expected}


def test_outside_databricks_the_names_are_kafkas() -> None:
    assert spark_options({"sasl.jaas.config": LOGIN}) == {"kafka.sasl.jaas.config": LOGIN}


@pytest.mark.usefixtures("databricks")
def test_librdkafka_gets_the_same_as_outside_databricks(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": LOGIN}
    there = librdkafka_config(given)
    monkeypatch.delenv("DATABRICKS_RUNTIME_VERSION")
    assert librdkafka_config(given) == there


def test_system_properties_have_the_runtimes_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    name, url = "org.apache.kafka.sasl.oauthbearer.allowed.urls", "https://idp.example/token"
    properties = {"sasl.oauthbearer.token.endpoint.url": url}
    assert java_system_properties(properties) == {name: url}
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    assert java_system_properties(properties) == {name: url, f"kafkashaded.{name}": url}
