"""The pytest plugin: an embedded broker for the session, and a fresh vhost of it for each test.

pytest loads it where Leveret is installed.  It imports the broker when a test first asks for it, so
that other test runs pay nothing.  Every process of pytest-xdist has a broker of its own.

No fixture is asynchronous: what a test awaits are methods of `leveret`, so that any plugin for
asynchronous tests will do.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leveret.client.blocking import Connection
    from leveret.testing.broker import Broker, VirtualHost


@pytest.fixture(scope="session")
def leveret_settings() -> dict[str, Any]:
    """Return the settings of `leveret_server`; override it in a `conftest.py`."""
    return {}


@pytest.fixture(scope="session")
def leveret_server(leveret_settings: dict[str, Any]) -> Iterator[Broker]:
    """Give the broker of the session; it stops when the last test is done."""
    from leveret.testing.broker import Broker

    with Broker(**leveret_settings) as broker:
        yield broker


@pytest.fixture
def leveret(leveret_server: Broker) -> Iterator[VirtualHost]:
    """Give a vhost that this test has for itself; faults of the broker end with the test."""
    from leveret.errors import NotFound

    leveret_server.start()
    vhost = leveret_server.add_vhost()
    try:
        yield vhost
    finally:
        # A test may have killed the broker, which then has the vhost again when it is back.
        leveret_server.start()
        leveret_server.heal()
        with contextlib.suppress(NotFound):
            # A test may have stopped it, and all its data went, or deleted the vhost.
            vhost.delete()


@pytest.fixture
def leveret_url(leveret: VirtualHost) -> str:
    """Return the URL of this test's vhost."""
    return leveret.url


@pytest.fixture
def leveret_connection(leveret: VirtualHost) -> Iterator[Connection]:
    """Give a connection of the blocking client to this test's vhost."""
    with leveret.connect() as connection:
        yield connection
