"""A certificate authority for tests. It signs certificates in all formats that Kafka users have."""

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509.oid import NameOID

STORE_PASSWORD = "store-sesame-1"  # noqa: S105 - only for temporary files of a test
KEY_PASSWORD = "key-sesame-2"  # noqa: S105


@dataclass(frozen=True)
class Signed:
    """A certificate, its key, and its signers, the root last."""

    certificate: x509.Certificate
    key: EllipticCurvePrivateKey
    signers: tuple[x509.Certificate, ...] = ()

    @property
    def pem(self) -> str:
        return pem_of(self.certificate)

    @property
    def chain(self) -> str:
        """The certificate and the intermediate ones without the root: what a client presents."""
        return "".join(map(pem_of, (self.certificate, *self.signers[:-1])))

    def key_pem(self, password: str | None = None) -> str:
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pkcs12(self, path: Path, password: str = STORE_PASSWORD) -> Path:
        encryption = BestAvailableEncryption(password.encode())
        path.write_bytes(serialize_key_and_certificates(b"me", self.key, self.certificate, self.signers, encryption))
        return path


def pem_of(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def sign(name: str, signer: Signed | None = None, *, is_authority: bool = False) -> Signed:
    """Create a key and a certificate for the loopback address; without a signer it is self-signed."""
    key = generate_private_key(SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(signer.certificate.subject if signer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
    )
    certificate = builder.sign(signer.key if signer else key, hashes.SHA256())
    return Signed(certificate, key, (signer.certificate, *signer.signers) if signer else ())


def keytool(*arguments: str) -> None:
    done = subprocess.run(["keytool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def trust_store(path: Path, certificate: Path, store_type: str) -> Path:
    """Import the certificate of a PEM file into a trust store, the way Kafka's documentation shows."""
    place = ("-keystore", str(path), "-storetype", store_type, "-storepass", STORE_PASSWORD)
    keytool("-importcert", "-noprompt", "-alias", "root", "-file", str(certificate), *place)
    return path


def jks_of(pkcs12: Path, path: Path, key_password: str = STORE_PASSWORD) -> Path:
    """Convert a PKCS12 key store to JKS, where the key may have a password of its own."""
    source = ("-srckeystore", str(pkcs12), "-srcstorepass", STORE_PASSWORD, "-srcalias", "me")
    target = ("-destkeystore", str(path), "-deststoretype", "JKS", "-deststorepass", STORE_PASSWORD)
    keytool("-importkeystore", *source, *target, "-destkeypass", key_password)
    return path
