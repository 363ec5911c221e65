"""Fixtures of the protocol tests: one broker for all, raw connections, and a neighbour.

Every test runs twice where it uses `client` or `connection`: its input is fed whole and byte by
byte.  After each test the neighbour, a connection that was open before it, still publishes and
gets: whatever a test did to its own connection must not reach another.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.brokers.brokers import Broker, Client, Dial, running_broker, unique
from support.wire import raw


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker under test.  A refused login ends after 0.1 s, not after some seconds."""
    settings = {"login_failure_delay_ms": "100"}
    with running_broker(tmp_path_factory.mktemp("protocol"), settings) as running:
        yield running


@pytest.fixture(params=[False, True], ids=["whole", "bytewise"])
def bytewise(request: pytest.FixtureRequest) -> bool:
    """Whether the input is fed byte by byte."""
    return bool(request.param)


@pytest.fixture
def dial(broker: Broker, bytewise: bool) -> Iterator[Dial]:
    """Open sockets on which nothing was sent yet."""
    opened: list[raw.Connection] = []

    def dial_one() -> raw.Connection:
        opened.append(raw.dial(broker.uri, bytewise=bytewise))
        return opened[-1]

    yield dial_one
    for connection in opened:
        connection.socket.close()


@pytest.fixture
def client(dial: Dial) -> Client:
    """Open raw connections."""

    def connect(login: raw.Login | None = None, *, channel: bool = True) -> raw.Connection:
        connection = dial().handshake(login)
        if channel:
            connection.open_channel(1)
        return connection

    return connect


@pytest.fixture
def connection(client: Client) -> raw.Connection:
    """An open connection with channel 1 open."""
    return client()


@pytest.fixture
def whole(broker: Broker) -> Iterator[Client]:
    """Open raw connections fed whole only, for tests that are long or send much."""
    opened: list[raw.Connection] = []

    def connect(login: raw.Login | None = None, *, channel: bool = True) -> raw.Connection:
        opened.append(raw.dial(broker.uri).handshake(login))
        if channel:
            opened[-1].open_channel(1)
        return opened[-1]

    yield connect
    for one in opened:
        one.socket.close()


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return unique("p")


@pytest.fixture
def exchanges(connection: raw.Connection, client: Client, name: str) -> Iterator[raw.Exchanges]:
    """Declare exchanges on the test's connection."""
    made = raw.Exchanges(connection, name)
    yield made
    cleaner = client()
    for exchange in made.declared:
        cleaner.call(1, "exchange.delete", exchange=exchange)


class Neighbour:
    """A connection that lives beside the tests; opened anew only after it was lost."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.connection: raw.Connection | None = None
        self.queue = ""

    def ready(self) -> None:
        """Open it where it is not."""
        if self.connection is None:
            self.connection = raw.connect(self.uri)
            self.connection.open_channel(1)
            self.queue = self.connection.declare(1, exclusive=True).queue

    def check(self) -> None:
        """Assert that it goes on: a publish comes back."""
        assert self.connection is not None
        connection, self.connection = self.connection, None
        body = unique("neighbour").encode()
        connection.send(raw.publish(1, "", self.queue, body))
        got = connection.get(1, self.queue)
        assert got is not None
        assert got.body == body
        self.connection = connection


@pytest.fixture(scope="session")
def neighbours(broker: Broker) -> Iterator[Neighbour]:
    """The neighbour of all tests."""
    neighbour = Neighbour(broker.uri)
    yield neighbour
    if neighbour.connection is not None:
        neighbour.connection.socket.close()


@pytest.fixture(autouse=True)
def neighbour_goes_on(neighbours: Neighbour) -> Iterator[None]:
    """Whatever a test does, a connection beside it goes on."""
    neighbours.ready()
    yield
    neighbours.check()
