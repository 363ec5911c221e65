"""`connect` in both shells: keyword arguments, several addresses, and what is told on failure."""

from __future__ import annotations

import asyncio
import inspect
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leveret import client
from leveret.client import ConnectionLost, Parameters, Unreachable, blocking
from leveret.client.uri import parse_uri
from leveret.errors import AccessRefusedHard
from leveret.wire.methods import ConnectionClose
from support.wire.client_peer import Line, ScriptedBroker


def connect_blocking(*args: Any, **kwargs: Any) -> Parameters:
    """Connect, close, and return what was connected to."""
    with blocking.connect(*args, **kwargs) as connection:
        return connection.parameters


def connect_asyncio(*args: Any, **kwargs: Any) -> Parameters:
    """Do the same in asyncio."""

    async def run() -> Parameters:
        async with await client.connect(*args, **kwargs) as connection:
            return connection.parameters

    return asyncio.run(run())


Connecting = Callable[..., Parameters]
both_shells = pytest.mark.parametrize(
    "connecting", [connect_blocking, connect_asyncio], ids=["blocking", "asyncio"]
)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that nobody listens on."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])


def open_and_close(line: Line) -> None:
    """Be a broker whose client only looks."""
    line.handshake().answer_close()


@both_shells
def test_keyword_arguments_are_enough(connecting: Connecting, broker_uri: str) -> None:
    wanted = parse_uri(broker_uri)
    found = connecting(
        host=wanted.host,
        port=wanted.port,
        user="guest",
        password="guest",
        virtual_host="/",
        heartbeat=30,
        timeout=60,
    )
    assert (found.host, found.port, found.vhost) == (wanted.host, wanted.port, "/")
    assert (found.heartbeat_seconds, found.connection_timeout_ms) == (30, 60_000)


@both_shells
def test_a_conflict_is_found_before_anything_is_opened(connecting: Connecting) -> None:
    with pytest.raises(ValueError, match="port is given twice and differs"):
        connecting("amqp://127.0.0.1:1", port=2)


@both_shells
def test_an_unknown_keyword_is_named(connecting: Connecting) -> None:
    with pytest.raises(TypeError, match="no keyword argument 'vhost'; it has host, port, virtual_"):
        connecting("amqp://127.0.0.1:1", vhost="/")


@pytest.mark.parametrize("connect", [blocking.connect, client.connect])
def test_every_keyword_is_seen_in_the_signature(connect: Callable[..., object]) -> None:
    names = list(inspect.signature(connect).parameters)
    assert names[:6] == ["uri", "host", "port", "virtual_host", "user", "password"]


@both_shells
def test_addresses_are_tried_in_turn(connecting: Connecting, closed_port: int) -> None:
    with ScriptedBroker(open_and_close) as broker:
        found = connecting([f"amqp://127.0.0.1:{closed_port}", broker.uri])
        assert found.port == broker.port


@both_shells
def test_a_broker_that_stops_is_passed_over(connecting: Connecting) -> None:
    def stopping(line: Line) -> None:
        line.handshake(refusal=ConnectionClose(320, "CONNECTION_FORCED - stopping", 0, 0))

    with ScriptedBroker(stopping) as one, ScriptedBroker(open_and_close) as other:
        assert connecting(f"{one.uri},{other.uri}").port == other.port


@both_shells
def test_a_refused_login_is_raised_at_once(connecting: Connecting, closed_port: int) -> None:
    def refusing(line: Line) -> None:
        line.handshake(refusal=ConnectionClose(403, "ACCESS_REFUSED", 10, 40))

    with ScriptedBroker(refusing) as broker, pytest.raises(AccessRefusedHard):
        connecting([broker.uri, f"amqp://127.0.0.1:{closed_port}"])


@both_shells
def test_when_none_answers_each_is_named(connecting: Connecting, closed_port: int) -> None:
    def hanging_up(line: Line) -> None:
        line.receive_header()

    one = f"amqp://u:hush@127.0.0.1:{closed_port}"
    with ScriptedBroker(hanging_up) as broker:
        port = broker.port
        with pytest.raises(Unreachable) as error:
            connecting([one, broker.uri])
    text = str(error.value)
    assert text.startswith("none of 2 addresses answered: amqp://u@127.0.0.1:")
    assert f":{closed_port}/%2F: [Errno 111] " in text
    assert f":{port}/%2F: the broker hung up" in text
    assert "hush" not in text
    assert isinstance(error.value, ConnectionError)
    assert [type(failure) for _, failure in error.value.failures] == [
        ConnectionRefusedError,
        ConnectionLost,
    ]


@both_shells
def test_the_failure_of_the_only_address_is_raised_as_it_is(
    connecting: Connecting, closed_port: int
) -> None:
    with pytest.raises(ConnectionRefusedError):
        connecting(f"amqp://127.0.0.1:{closed_port}")
