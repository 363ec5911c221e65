"""Leveret: an AMQP 0-9-1 message broker in typed Python, whose streams are tables to Spark.

The classes of clustered producers and consumers are imported on first use, because the broker
imports this package for its version, and must not import the client.  `__init__.pyi` declares them
for type checkers.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_CLUSTERS = {
    "Acknowledgement": ("producer", "Acknowledgement"),
    "BlockingConsumer": ("blocking", "BlockingConsumer"),
    "BlockingProducer": ("blocking", "BlockingProducer"),
    "ClusterDeleted": ("outcome", "ClusterDeleted"),
    "ClusterMessage": ("message", "ClusterMessage"),
    "ClusterMismatch": ("outcome", "ClusterMismatch"),
    "Consumer": ("consumer", "ClusterConsumer"),
    "DeliveryStatus": ("producer", "DeliveryStatus"),
    "HandlerStopped": ("outcome", "HandlerStopped"),
    "MemberInUse": ("outcome", "MemberInUse"),
    "Outcome": ("outcome", "Outcome"),
    "Outgoing": ("producer", "Outgoing"),
    "Producer": ("producer", "Producer"),
}

__all__ = [
    "Acknowledgement",
    "BlockingConsumer",
    "BlockingProducer",
    "ClusterDeleted",
    "ClusterMessage",
    "ClusterMismatch",
    "Consumer",
    "DeliveryStatus",
    "HandlerStopped",
    "MemberInUse",
    "Outcome",
    "Outgoing",
    "Producer",
    "__version__",
]


def __getattr__(name: str) -> object:
    """Import a name of this package on first use."""
    if name not in _CLUSTERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, attribute = _CLUSTERS[name]
    return getattr(importlib.import_module(f"leveret.client.clusters.{module}"), attribute)


def __dir__() -> list[str]:
    """Return all names, including those not imported yet."""
    return sorted({*globals(), *__all__})
