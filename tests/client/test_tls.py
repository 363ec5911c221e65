"""Both shells over TLS, against a scripted broker with a certificate of its own."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.client import blocking, connect
from leveret.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicPublish,
    ConfirmSelect,
    ConfirmSelectOk,
)
from support.wire.client_peer import Line, ScriptedBroker, content, frame

SECONDS = 60.0


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that only its holder trusts, and its key."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = [
        openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", str(key), "-out", str(cert),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def server_context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """Return the broker's TLS context."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


def secure(line: Line) -> None:
    """Take and deliver a body of many TLS records."""
    line.handshake().open_channel()
    line.receive(ConfirmSelect)
    line.send(frame(1, ConfirmSelectOk()))
    line.receive(BasicConsume)
    deliver = BasicDeliver("ctag", 1, False, "", "q")
    line.send(frame(1, BasicConsumeOk("ctag")), content(1, deliver, bytes(2_000_000)))
    line.receive(BasicPublish)
    line.send(frame(1, BasicAck(1)))
    line.answer_close()


def test_tls_blocking(certificate: tuple[Path, Path]) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate[0]))
    with ScriptedBroker(secure, server_context(certificate)) as broker:
        uri = f"amqps://127.0.0.1:{broker.port}"
        with blocking.connect(uri, ssl=trusting) as connection:
            channel = connection.channel()
            channel.confirm_select()
            consumer = channel.consume("q")
            channel.publish(bytes(2_000_000))
            assert len(next(consumer).body) == 2_000_000


def test_tls_asyncio(certificate: tuple[Path, Path]) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate[0]))

    async def use(uri: str) -> None:
        async with asyncio.timeout(SECONDS), await connect(uri, ssl=trusting) as connection:
            channel = await connection.channel()
            await channel.confirm_select()
            consumer = await channel.consume("q")
            await channel.publish(bytes(2_000_000))
            assert len((await anext(consumer)).body) == 2_000_000

    with ScriptedBroker(secure, server_context(certificate)) as broker:
        asyncio.run(use(f"amqps://127.0.0.1:{broker.port}"))


def refused(line: Line) -> None:
    """Never get as far as a line."""
    raise AssertionError("the client went on")


def connect_blocking(uri: str) -> None:
    """Connect by the blocking shell."""
    blocking.connect(uri).close()


def connect_asyncio(uri: str) -> None:
    """Connect by the asyncio shell."""
    asyncio.run(connect(uri))


@pytest.mark.parametrize("connecting", [connect_blocking, connect_asyncio])
def test_a_certificate_that_nobody_trusts_is_refused(
    connecting: Callable[[str], None], certificate: tuple[Path, Path]
) -> None:
    with (
        pytest.raises((ssl.SSLError, ConnectionResetError)),  # as the broker hears of it
        ScriptedBroker(refused, server_context(certificate)) as broker,
        pytest.raises(ssl.SSLCertVerificationError),
    ):
        connecting(f"amqps://127.0.0.1:{broker.port}")


def test_a_context_without_amqps_is_a_mistake() -> None:
    context = ssl.create_default_context()
    with pytest.raises(ValueError, match="amqps"):
        blocking.connect("amqp://127.0.0.1:1", ssl=context)
    with pytest.raises(ValueError, match="amqps"):
        asyncio.run(connect("amqp://127.0.0.1:1", ssl=context))
