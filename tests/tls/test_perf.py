"""`leveret perf` over TLS: it counts what it moved, with large and small records both ways."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.cli import exits
from leveret.testing import Broker
from support.brokers.secure import Pki, uri_of
from support.commands.command_process import run_leveret

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


def test_the_files_of_a_context_count_for_amqp_too(
    broker: Broker, pki: Pki, tmp_path: Path
) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    uri = uri_of(broker.tls_port)
    trusted = ["--ca-file", str(pki.authority.certificate)]
    done = run_leveret("context", "set", "there", "--uri", uri, *trusted, settings=home)
    assert done.returncode == 0, done.stderr
    for line in ("ping", "declare queue trusted", "publish trusted x", "perf -C 10 -u trusted"):
        done = run_leveret("--context", "there", *line.split(), settings=home)
        assert done.returncode == 0, (line, done.stderr)
    # The URI of the command line is another broker's, whom the context knows nothing of.
    done = run_leveret("--context", "there", "--uri", uri, "ping", settings=home)
    assert done.returncode != 0
    named = {"LEVERET_CA_FILE": str(pki.authority.certificate)}
    assert run_leveret("ping", "--uri", uri, settings=named).returncode == 0
    missing = run_leveret("ping", "--uri", uri, settings={"LEVERET_CA_FILE": "/none"})
    assert missing.returncode == exits.CONFIG
    assert b"ca_file /none" in missing.stderr


def test_a_context_shows_the_clients_certificate(pki: Pki, tmp_path: Path) -> None:
    client = pki.authority.sign("client", "DNS:client")
    with Broker(**(pki.asking | {"tls_verify": "required"})) as broker:
        home = {"XDG_CONFIG_HOME": str(tmp_path)}
        files = ["--ca-file", str(pki.authority.certificate)]
        uri = uri_of(broker.tls_port)
        run_leveret("context", "set", "there", "--uri", uri, *files, settings=home)
        assert run_leveret("--context", "there", "get", "none", settings=home).returncode != 65
        files = ["--certificate-file", str(client.certificate), "--key-file", str(client.key)]
        run_leveret("context", "set", "there", *files, settings=home)
        done = run_leveret("--context", "there", "get", "none", settings=home)
        # It is let in, and told that there is no such queue.
        assert done.returncode == exits.REFUSED, done.stderr
