"""Topic permissions on the ways to a topic exchange other than a publish to it.

A queue's dead letters, what an exchange has no binding for, a binding from exchange to exchange and
what a commit cannot route are moved on by the broker itself, for no user at that time.  So the user
who opens such a way needs the topic permission for every key that may come by it.  Where the keys
are the messages' own, that is every key there is.

RabbitMQ asks for *write* on the exchange and looks at no key on these ways.

Invariant: a user without a topic permission for an exchange is not limited in it, here neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.topology.exchange import Routing
from leveret.names import Name
from leveret.routing.keys import ANY_WORDS, ONE_WORD

if TYPE_CHECKING:
    from leveret.broker.node.access import Access
    from leveret.broker.topology.exchange import Exchange
    from leveret.broker.vhost.vhost import Vhost
    from leveret.session.channel.channel import Channel


def check_way(access: Access, vhost: Vhost, exchange: Name, key: str | None) -> None:
    """Check that messages may go on to an exchange: by one key, or (None) by keys of their own.

    Raises: AccessRefused (403).
    """
    if not access.is_limited(exchange) or not _is_topic(vhost, exchange):
        return
    if key is None:
        access.write_topics(exchange, "")
    else:
        access.write_topic(exchange, key)


def check_binding_between(
    channel: Channel, source: Exchange, destination: Name, binding_key: str
) -> None:
    """Check that an exchange may be bound to another: for the keys that `source` lets through.

    Raises: AccessRefused (403).
    """
    access = channel.connection.access
    if not access.is_limited(destination) or not _is_topic(channel.vhost, destination):
        return
    if not source.looks_at_keys:
        access.write_topics(destination, "")
    elif not source.has_patterns:
        access.write_topic(destination, binding_key)
    else:
        _check_matched(access, destination, binding_key.split("."))


def _check_matched(access: Access, exchange: Name, words: list[str]) -> None:
    """Check every key that a binding key of these words matches.  Raises: AccessRefused (403)."""
    known = 0
    while known < len(words) and words[known] not in (ONE_WORD, ANY_WORDS):
        known += 1
    start = ".".join(words[:known])
    if known == len(words) or (known and words[known] == ANY_WORDS):
        # `a.#` matches `a` too.
        access.write_topic(exchange, start)
    if known < len(words):
        access.write_topics(exchange, f"{start}." if known else "")


def check_reached(
    channel: Channel, exchange: Exchange, key: str, copies: list[str], properties: bytes
) -> Routing | None:
    """Check the keys of CC and BCC against each topic exchange that the message comes to.

    A binding lets one key through, and with it come the others.  Returns where the message goes,
    if it was routed for that and no exchange may delay it.

    Raises: AccessRefused (403).
    """
    access = channel.connection.access
    if not access.has_topic_limits() or not exchange.name:
        return None
    routing = Routing(key, properties)
    routing.more_keys = copies
    routing.ignores_delays = True
    routing.run(exchange, channel.vhost.exchanges.by_name)
    channel.connection.turn.steps += routing.steps()
    delays = False
    for reached in routing.visited():
        delays = delays or reached.delays
        if reached.has_patterns:
            for copy in copies:
                access.write_topic(reached.name, copy)
    return None if delays else routing


def still_allowed(channel: Channel, exchange: Name, key: str, copies: list[str]) -> None:
    """Check what was allowed once, after the user's rights changed.

    Raises: AccessRefused (403).
    """
    access = channel.connection.access
    access.write("exchange", exchange)
    there = channel.vhost.exchanges.by_name.get(exchange)
    if there is not None and there.has_patterns:
        for one in (key, *copies):
            access.write_topic(exchange, one)


def _is_topic(vhost: Vhost, name: str) -> bool:
    """Return whether an exchange matches keys by words, or does not exist and may come to."""
    exchange = vhost.exchanges.by_name.get(name)
    return exchange is None or exchange.has_patterns
