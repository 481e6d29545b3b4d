"""One broker with an authorizer, a listener for each login mechanism, and a properties file for each."""

import base64
import json
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from offsetstream.cluster.properties import read_properties
from offsetstream.cluster.rights import Right
from offsetstream.embedded.clients import QUIET, admin_client, is_coordinator_unavailable
from offsetstream.embedded.kafka import EmbeddedKafka
from offsetstream.embedded.properties import password
from testkit.certificates import KEY_PASSWORD, STORE_PASSWORD, Signed, jks_of, sign, trust_store
from testkit.waiting import SECONDS, await_

PACKAGE = "org.apache.kafka.common.security"
CLIENT_SECRET = "client-sesame-3"  # noqa: S105 - for a token endpoint that lives as long as a test
STORAGE_SECRET = "storage-sesame-4"  # noqa: S105 - in Spark's settings; no storage uses it
SECRETS = (STORE_PASSWORD, KEY_PASSWORD, CLIENT_SECRET, STORAGE_SECRET, *map(password, ("alice", "bob", "carol")))
_USERS = ("alice", "bob", "carol")


@dataclass
class Tokens:
    """What the token endpoint answers: its status, and how long a token lives; and how many it has given."""

    seconds: int = 600
    status: int = 200
    given: int = 0


@dataclass(frozen=True)
class Secured:
    """The broker. `files` has alice's client properties by login mechanism, `servers` the addresses."""

    kafka: EmbeddedKafka
    folder: Path
    files: dict[str, Path]
    servers: dict[str, str]
    tokens: Tokens

    def properties(self, login: str) -> dict[str, str]:
        """Return the contents of one of alice's files."""
        return read_properties(str(self.files[login]))

    def file_of(self, user: str) -> Path:
        """Write client properties of another user for the first listener, which has no TLS."""
        return write_properties(self.folder / f"{user}.properties", self.kafka.client_properties(user))

    @cached_property
    def admin(self) -> AdminClient:
        return admin_client(self.kafka.bootstrap_server, self.kafka.librdkafka_properties("admin"))

    def set_password(self, new: str) -> None:
        """Set alice's password for SCRAM."""
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):  # one mechanism per request
            change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), new.encode())
            for changed in self.admin.alter_user_scram_credentials([change]).values():
                changed.result(SECONDS)

    def commit(self, group_id: str, *topics: str) -> None:
        """Commit offset 5 in one partition of each topic."""
        login = self.kafka.librdkafka_properties()
        config = {"bootstrap.servers": self.kafka.bootstrap_server, "group.id": group_id, **login}
        consumer = Consumer(config, logger=QUIET)
        once_there = retry(
            retry=retry_if_exception(is_coordinator_unavailable), stop=stop_after_delay(60), wait=wait_fixed(0.2)
        )
        once_there(consumer.commit)(offsets=[TopicPartition(topic, 0, 5) for topic in topics], asynchronous=False)
        consumer.close()

    @contextmanager
    def granted(self, user: str, rights: Iterable[Right], permission: str = "ALLOW") -> Iterator[None]:
        """Grant rights to a user, or deny them; remove the ACLs at the end."""
        admin, acls = self.admin, list({acl(user, right, permission) for right in rights})
        filters = [AclBindingFilter(*vars_of(each)) for each in acls]
        for created in admin.create_acls(acls).values() if acls else ():
            created.result(SECONDS)
        _await_acls(admin, filters, present=True)
        try:
            yield
        finally:
            for deleted in admin.delete_acls(filters).values() if filters else ():
                deleted.result(SECONDS)
            _await_acls(admin, filters, present=False)


def _await_acls(admin: AdminClient, filters: Sequence[AclBindingFilter], *, present: bool) -> None:
    """Wait until the broker has, or no longer has, the ACLs; it gets them from the controller."""
    await_(lambda: all(bool(admin.describe_acls(each).result(SECONDS)) == present for each in filters), pause=0.01)


