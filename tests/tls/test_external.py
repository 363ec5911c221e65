"""Logins by certificate: whose name counts, and what hostile certificates are."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import aio_pika
import pika
import pytest

from leveret.server.opening.certificate_name import LoginFrom, LoginName, distinguished_name
from leveret.testing import Broker
from leveret.wire.frames import PROTOCOL_HEADER
from support.brokers.secure import Pki, handshake
from support.wire import raw

SUBJECT = ((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "orders"),))


@pytest.fixture(scope="module")
def broker(pki: Pki) -> Iterator[Broker]:
    """A broker that takes client certificates, with a user of the name `orders`."""
    with Broker(**pki.asking, default_user="orders", loopback_users="") as made:
        yield made


def start_ok(response: bytes) -> bytes:
    """Return a login by EXTERNAL."""
    return raw.method(
        0,
        "connection.start-ok",
        client_properties={},
        mechanism="EXTERNAL",
        response=response,
        locale="en_US",
    )


def mechanisms(broker: Broker, context: ssl.SSLContext) -> str:
    """Return what connection.start offers."""
    made = raw.Connection("localhost", broker.tls_port, context=context)
    with made as connection:
        connection.send(PROTOCOL_HEADER)
        start = connection.expect(0, "connection.start")
        return bytes(start.mechanisms).decode()


def test_external_is_offered_to_a_verified_certificate_alone(broker: Broker, pki: Pki) -> None:
    orders = pki.authority.sign("orders", "DNS:x")
    assert mechanisms(broker, pki.trusting()) == "PLAIN AMQPLAIN"
    assert mechanisms(broker, pki.trusting(orders)) == "PLAIN AMQPLAIN EXTERNAL"


def test_pika_logs_in_by_certificate(broker: Broker, pki: Pki) -> None:
    context = pki.trusting(pki.authority.sign("orders", "DNS:x"))
    parameters = pika.ConnectionParameters(
        "localhost",
        broker.tls_port,
        credentials=pika.credentials.ExternalCredentials(),
        ssl_options=pika.SSLOptions(context, "localhost"),
    )
    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"x" * 100_000)
    assert channel.basic_get(queue, auto_ack=True)[2] == b"x" * 100_000
    connection.close()


def test_aio_pika_logs_in_by_certificate(broker: Broker, pki: Pki) -> None:
    shown = pki.authority.sign("orders", "DNS:x")
    query = f"auth=external&cafile={pki.authority.certificate}"
    query += f"&certfile={shown.certificate}&keyfile={shown.key}"

    async def run() -> bytes:
        uri = f"amqps://localhost:{broker.tls_port}/?{query}"
        async with await aio_pika.connect(uri) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue(exclusive=True)
            message = aio_pika.Message(b"x" * 100_000)
            await channel.default_exchange.publish(message, queue.name)
            found = await queue.get(no_ack=True)
            return found.body

    assert asyncio.run(run()) == b"x" * 100_000


@pytest.mark.parametrize("name", ["nobody", "orders\n", "orders\x1b[31m", "Orders", "orders' OR 1"])
def test_another_name_is_nobody(
    broker: Broker, pki: Pki, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    shown = pki.authority.sign("other", "DNS:x", distinguished_name=f"/CN={name}")
    with raw.Connection("localhost", broker.tls_port, context=pki.trusting(shown)) as connection:
        connection.send(PROTOCOL_HEADER)
        connection.expect(0, "connection.start")
        connection.send(start_ok(b""))
        connection.expect_end()
    assert "EXTERNAL login refused" in caplog.text
    assert "\x1b" not in caplog.text


def test_a_loopback_user_may_log_in_by_certificate_from_here(pki: Pki) -> None:
    context = pki.trusting(pki.authority.sign("guest", "DNS:x"))
    with Broker(**pki.asking) as broker:
        parameters = pika.ConnectionParameters(
            "localhost",
            broker.tls_port,
            credentials=pika.credentials.ExternalCredentials(),
            ssl_options=pika.SSLOptions(context, "localhost"),
        )
        pika.BlockingConnection(parameters).close()


def test_external_without_a_certificate_is_no_mechanism(broker: Broker, pki: Pki) -> None:
    with raw.Connection("localhost", broker.tls_port, context=pki.trusting()) as connection:
        connection.send(PROTOCOL_HEADER)
        connection.expect(0, "connection.start")
        connection.send(start_ok(b"orders"))
        assert connection.expect(0, "connection.close").code == 503


def test_a_certificate_that_is_demanded_and_missing_is_named(
    pki: Pki, caplog: pytest.LogCaptureFixture
) -> None:
    settings = pki.asking | {"tls_verify": "required"}
    with Broker(**settings) as broker:
        sock = handshake(broker, pki.trusting())
        with sock, pytest.raises(OSError, match=r"(?i)certificate.required|reset"):
            sock.recv(1)
    assert "the client sent no certificate, but tls_verify = required demands one" in caplog.text


def test_a_certificate_of_another_authority_is_refused(
    pki: Pki, tmp_path: Any, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    shown = Pki(tmp_path).authority.sign("orders", "DNS:x")
    with handshake(broker, pki.trusting(shown)) as sock, pytest.raises(OSError, match=r".*"):
        sock.recv(1)
    assert "its certificate is rejected" in caplog.text
    assert "(tls_ca, tls_verify)" in caplog.text


def test_a_distinguished_name_is_that_of_rfc_4514() -> None:
    assert distinguished_name(SUBJECT) == "CN=orders,O=A\\, B,C=DE"
    assert distinguished_name(((("commonName", "a"), ("userId", "#b ")),)) == "CN=a+UID=\\#b\\ "
    assert distinguished_name(((("commonName", "x,CN=admin"),),)) == "CN=x\\,CN\\=admin"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("common_name", "orders"),
        ("san_dns", "a.example"),
        ("san_email", "o@example"),
        ("san_uri", "spiffe://orders"),
    ],
)
def test_the_name_is_where_the_setting_says(source: LoginFrom, found: str) -> None:
    names = (("DNS", "a.example"), ("DNS", "b"), ("email", "o@example"), ("URI", "spiffe://orders"))
    assert LoginName(source).within({"subject": SUBJECT, "subjectAltName": names}) == found


def test_a_name_that_is_not_unique_missing_or_too_long_is_none() -> None:
    two = ((("commonName", "a"),), (("commonName", "b"),))
    assert LoginName("common_name").within({"subject": two}) == ""
    assert LoginName("san_dns").within({"subject": SUBJECT}) == ""
    for length, name in ((255, "x" * 255), (256, "")):
        certificate = {"subject": ((("commonName", "x" * length),),)}
        assert LoginName("common_name").within(certificate) == name
