"""Convert Java's key stores and trust stores to PEM for librdkafka, in memory: no copy of a key stays on disk."""

from __future__ import annotations

import re
import secrets
import subprocess
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates, load_pkcs12
from cryptography.x509 import Certificate

from offsetstream.embedded.java import java_executable
from offsetstream.errors import UsageError

_JKS = bytes.fromhex("feedfeed")
_TYPES = ("JKS", "PKCS12", "PEM")  # Java opens JKS and PKCS12 files by either name
# Like Kafka's DefaultSslEngineFactory: PEM may be within other text, or on one line (KIP-651).
_PEM = re.compile(r"-+BEGIN\s([^-]*(?:CERTIFICATE|PRIVATE KEY))-+\s*([A-Za-z0-9+/=\s]+)-+END\s[^-]*-+")
_PEM_WIDTH = 64


def trusted_certificates(properties: Mapping[str, str]) -> str | None:
    """Return the certificates of `ssl.truststore.*` as PEM, None without a trust store.

    Raises UsageError if the properties contradict each other or the store cannot be read.
    """
    pem = _pem_of(properties, "truststore", "ssl.truststore.certificates")
    if pem is not None:
        certificates, _ = _blocks(pem)
        if not certificates:
            raise UsageError("the PEM of ssl.truststore.* has no certificate")
        return "".join(certificates)
    location = properties.get("ssl.truststore.location")
    if location is None:
        return None
    store = _load("truststore", location, properties)
    if store.key is not None:
        # Java trusts only its own certificate and not the issuers above it; we cannot tell them apart in a PKCS12 file.
        raise UsageError(
            f"ssl.truststore.location {location} has a private key: create a trust store that has only certificates"
        )
    found = [each.certificate for each in store.additional_certs]
    if not found:
        raise UsageError(f"ssl.truststore.location {location} has no certificate")
    return _as_pem(found)


def own_certificate(properties: Mapping[str, str]) -> dict[str, str]:
    """Return librdkafka's configuration for the certificate chain and private key of `ssl.keystore.*` ({} for none).

    Raises UsageError like `trusted_certificates`.
    """
    pem = _pem_of(properties, "keystore", "ssl.keystore.certificate.chain", "ssl.keystore.key")
    if pem is not None:
        certificates, keys = _blocks(pem)
        if not certificates or len(keys) != 1:
            raise UsageError("the PEM of ssl.keystore.* must have the certificate chain and one private key (PKCS#8)")
        password = properties.get("ssl.key.password")
        key = {"ssl.key.pem": keys[0]} | ({} if password is None else {"ssl.key.password": password})
        return {"ssl.certificate.pem": "".join(certificates), **key}
    location = properties.get("ssl.keystore.location")
    if location is None:
        return {}
    store = _load("keystore", location, properties)
    if store.key is None or store.cert is None:
        raise UsageError(f"ssl.keystore.location {location} has no private key with a certificate")
    chain = _chain(store.cert.certificate, [each.certificate for each in store.additional_certs])
    key_pem = store.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return {"ssl.certificate.pem": _as_pem(chain), "ssl.key.pem": key_pem.decode()}


def _pem_of(properties: Mapping[str, str], kind: str, *inline: str) -> str | None:
    """Return the text of a store of type PEM, None for other types. Reject the contradictions that Kafka rejects."""
    store_type = properties.get(f"ssl.{kind}.type", "JKS").upper()
    location = properties.get(f"ssl.{kind}.location")
    texts = [properties[name] for name in inline if name in properties]
    if store_type not in _TYPES:
        raise UsageError(f"ssl.{kind}.type must be one of {', '.join(_TYPES)}")
    if texts and (store_type != "PEM" or location is not None):
        raise UsageError(f"{inline[0]} needs ssl.{kind}.type=PEM, and cannot be combined with ssl.{kind}.location")
    if store_type != "PEM" or not (texts or location):
        return None
    if f"ssl.{kind}.password" in properties:
        raise UsageError(f"ssl.{kind}.password does not work with PEM: remove it (for a key, use ssl.key.password)")
    return "\n".join(texts) if location is None else _read(kind, location).decode("latin-1")


def _read(kind: str, location: str) -> bytes:
    try:
        return Path(location).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read ssl.{kind}.location {location}: {error.strerror}") from error


def _blocks(pem: str) -> tuple[list[str], list[str]]:
    """Return the certificates and the private keys, each split into lines as OpenSSL needs it."""
    certificates: list[str] = []
    keys: list[str] = []
    for name, body in _PEM.findall(pem):
        text = "".join(body.split())
        lines = [text[start : start + _PEM_WIDTH] for start in range(0, len(text), _PEM_WIDTH)]
        block = "\n".join([f"-----BEGIN {name}-----", *lines, f"-----END {name}-----", ""])
        (certificates if name.endswith("CERTIFICATE") else keys).append(block)
    return certificates, keys


def _load(kind: str, location: str, properties: Mapping[str, str]) -> PKCS12KeyAndCertificates:
    data, password = _read(kind, location), properties.get(f"ssl.{kind}.password")
    if data.startswith(_JKS):
        data, password = _from_jks(kind, location, password, properties.get("ssl.key.password"))
    try:
        return load_pkcs12(data, None if password is None else password.encode())
    except ValueError as error:
        raise UsageError(
            f"ssl.{kind}.location {location} is not a JKS or PKCS12 file, or ssl.{kind}.password is wrong "
            f"(a PEM file needs ssl.{kind}.type=PEM)"
        ) from error


def _from_jks(kind: str, location: str, password: str | None, key_password: str | None) -> tuple[bytes, str]:
    """Return the store as PKCS12 and its new password, with Java's keytool. It gets passwords from files."""
    new_password = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="offsetstream-store-") as private:  # mode 0700, deleted at the end
        folder = Path(private)
        (folder / "new").write_text(new_password)
        (folder / "old").write_text(password or "", "utf-8")
        keytool = str(java_executable().resolve().with_name("keytool"))
        command = [keytool, "-J-Dfile.encoding=UTF-8", "-J-Duser.language=en", "-importkeystore", "-noprompt"]
        command += ["-srckeystore", location, "-srcstoretype", "JKS", "-destkeystore", str(folder / "store")]
        command += ["-deststoretype", "PKCS12", "-deststorepass:file", str(folder / "new")]
        # keytool reads the password of a store without one, and of a key with its own, from standard input.
        answers = "\n"
        if password is not None:
            command += ["-srcstorepass:file", str(folder / "old")]
            answers = f"{key_password or ''}\n" * 3
        result = subprocess.run(command, input=answers, capture_output=True, text=True, check=False)
        if result.returncode != 0 or not (folder / "store").exists():
            reason = next((line for line in result.stdout.splitlines() if "error" in line), "keytool failed")
            raise UsageError(
                f"cannot read ssl.{kind}.location {location} (JKS): {reason}; check ssl.{kind}.password and "
                "ssl.key.password"
            )
        return (folder / "store").read_bytes(), new_password


def _chain(leaf: Certificate, others: list[Certificate]) -> list[Certificate]:
    """Return the leaf and its issuers in order: a broker that trusts only the root needs them all."""
    by_subject = {each.subject: each for each in others}
    chain = [leaf]
    while (issuer := by_subject.pop(chain[-1].issuer, None)) is not None:
        chain.append(issuer)
    return chain


def _as_pem(certificates: Iterable[Certificate]) -> str:
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)
