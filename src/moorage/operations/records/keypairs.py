"""Key pairs: imported or, for old clients, generated here; only the public key is stored."""

import asyncio
import base64
import datetime
import hashlib
from typing import Literal

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from moorage.model.errors import Invalid, NotFound, OverQuota
from moorage.model.keypair import KeyPair
from moorage.model.quota import CountLimit
from moorage.sql import Database, Tx
from moorage.store.region import keypairs

BITS = 2048
PUBLIC_KEY_MAX_CHARS = 65_535
CERTIFICATE_DAYS = 3650
TOO_MANY = "Quota exceeded, too many key pairs."
PRINCIPAL_NAME = ObjectIdentifier("1.3.6.1.4.1.311.20.2.3")
DER_UTF8_STRING = 0x0C


async def add(region: Database, new: KeyPair, most: CountLimit) -> KeyPair:
    """Store a key pair. Raises Conflict for a taken name, OverQuota when the user has `most` already."""

    def work(tx: Tx) -> KeyPair | int:
        made = keypairs.add(tx, new, most.limit)
        return keypairs.count(tx, new.user) if made is None else made

    made = await region.write(work)
    if isinstance(made, int):
        raise most.excess(1, TOO_MANY, made) or OverQuota(TOO_MANY)
    return made


async def refuse_early(region: Database, user: str, name: str, most: CountLimit) -> None:
    """Refuse what `add` would refuse, before a key is generated. Raises Conflict and OverQuota."""

    def over(tx: Tx) -> OverQuota | None:
        keypairs.refuse_taken(tx, user, name)
        return most.excess(1, TOO_MANY, keypairs.count(tx, user)) if most.limit >= 0 else None

    if (problem := await region.read(over)) is not None:
        raise problem


async def delete(region: Database, user: str, name: str) -> None:
    """Delete a key pair. Raises NotFound."""
    if not await region.write(lambda tx: keypairs.remove(tx, user, name)):
        raise NotFound(f"Keypair {name} not found for user {user}")


def _pairs_of_digits(digest: str) -> str:
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def fingerprint(public_key: str, kind: Literal["ssh", "x509"]) -> str:
    """The fingerprint of an OpenSSH public key (MD5) or of a certificate in PEM (SHA-1). Raises Invalid."""
    if len(public_key) > PUBLIC_KEY_MAX_CHARS:
        raise Invalid("Keypair data is invalid: the public key is too long")
    try:
        if kind == "x509":
            certificate = x509.load_pem_x509_certificate(public_key.encode())
            return _pairs_of_digits(certificate.fingerprint(hashes.SHA1()).hex())
        serialization.load_ssh_public_key(public_key.encode())
        raw = base64.b64decode(public_key.split(" ")[1])
    except (ValueError, TypeError, IndexError, UnsupportedAlgorithm) as failure:
        kind_of = "X509 fingerprint" if kind == "x509" else "fingerprint"
        raise Invalid(f"Keypair data is invalid: failed to generate {kind_of}", private=str(failure)) from failure
    return _pairs_of_digits(hashlib.md5(raw, usedforsecurity=False).hexdigest())


async def generate(user: str, kind: Literal["ssh", "x509"]) -> tuple[str, str]:
    """Return (private, public): in PEM and OpenSSH form, or both in PEM. Runs in a thread, because it takes tenths of a
    second of CPU.
    """
    return await asyncio.to_thread(_ssh if kind == "ssh" else _x509, user)


def _ssh(user: str) -> tuple[str, str]:
    key = rsa.generate_private_key(65537, BITS)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return private.decode(), f"{public.decode()} Generated-by-Moorage"


def _x509(user: str) -> tuple[str, str]:
    """A client certificate as Windows' remote management expects it: the user is its principal name."""
    key = rsa.generate_private_key(65537, BITS)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, user[:64])])
    principal = f"{user}@localhost".encode()[:120]
    value = bytes([DER_UTF8_STRING, len(principal)]) + principal
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.OtherName(PRINCIPAL_NAME, value)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private.decode(), certificate.public_bytes(serialization.Encoding.PEM).decode()
