"""A real broker for tests, inside the test process, and a pytest plugin for it.

    with leveret.testing.Broker() as broker:
        connection = pika.BlockingConnection(pika.URLParameters(broker.url))

`plugin` contains the fixtures.  Names are imported on first use, because pytest imports the plugin
in every run, even if no test needs a broker.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.testing.broker import BrokerFailed, NotRunning, VirtualHost
    from leveret.testing.broker import EmbeddedBroker as Broker

__all__ = ["Broker", "BrokerFailed", "NotRunning", "VirtualHost"]


def __getattr__(name: str) -> object:
    """Import a name of this package on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module("leveret.testing.broker")
    return getattr(module, "EmbeddedBroker" if name == "Broker" else name)
