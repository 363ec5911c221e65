"""The table of exchange types, and the function that creates an exchange of a type."""

from __future__ import annotations

from typing import Final

from leveret.broker.exchanges.consistent_hash import ConsistentHashExchange
from leveret.broker.exchanges.direct import DirectExchange
from leveret.broker.exchanges.exchange import DELAYED_TYPE, Declared, Exchange
from leveret.broker.exchanges.fanout import FanoutExchange
from leveret.broker.exchanges.headers import HeadersExchange
from leveret.broker.exchanges.modulus_hash import ModulusHashExchange
from leveret.broker.exchanges.random import LocalRandomExchange, RandomExchange
from leveret.broker.exchanges.recent_history import RecentHistoryExchange
from leveret.broker.exchanges.super_stream import SuperStreamExchange
from leveret.broker.exchanges.topic import TopicExchange
from leveret.errors import PreconditionFailed

#: The types by name.
EXCHANGE_TYPES: Final[dict[str, type[Exchange]]] = {
    "direct": DirectExchange,
    "fanout": FanoutExchange,
    "topic": TopicExchange,
    "headers": HeadersExchange,
    "x-consistent-hash": ConsistentHashExchange,
    "x-local-random": LocalRandomExchange,
    "x-modulus-hash": ModulusHashExchange,
    "x-random": RandomExchange,
    "x-recent-history": RecentHistoryExchange,
    "x-super-stream": SuperStreamExchange,
}


def check_exchange_type(kind: str) -> None:
    """Refuse an unknown type.  Raises: PreconditionFailed (406, behaviour 32: unknown type)."""
    if kind not in EXCHANGE_TYPES and kind != DELAYED_TYPE:
        why = "unknown" if kind else "invalid"
        raise PreconditionFailed(f"{why} exchange type '{kind}'")


def make_exchange(
    name: str,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: dict[str, object],
) -> Exchange:
    """Return a new exchange of the type `kind`.

    Raises: PreconditionFailed (406) for an unknown type (behaviour 32: unknown type), or for
    arguments that are invalid for the type.
    """
    check_exchange_type(kind)
    routes_as = kind
    if kind == DELAYED_TYPE:
        wish = arguments.get("x-delayed-type")
        if not isinstance(wish, str) or wish not in EXCHANGE_TYPES:
            raise PreconditionFailed(
                "Invalid argument, 'x-delayed-type' must be an existing exchange type"
            )
        routes_as = wish
    declared = Declared(name, kind, durable, auto_delete, internal, arguments)
    return EXCHANGE_TYPES[routes_as](declared)
