"""When a certificate ends, as openssl made it."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from leveret.server.opening.certificate_expiry import expires_of
from support.brokers.certificates import Authority


@pytest.mark.parametrize("days", [1, 30, 20_000])
def test_the_end_is_that_of_the_certificate(tmp_path: Path, days: int) -> None:
    made = Authority(tmp_path).sign("server", "DNS:localhost", days)
    said = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-in", str(made.certificate)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    text = said.strip().partition("=")[2]
    told = datetime.strptime(text, "%b %d %H:%M:%S %Y GMT").replace(tzinfo=UTC)
    assert expires_of(made.certificate.read_bytes()) == told.timestamp()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
    ],
)
def test_what_is_no_certificate_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError)):
        expires_of(data)
