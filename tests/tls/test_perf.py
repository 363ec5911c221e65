"""`leveret perf` over TLS: it counts what it moved, with large and small records both ways."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_process import run_leveret
from leveret.cli import exits
from leveret.testing import Broker
from secure import Pki, uri_of

pytestmark = pytest.mark.commands


@pytest.fixture(scope="module")
def broker(pki: Pki) -> Iterator[Broker]:
    """A broker with TLS."""
    with Broker(**pki.settings) as made:
        yield made


def perf(uri: str, authority: Path | None, line: str) -> subprocess.CompletedProcess[bytes]:
    """Run a load; `authority` is the file of those who are trusted."""
    settings = {"LEVERET_URI": uri}
    if authority is not None:
        settings["SSL_CERT_FILE"] = str(authority)
    return run_leveret("perf", "-j", *line.split(), settings=settings)


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ("-A 1 -q 1 -C 200", 200),
        ("-a -C 20000", 20_000),
        ("-x 2 -y 3 -A 7 -q 100 -c 10 -f persistent -C 500", 1000),
        ("-s 3000000 -A 3 -q 3 -c 2 -C 20", 20),
        ("-a -l -r 2000 -R 1000 -C 500", 500),
    ],
)
def test_all_that_is_published_arrives(broker: Broker, pki: Pki, line: str, count: int) -> None:
    result = perf(uri_of(broker.tls_port), pki.authority.certificate, line)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["published"] == found["delivered"] == count
    assert found["confirmed"] == (count if "-c" in line else 0)
    assert (found["nacked"], found["returned"]) == (0, 0)


def test_a_certificate_of_strangers_is_refused(broker: Broker) -> None:
    refused = perf(uri_of(broker.tls_port), None, "-C 1")
    assert refused.returncode == exits.PROTOCOL
    assert b"its certificate was refused" in refused.stderr
    assert b"SSL_CERT_FILE" in refused.stderr


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    other = pki.authority.sign("other", "DNS:elsewhere.example")
    with Broker(tls_certificate=other.certificate, tls_key=other.key) as broker:
        refused = perf(uri_of(broker.tls_port), pki.authority.certificate, "-C 1")
    assert refused.returncode == exits.PROTOCOL
    assert b"'localhost'" in refused.stderr
    assert b"SSL_CERT_FILE" not in refused.stderr


def test_a_port_without_tls_is_told(broker: Broker) -> None:
    refused = perf(uri_of(broker.port), None, "-C 1")
    assert refused.returncode == exits.PROTOCOL
    assert b"amqp:// is without TLS" in refused.stderr
