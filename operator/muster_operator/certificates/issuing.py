"""Makes CAs and leaf certificates: ECDSA on P-256, which every TLS library has, as PEM."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from muster_coordinator.security.roles import Member

BACKDATED = timedelta(minutes=5)
"""A certificate is valid from a little before now: clocks of machines differ."""


class Issued(msgspec.Struct, frozen=True):
    """A certificate and its private key, as PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Issued()"  # a key must not get into a log


def new_authority(cluster: str, now: datetime, lifetime: timedelta) -> Issued:
    """A CA for `cluster` (`<namespace>/<name>`). It signs leaves only."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Muster"),
            x509.NameAttribute(NameOID.COMMON_NAME, f"CA of {cluster}"[:64]),
            x509.NameAttribute(
                NameOID.SERIAL_NUMBER, f"{x509.random_serial_number():x}"[:16]
            ),  # tells it from the next
        ]
    )
    public = key.public_key()
    builder = (
        _builder(name, name, public, now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    )
    return _issued(builder.sign(key, hashes.SHA256()), key)


def new_leaf(authority: Issued, member: Member, hosts: Sequence[str], now: datetime, lifetime: timedelta) -> Issued:
    """A certificate for `member`, for both ends of a connection. `hosts`: DNS names and IP addresses by which clients
    of Kafka's protocol may know it."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signing_key = serialization.load_pem_private_key(authority.key, password=None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise ValueError("the key of the CA is no ECDSA key")
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, (member.pod or member.role.value)[:64])])
    names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(member.uri), *map(_general_name, hosts)]
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
    lifetime = min(lifetime, issuer.not_valid_after_utc - now)
    builder = (
        _builder(subject, issuer.subject, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    return _issued(builder.sign(signing_key, hashes.SHA256()), key)


def expiry(pem: bytes) -> datetime:
    """The end of the first certificate of `pem` (UTC). Raises ValueError."""
    end: datetime = x509.load_pem_x509_certificate(pem).not_valid_after_utc
    return end


def valid_from(pem: bytes) -> datetime:
    """The begin of the first certificate of `pem` (UTC). Raises ValueError."""
    begin: datetime = x509.load_pem_x509_certificate(pem).not_valid_before_utc
    return begin


def signed_by(leaf: bytes, authority: bytes) -> bool:
    """True if the CA `authority` has signed `leaf`."""
    try:
        x509.load_pem_x509_certificate(leaf).verify_directly_issued_by(x509.load_pem_x509_certificate(authority))
    except Exception:  # the library names a bad signature in four ways
        return False
    return True


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _issued(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Issued:
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Issued(certificate.public_bytes(encoding), private)
