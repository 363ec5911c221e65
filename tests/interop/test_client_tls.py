"""Leveret's client over TLS with Debian's RabbitMQ: what is trusted, and what is told when not."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rabbitmq import RabbitMQ, free_ports, installed

import leveret.client
from leveret.client import CertificateRefused, TlsFailed, blocking
from leveret.errors import FrameError
from support.brokers.certificates import Authority, Certificate

SECONDS = 60.0

CONFIGURATION = """
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {authority}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.verify = verify_none
"""


class Secure:
    """A RabbitMQ with a port for TLS, whose certificate can be replaced."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.good = self.authority.sign("good", "DNS:localhost")
        self.expired = self.authority.sign("expired", "DNS:localhost", days=-1)
        (self.port,) = free_ports(1)
        self._shown = Certificate(folder / "shown.pem", folder / "shown.key")
        self._copy(self.good)
        text = CONFIGURATION.format(
            port=self.port,
            authority=self.authority.certificate,
            certificate=self._shown.certificate,
            key=self._shown.key,
        )
        self.broker = RabbitMQ(configuration=text)

    @property
    def uri(self) -> str:
        """The URI by the name that the good certificate has."""
        return f"amqps://localhost:{self.port}"

    @property
    def trusting(self) -> ssl.SSLContext:
        """A context that trusts the authority."""
        return ssl.create_default_context(cafile=str(self.authority.certificate))

    def show(self, certificate: Certificate) -> None:
        """Have the broker show another certificate to who connects from here on."""
        self._copy(certificate)
        self.broker.evaluate("ssl:clear_pem_cache().")

    def _copy(self, certificate: Certificate) -> None:
        shutil.copy(certificate.certificate, self._shown.certificate)
        shutil.copy(certificate.key, self._shown.key)


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    """A running RabbitMQ with TLS."""
    if not installed():
        pytest.skip("Debian's rabbitmq-server is not installed")
    made = Secure(tmp_path_factory.mktemp("tls"))
    with made.broker:
        yield made


def round_trip_blocking(uri: str, context: ssl.SSLContext | None) -> bytes:
    """Publish a message over a blocking connection and get it back."""
    with blocking.connect(uri, ssl=context) as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.confirm_select()
        channel.publish(bytes(500_000), routing_key=queue)
        message = channel.get(queue, no_ack=True)
        assert message is not None
        return message.body


def round_trip_asyncio(uri: str, context: ssl.SSLContext | None) -> bytes:
    """Do the same over an asyncio connection."""

    async def run() -> bytes:
        async with (
            asyncio.timeout(SECONDS),
            await leveret.client.connect(uri, ssl=context) as connection,
        ):
            channel = await connection.channel()
            queue = (await channel.queue_declare(exclusive=True)).queue
            await channel.confirm_select()
            await channel.publish(bytes(500_000), routing_key=queue)
            message = await channel.get(queue, no_ack=True)
            assert message is not None
            return message.body

    return asyncio.run(run())


RoundTrip = Callable[[str, ssl.SSLContext | None], bytes]
both_shells = pytest.mark.parametrize(
    "round_trip", [round_trip_blocking, round_trip_asyncio], ids=["blocking", "asyncio"]
)


@both_shells
def test_what_is_trusted_works(secure: Secure, round_trip: RoundTrip) -> None:
    assert round_trip(secure.uri, secure.trusting) == bytes(500_000)


@both_shells
def test_an_unknown_authority_is_named_with_its_remedy(
    secure: Secure, round_trip: RoundTrip
) -> None:
    with pytest.raises(CertificateRefused) as error:
        round_trip(secure.uri, None)
    assert isinstance(error.value, ssl.SSLCertVerificationError)
    assert f"the certificate of localhost:{secure.port} was refused" in str(error.value)
    assert "no authority that this machine trusts" in str(error.value)
    assert "create_default_context(cafile=" in str(error.value)


@both_shells
def test_a_wrong_host_name_is_named_with_its_remedy(secure: Secure, round_trip: RoundTrip) -> None:
    with pytest.raises(CertificateRefused) as error:
        round_trip(f"amqps://127.0.0.1:{secure.port}", secure.trusting)
    assert "it is not for the name '127.0.0.1'" in str(error.value)
    assert "subjectAltName" in str(error.value)


@both_shells
def test_an_expired_certificate_is_named_with_its_remedy(
    secure: Secure, round_trip: RoundTrip
) -> None:
    secure.show(secure.expired)
    try:
        with pytest.raises(CertificateRefused) as error:
            round_trip(secure.uri, secure.trusting)
    finally:
        secure.show(secure.good)
    assert "has expired. Renew it on the broker" in str(error.value)


@both_shells
def test_tls_to_a_port_without_it_says_which_is_right(
    secure: Secure, round_trip: RoundTrip
) -> None:
    with pytest.raises(TlsFailed, match=r"does not speak TLS: use amqp://"):
        round_trip(f"amqps://localhost:{secure.broker.port}", secure.trusting)


@both_shells
def test_no_tls_to_a_port_of_tls_says_which_is_right(secure: Secure, round_trip: RoundTrip) -> None:
    with pytest.raises(FrameError, match=r"the broker answers with TLS: use amqps://"):
        round_trip(f"amqp://localhost:{secure.port}", None)
