"""HTTP over TLS: the same API, and what speaks something else to its port."""

from __future__ import annotations

import base64
import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.client.blocking import connect
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import Pki, port_of, read_all


@pytest.fixture(scope="module")
def broker(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with TLS."""
    with pki.broker_process(tmp_path_factory.mktemp("data") / "data") as process:
        yield process


def test_an_answer_comes_over_tls(broker: BrokerProcess, pki: Pki) -> None:
    port = port_of(broker, "https")
    connection = http.client.HTTPSConnection("localhost", port, context=pki.trusting(), timeout=60)
    secret = base64.b64encode(b"guest:guest").decode()
    for _ in range(2):
        connection.request(
            "GET", "/api/streams/%2F/none", headers={"Authorization": f"Basic {secret}"}
        )
        answer = connection.getresponse()
        assert (answer.status, answer.read()[:1]) == (404, b"{")
    connection.request("GET", "/api/streams/%2F/none")
    assert connection.getresponse().status == 401
    connection.close()


def test_answers_over_tls_say_that_it_is_to_be_used_where_that_is_set(
    pki: Pki, tmp_path: Path
) -> None:
    """With answers of the API and refusals, the page's files; not without TLS (RFC 6797, 7.2)."""
    policy = "max-age=31536000; includeSubDomains"
    with pki.broker_process(tmp_path / "data", https_hsts=policy) as process:
        tls, plain = port_of(process, "https"), port_of(process, "http")
        secure = http.client.HTTPSConnection("localhost", tls, context=pki.trusting(), timeout=60)
        insecure = http.client.HTTPConnection("127.0.0.1", plain, timeout=60)
        secret = base64.b64encode(b"guest:guest").decode()
        for path, headers, status in (
            ("/api/overview", {"Authorization": f"Basic {secret}"}, 200),
            ("/api/overview", {}, 401),
            ("/metrics", {"Authorization": f"Basic {secret}"}, 200),
            ("/", {}, 200),
        ):
            for connection, said in ((secure, policy), (insecure, None)):
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                answer.read()
                assert (answer.status, path) == (status, path)
                assert answer.headers["Strict-Transport-Security"] == said
        secure.close()
        insecure.close()


def test_nothing_is_said_of_it_unless_it_is_set(broker: BrokerProcess, pki: Pki) -> None:
    """It would concern all that the host serves, on whatever port."""
    port = port_of(broker, "https")
    connection = http.client.HTTPSConnection("localhost", port, context=pki.trusting(), timeout=60)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.status == 200
    assert "Strict-Transport-Security" not in answer.headers
    connection.close()


def test_http_without_tls_is_told_so(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", port_of(broker, "https")), 60) as sock:
        sock.sendall(b"GET /api HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"this port speaks TLS; use https://" in read_all(sock)


def test_tls_to_the_port_without_it_is_logged(broker: BrokerProcess) -> None:
    with socket.create_connection(("127.0.0.1", port_of(broker, "http")), 60) as sock:
        sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert read_all(sock) == b"\x15\x03\x01\x00\x02\x02\x28"
    assert "https_port" in broker.expect_line("speaks TLS, but this port speaks HTTP")


def test_http_may_be_served_over_tls_alone(pki: Pki, tmp_path: Path) -> None:
    process = pki.broker_process(tmp_path / "data", http="false")
    with process:
        connection = http.client.HTTPSConnection(
            "localhost", port_of(process, "https"), context=pki.trusting(), timeout=60
        )
        connection.request("GET", "/api/streams/%2F/none")
        assert connection.getresponse().status == 401
        connection.close()
        assert "listening on http://" not in process.output
        assert process.terminate() == 0


def test_clients_of_amqp_are_told_where_https_is(pki: Pki, tmp_path: Path) -> None:
    with pki.broker_process(tmp_path / "data", http="false") as process:
        with connect(process.uri) as connection:
            said = connection.server_properties
        assert said["https_port"] == port_of(process, "https")
        assert "http_port" not in said