@contextmanager
def secured_kafka(folder: Path) -> Iterator[Secured]:
    root = sign("offsetstream-tests", is_authority=True)
    between = sign("between", root, is_authority=True)
    broker, alice = sign("broker", root), sign("alice", between)
    for file in ("root.pem", "clients.pem"):  # whom the clients trust, and whom the broker
        (folder / file).write_text(root.pem)
    tokens = Tokens()
    with _token_endpoint(folder, broker, tokens) as endpoint:
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(folder / 'jwks.json').as_uri()}"
        kafka = EmbeddedKafka(
            security="sasl_plaintext",
            users=_USERS,
            listeners={"SASL": "SASL_SSL", "UNSECURED": "SASL_SSL", "MUTUAL": "SSL"},
            properties=_broker_properties(folder, broker),
            jvm_options=[allowed],
        )
        with kafka:
            servers = {name: kafka.address(name) for name in ("SASL", "UNSECURED", "MUTUAL")}
            files = dict(_client_files(folder, root, alice, endpoint))
            secured = Secured(kafka, folder, files, {name: servers[_listener(name)] for name in files}, tokens)
            secured.set_password(password("alice"))
            yield secured


def _listener(login: str) -> str:
    return {"unsecured": "UNSECURED"}.get(login, "MUTUAL" if login.startswith("mtls") else "SASL")


def _broker_properties(folder: Path, broker: Signed) -> dict[str, str]:
    (folder / "broker.pem").write_text(broker.key_pem() + broker.chain)
    logins = " ".join(f'user_{user}="{password(user)}"' for user in _USERS)
    oauth = f"{PACKAGE}.oauthbearer.OAuthBearerLoginModule required;"
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "clients.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/",
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl.plain.sasl.jaas.config": f"{PACKAGE}.plain.PlainLoginModule required {logins};",
        "listener.name.sasl.scram-sha-256.sasl.jaas.config": f"{PACKAGE}.scram.ScramLoginModule required;",
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{PACKAGE}.scram.ScramLoginModule required;",
        "listener.name.sasl.oauthbearer.sasl.jaas.config": oauth,
        "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": (
            f"{PACKAGE}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.sasl.oauthbearer.connections.max.reauth.ms": "3600000",  # a connection ends with its token
        "sasl.oauthbearer.jwks.endpoint.url": (folder / "jwks.json").as_uri(),
        "sasl.oauthbearer.expected.audience": "kafka",
        "listener.name.unsecured.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.unsecured.oauthbearer.sasl.jaas.config": oauth,
    }


def _client_files(folder: Path, root: Signed, alice: Signed, endpoint: str) -> Iterator[tuple[str, Path]]:
    """Yield client files with every form of trust and key store: JKS, PKCS12, PEM files, PEM in the properties."""
    jks = _store("truststore", trust_store(folder / "trust.jks", folder / "root.pem", "JKS"), "JKS", STORE_PASSWORD)
    p12 = _store("truststore", trust_store(folder / "trust.p12", folder / "root.pem", "PKCS12"), "", STORE_PASSWORD)
    pem = _store("truststore", folder / "root.pem", "PEM")
    inline = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": root.pem}
    unchecked = {"ssl.endpoint.identification.algorithm": ""}
    user = f'username="alice" password="{password("alice")}"'
    plain, scram, oauth = (
        f"{PACKAGE}.{name} required"
        for name in ("plain.PlainLoginModule", "scram.ScramLoginModule", "oauthbearer.OAuthBearerLoginModule")
    )
    own = folder / "alice.pem"
    own.write_text(alice.key_pem() + alice.chain)  # Java 17 reads no key that OpenSSL or we encrypt
    own_p12 = alice.pkcs12(folder / "alice.p12")
    own_jks = jks_of(own_p12, folder / "alice.jks", KEY_PASSWORD)
    key = {"ssl.key.password": KEY_PASSWORD}
    handler = f"{PACKAGE}.oauthbearer.OAuthBearerLoginCallbackHandler"
    endpoint_settings = {"sasl.login.callback.handler.class": handler, "sasl.oauthbearer.token.endpoint.url": endpoint}
    trusted = f'ssl.truststore.location="{folder / "trust.p12"}" ssl.truststore.password="{STORE_PASSWORD}"'
    client = f'clientId="alice-id" clientSecret="{CLIENT_SECRET}" scope="kafka" {trusted} ssl.truststore.type=PKCS12'
    written = {
        "plain": _sasl("PLAIN", f"{plain} {user};") | jks | unchecked,
        "scram-256": _sasl("SCRAM-SHA-256", f"{scram} {user};") | p12,
        "scram-512": _sasl("SCRAM-SHA-512", f"{scram} {user};") | pem,
        "oauth": _sasl("OAUTHBEARER", f"{oauth} {client};") | inline | endpoint_settings,
        "unsecured": _sasl("OAUTHBEARER", f'{oauth} unsecuredLoginStringClaim_sub="alice";') | pem,
        "mtls-jks": {"security.protocol": "SSL", **jks, **_store("keystore", own_jks, "JKS", STORE_PASSWORD), **key},
        "mtls-p12": {"security.protocol": "SSL", **p12, **_store("keystore", own_p12, "PKCS12", STORE_PASSWORD)},
        "mtls-pem": {"security.protocol": "SSL", **pem, **_store("keystore", own, "PEM")},
        "mtls-inline": {
            "security.protocol": "SSL",
            **inline,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": alice.chain,
            "ssl.keystore.key": alice.key_pem(),
        },
    }
    for name, properties in written.items():
        yield name, write_properties(folder / f"{name}.properties", properties)


