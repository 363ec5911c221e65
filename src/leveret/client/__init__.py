"""A client for any AMQP 0-9-1 broker: a sans-IO engine with an asyncio and a blocking shell.

Import `connect` from `leveret.client` for the asyncio shell, or from `leveret.client.blocking` for
the blocking one.  Names are loaded on first use, so that a blocking program does not load asyncio.

Producers and cluster consumers are in `clusters`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.client.arguments import retry_arguments, stream_arguments
    from leveret.client.asynchronous import Channel, Connection, Consumer, Pool, connect
    from leveret.client.certificates import CertificateRefused, TlsFailed
    from leveret.client.deaths import DeadLettering
    from leveret.client.errors import (
        ClientError,
        Closed,
        ConnectionInUse,
        ConnectionLost,
        ConsumerCancelled,
        DeliveryLost,
        InputFull,
        Nacked,
        NoFreeChannel,
        OutputFull,
        PoolExhausted,
        PublishFailed,
        Returned,
        TransactionLost,
        Unreachable,
    )
    from leveret.client.message import Message, ReturnedMessage
    from leveret.client.recovery.settings import (
        Disconnected,
        GaveUp,
        Reconnecting,
        Recovered,
        Recovery,
        RecoveryEvent,
    )
    from leveret.client.shell.requests import DeclareOk
    from leveret.client.uri import Parameters, parse_uri
    from leveret.wire.properties import BasicProperties
    from leveret.wire.tables import Timestamp

__all__ = [
    "BasicProperties",
    "CertificateRefused",
    "Channel",
    "ClientError",
    "Closed",
    "Connection",
    "ConnectionInUse",
    "ConnectionLost",
    "Consumer",
    "ConsumerCancelled",
    "DeadLettering",
    "DeclareOk",
    "DeliveryLost",
    "Disconnected",
    "GaveUp",
    "InputFull",
    "Message",
    "Nacked",
    "NoFreeChannel",
    "OutputFull",
    "Parameters",
    "Pool",
    "PoolExhausted",
    "PublishFailed",
    "Reconnecting",
    "Recovered",
    "Recovery",
    "RecoveryEvent",
    "Returned",
    "ReturnedMessage",
    "Timestamp",
    "TlsFailed",
    "TransactionLost",
    "Unreachable",
    "connect",
    "parse_uri",
    "retry_arguments",
    "stream_arguments",
]

_PLACES = {
    "BasicProperties": "leveret.wire.properties",
    "CertificateRefused": "leveret.client.certificates",
    "Channel": "leveret.client.asynchronous",
    "Connection": "leveret.client.asynchronous",
    "Consumer": "leveret.client.asynchronous",
    "DeadLettering": "leveret.client.deaths",
    "DeclareOk": "leveret.client.shell.requests",
    "Disconnected": "leveret.client.recovery.settings",
    "GaveUp": "leveret.client.recovery.settings",
    "Message": "leveret.client.message",
    "Parameters": "leveret.client.uri",
    "Pool": "leveret.client.asynchronous",
    "Reconnecting": "leveret.client.recovery.settings",
    "Recovered": "leveret.client.recovery.settings",
    "Recovery": "leveret.client.recovery.settings",
    "RecoveryEvent": "leveret.client.recovery.settings",
    "ReturnedMessage": "leveret.client.message",
    "Timestamp": "leveret.wire.tables",
    "TlsFailed": "leveret.client.certificates",
    "connect": "leveret.client.asynchronous",
    "parse_uri": "leveret.client.uri",
    "retry_arguments": "leveret.client.arguments",
    "stream_arguments": "leveret.client.arguments",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = _PLACES.get(name, "leveret.client.errors")
    return getattr(importlib.import_module(place), name)
