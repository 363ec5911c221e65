"""Reads the expiry time of a certificate from its DER encoding (RFC 5280, section 4.1).

Python's `ssl` provides this time only for the certificate of a peer.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17


def expires_of(pem: bytes) -> float:
    """Return the expiry time of the first certificate in a PEM text, as Unix time.

    Raises: ValueError if there is no valid certificate.
    """
    start = pem.find(b"-----BEGIN CERTIFICATE-----")
    end = pem.find(b"-----END CERTIFICATE-----", start)
    if start < 0 or end < 0:
        raise ValueError("no certificate found")
    der = ssl.PEM_cert_to_DER_cert(pem[start:end].decode("ascii") + "-----END CERTIFICATE-----\n")
    certificate = _parts(_content(der, _SEQUENCE))
    fields = _parts(certificate[0][1])
    # Version (optional), serial number, algorithm, issuer, validity.
    validity = fields[4 if fields[0][0] == _VERSION else 3][1]
    kind, text = _parts(validity)[1]
    form = "%y%m%d%H%M%SZ" if kind == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC).timestamp()


def _content(data: bytes, tag: int) -> bytes:
    """Return the content of the first element, which must have the tag.  Raises: ValueError."""
    kind, content = _parts(data)[0]
    if kind != tag:
        raise ValueError("not a certificate")
    return content


def _parts(data: bytes) -> list[tuple[int, bytes]]:
    """Return the tags and contents of a sequence of elements.  Raises: ValueError."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at + 2 <= len(data):
        kind, size, at = data[at], data[at + 1], at + 2
        if size & 0x80:
            count = size & 0x7F
            size, at = int.from_bytes(data[at : at + count], "big"), at + count
        if at + size > len(data):
            raise ValueError("truncated")
        found.append((kind, data[at : at + size]))
        at += size
    if not found:
        raise ValueError("empty")
    return found