def _sasl(mechanism: str, jaas: str) -> dict[str, str]:
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}


def _store(kind: str, path: Path, store_type: str, store_password: str | None = None) -> dict[str, str]:
    names = {"location": str(path), "type": store_type, "password": store_password}
    return {f"ssl.{kind}.{name}": value for name, value in names.items() if value}


def vars_of(acl: AclBinding) -> tuple[Any, ...]:
    """Return the fields of an ACL, in the order of its filter's fields."""
    resource = (acl.restype, acl.name, acl.resource_pattern_type)
    return (*resource, acl.principal, acl.host, acl.operation, acl.permission_type)


def write_properties(path: Path, properties: dict[str, str]) -> Path:
    """Write a Java properties file. PEM chains keep their lines; without them Kafka sees only one certificate."""
    escaped = {name: value.replace("\\", "\\\\").replace("\n", "\\n\\\n") for name, value in properties.items()}
    path.write_text("".join(f"{name}={value}\n" for name, value in escaped.items()))
    return path


def acl(user: str, right: Right, permission: str = "ALLOW") -> AclBinding:
    """Return the ACL that gives a user a right, or denies it."""
    kind = "BROKER" if right.resource == "cluster" else right.resource.upper()
    pattern = ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL
    resource = (ResourceType[kind], right.name, pattern)
    return AclBinding(*resource, f"User:{user}", "*", AclOperation[right.operation], AclPermissionType[permission])


@contextmanager
def _token_endpoint(folder: Path, server: Signed, tokens: Tokens) -> Iterator[str]:
    """A token endpoint with TLS that gives alice's client signed tokens; `jwks.json` has the key to check them."""
    key = generate_private_key(65537, 2048)
    numbers = key.public_key().public_numbers()
    web_key = {"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256", "n": _number(numbers.n), "e": _number(numbers.e)}
    (folder / "jwks.json").write_text(json.dumps({"keys": [web_key]}))
    expected = "Basic " + base64.b64encode(f"alice-id:{CLIENT_SECRET}".encode()).decode()

    def token() -> str:
        now, tokens.given = int(time.time()), tokens.given + 1
        claims = {"sub": "alice", "aud": "kafka", "scope": "kafka", "iat": now, "exp": now + tokens.seconds}
        text = ".".join(_encode(json.dumps(part).encode()) for part in ({"alg": "RS256", "kid": "1"}, claims))
        return f"{text}.{_encode(key.sign(text.encode(), PKCS1v15(), hashes.SHA256()))}"

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            is_known = self.headers["Authorization"] == expected
            status = tokens.status if is_known else 401
            answer = {"access_token": token(), "expires_in": tokens.seconds, "token_type": "Bearer"}
            body = json.dumps(answer if status == 200 else {}).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    (folder / "endpoint.pem").write_text(server.key_pem() + server.chain)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "endpoint.pem")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as endpoint:
        endpoint.socket = context.wrap_socket(endpoint.socket, server_side=True)
        thread = threading.Thread(target=endpoint.serve_forever)
        thread.start()
        try:
            yield f"https://127.0.0.1:{endpoint.server_port}/token"
        finally:
            endpoint.shutdown()
            thread.join()


def _number(number: int) -> str:
    return _encode(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
