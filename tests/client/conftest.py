"""Fixtures of the client's tests: how bytes are fed, and a broker to talk to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret.client.uri import parse_uri
from support.brokers.brokers import running_broker, unique
from support.wire.client_peer import Peer
from support.wire.cut_proxy import CutProxy


@pytest.fixture(params=[False, True], ids=["whole", "bytewise"])
def bytewise(request: pytest.FixtureRequest) -> bool:
    """Whether a broker's bytes come whole or byte by byte."""
    return bool(request.param)


@pytest.fixture
def peer(bytewise: bool) -> Peer:
    """A session whose handshake is done, with its broker."""
    return Peer(bytewise).open()


@pytest.fixture(scope="session")
def broker_uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URI of a running broker: LEVERET_TEST_URI, or a process of our own."""
    with running_broker(tmp_path_factory.mktemp("client")) as broker:
        yield broker.uri


@pytest.fixture
def name() -> str:
    """A name that no other test has."""
    return unique("client")


@pytest.fixture
def proxy(broker_uri: str) -> Iterator[CutProxy]:
    """A way to the broker that can be cut."""
    with CutProxy(parse_uri(broker_uri).port) as proxy:
        yield proxy
