"""The pytest plugin: an embedded broker for the session, and a fresh vhost for each test.

pytest loads it if Leveret is installed.  It imports the broker only when a test needs it, so that
other test runs have no overhead.  Every worker of pytest-xdist has its own broker.

No fixture is asynchronous.  Asynchronous tests await methods of `leveret`, so they work with any
plugin that runs them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from leveret.client.blocking import Connection
    from leveret.testing.broker import EmbeddedBroker, VirtualHost


@pytest.fixture(scope="session")
def leveret_settings() -> dict[str, Any]:
    """Return the keyword arguments of the broker; override it in a `conftest.py`."""
    return {}


@pytest.fixture(scope="session")
def leveret_server(leveret_settings: dict[str, Any]) -> Iterator[EmbeddedBroker]:
    """Yield the broker of the session, which the first test that needs it starts.

    It stops after the last test.  Each worker of pytest-xdist has its own.
    """
    from leveret.testing.broker import EmbeddedBroker

    with EmbeddedBroker(**leveret_settings) as broker:
        yield broker


@pytest.fixture
def leveret(leveret_server: EmbeddedBroker) -> Iterator[VirtualHost]:
    """Yield a vhost for this test only; undo all faults of the broker after the test."""
    from leveret.errors import NotFound

    leveret_server.start()
    vhost = leveret_server.add_vhost()
    try:
        yield vhost
    finally:
        # A test may have killed the broker; after a restart the vhost exists again.
        leveret_server.start()
        leveret_server.heal()
        with contextlib.suppress(NotFound):
            # A test may have deleted the vhost, or stopped the broker, which deletes its data.
            vhost.delete()


@pytest.fixture
def leveret_url(leveret: VirtualHost) -> str:
    """Return the URL of this test's vhost."""
    return leveret.url


@pytest.fixture
def leveret_connection(leveret: VirtualHost) -> Iterator[Connection]:
    """Yield a connection of the blocking client to this test's vhost."""
    with leveret.connect() as connection:
        yield connection
