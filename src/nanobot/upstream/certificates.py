"""Certificates for two programs that are to trust each other and nobody else."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

VALID: Final = timedelta(days=3650)
"""Nothing is kept: they end with the programs that have their keys."""
_SKEW: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate with its key, and the authority that vouches for the other side. All are PEM text."""

    authority: str
    certificate: str
    key: str = field(repr=False)


def certify(host: str) -> tuple[Certified, Certified]:
    """A server that is reached at `host` (a name or an address), and its client. Nobody can certify more."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("nanobot")
    root = (
        _begun(name, name, key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )
    authority = _pem(root)

    def leaf(usage: x509.ObjectIdentifier, title: str, place: str = "") -> Certified:
        own = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _begun(_named(title), name, own.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        )
        if place:
            builder = builder.add_extension(x509.SubjectAlternativeName([_place(place)]), critical=False)
        pem = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Certified(authority, _pem(builder.sign(key, SHA256())), pem)

    return leaf(ExtendedKeyUsageOID.SERVER_AUTH, "server", host), leaf(
        ExtendedKeyUsageOID.CLIENT_AUTH, "client"
    )


def _begun(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SKEW)
        .not_valid_after(now + VALID)
    )


def _place(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _named(title: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, title)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
