"""A certificate authority for as long as a trial set or a test lasts, and certificates that it signs."""

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from moorage.model.private_files import private_file

GOOD_FOR = datetime.timedelta(days=30)
CLOCKS_DIFFER = datetime.timedelta(hours=1)
LOOPBACK = ("localhost", "127.0.0.1")


@dataclass(frozen=True)
class CertificateFiles:
    """The PEM files of a certificate and its key."""

    cert: Path
    key: Path


class CertificateAuthority:
    """A certificate authority. Its key is in memory only, so nothing can be signed with it after the process ends."""

    def __init__(self, directory: Path, name: str = "Moorage trial CA") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        made = self._builder(self._name, self._key.public_key()).add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False, key_encipherment=False,
            data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        signed = made.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.file = directory / "ca.pem"
        private_file(self.file).write_bytes(signed.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, reached_at: Sequence[str] = LOOPBACK, good_for: datetime.timedelta = GOOD_FOR
    ) -> CertificateFiles:
        """Sign a certificate for a server that is reached at these names and addresses, or for a client with that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([_reached_at(each) for each in reached_at])
        both = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        made = self._builder(_name(name), key.public_key(), good_for)
        made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        signed = made.add_extension(names, critical=False).add_extension(both, critical=False)
        certificate = signed.sign(self._key, hashes.SHA256())
        files = CertificateFiles(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        private_file(files.cert).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        files.key.unlink(missing_ok=True)
        with os.fdopen(os.open(files.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(pem)
        return files

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, good_for: datetime.timedelta = GOOD_FOR
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        own = x509.SubjectKeyIdentifier.from_public_key(key)
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCKS_DIFFER)
            .not_valid_after(now + good_for)
            .add_extension(own, critical=False)
            .add_extension(signer, critical=False)
        )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _reached_at(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
