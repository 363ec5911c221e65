"""The exchange types, a file each, and the table that makes one by its name."""

from __future__ import annotations

from leveret.broker.exchange import Exchange
from leveret.broker.exchanges.direct import DirectExchange
from leveret.broker.exchanges.fanout import FanoutExchange
from leveret.broker.exchanges.headers import HeadersExchange
from leveret.broker.exchanges.topic import TopicExchange
from leveret.errors import PreconditionFailed


def make_exchange(
    name: str,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, object],
) -> Exchange:
    """Return a new exchange of the type `kind`.

    Raises: PreconditionFailed (406) for an unknown type (behaviour 32).
    """
    if kind == "direct":
        return DirectExchange(name, kind, durable, auto_delete, internal, arguments)
    if kind == "fanout":
        return FanoutExchange(name, kind, durable, auto_delete, internal, arguments)
    if kind == "topic":
        return TopicExchange(name, kind, durable, auto_delete, internal, arguments)
    if kind == "headers":
        return HeadersExchange(name, kind, durable, auto_delete, internal, arguments)
    raise PreconditionFailed(f"unknown exchange type '{kind}'")
