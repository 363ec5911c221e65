"""Topic permissions for messages that reach a topic exchange other than by a publish to it.

The broker itself forwards a queue's dead letters, unroutable messages of an exchange with an
alternate, messages along exchange-to-exchange bindings and messages that a commit cannot route, on
behalf of no user.  So the user who sets up such a path needs the topic permission for every key
that messages on it can have.  If messages keep their own keys, that is every possible key.

RabbitMQ requires *write* on the exchange and checks no key on these paths.

Invariant: as for a publish, a user without a topic permission for an exchange is not limited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.broker.exchanges.exchange import Routing
from leveret.broker.scheduler.costs import LOOKS_PER_COST
from leveret.broker.sinks.release import copies_of
from leveret.broker.users.permissions import WRITE
from leveret.errors import PreconditionFailed
from leveret.limits import TABLE_BYTES_PER_COST
from leveret.names import Name
from leveret.routing.keys import ANY_WORDS, ONE_WORD

if TYPE_CHECKING:
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.users.access import Access
    from leveret.broker.vhost.vhost import Vhost
    from leveret.message import Message
    from leveret.session.channel.channel import ServerChannel


def check_way(access: Access, vhost: Vhost, exchange: Name, key: str | None) -> None:
    """Check that messages may be forwarded to an exchange, with `key` or (None) their own keys.

    Raises: AccessRefused (403).
    """
    if not access.is_limited(exchange) or not _is_topic(vhost, exchange):
        return
    if key is None:
        access.write_topics(exchange, "")
    else:
        access.check_topic(WRITE, exchange, key)


def check_binding_between(
    channel: ServerChannel, source: Exchange, destination: Name, binding_key: str
) -> None:
    """Check that an exchange may be bound to another, for all keys that `source` lets through.

    Raises: AccessRefused (403).
    """
    access = channel.connection.access
    if not access.is_limited(destination) or not _is_topic(channel.vhost, destination):
        return
    if not source.looks_at_keys:
        access.write_topics(destination, "")
    elif not source.has_patterns:
        access.check_topic(WRITE, destination, binding_key)
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
        access.check_topic(WRITE, exchange, start)
    if known < len(words):
        access.write_topics(exchange, f"{start}." if known else "")


def check_reached(
    channel: ServerChannel, exchange: Exchange, key: str, copies: list[str], properties: bytes
) -> Routing | None:
    """Check the keys of CC and BCC against each topic exchange that the message reaches.

    A binding that matches one key lets the message through with all others.  Return the routing of
    the message, if the check needed it and no exchange may delay the message.

    Raises: AccessRefused (403); PreconditionFailed (406) for a refused header, and if routing the
    message and checking its keys would take too long.
    """
    access = channel.connection.access
    if not access.has_topic_limits() or not exchange.name:
        return None
    routing = Routing(key, properties)
    routing.more_keys = copies
    routing.ignores_delays = True
    routing.run(exchange, channel.vhost.exchanges.by_name)
    channel.connection.scheduler.spent += routing.cost()
    if routing.refusal:
        raise PreconditionFailed(routing.refusal)
    delays = False
    for reached in routing.visited():
        delays = delays or reached.delays
        if not reached.has_patterns or not access.is_limited(reached.name):
            continue
        channel.connection.scheduler.spent += len(copies)
        for copy in copies:
            before = access.walked
            access.check_topic(WRITE, reached.name, copy)
            # Count this as part of the message's routing.
            routing.look(access.walked - before + LOOKS_PER_COST)
            if routing.over:
                raise PreconditionFailed(
                    f"the message has {len(copies)} keys in CC and BCC, and routing it and "
                    f"checking them against the topic permissions of user '{access.user}' takes "
                    "too long; publish it with fewer keys at a time"
                )
    return None if delays else routing


def check_again(
    channel: ServerChannel, exchange: bytes, routing_key: bytes, message: Message
) -> None:
    """Check a publish and its CC and BCC keys again, after a change of permissions.

    An exchange that no longer exists is treated as a topic exchange, because it may have been one.

    Raises: AccessRefused (403); PreconditionFailed (406) as `check_reached`.
    """
    access = channel.connection.access
    name = Name(exchange.decode("utf-8", "surrogateescape"))
    access.write("exchange", name)
    if not name or not access.has_topic_limits():
        return
    limited = access.is_limited(name) and _is_topic(channel.vhost, name)
    if limited:
        access.check_topic(WRITE, name, routing_key.decode("utf-8", "surrogateescape"))
    channel.connection.scheduler.spent += len(message.properties) // TABLE_BYTES_PER_COST
    copies = copies_of(message)
    there = channel.vhost.exchanges.by_name.get(name)
    if copies and there is not None:
        key = routing_key.decode("utf-8", "surrogateescape")
        check_reached(channel, there, key, copies, message.properties)
    elif limited:
        for copy in copies:
            access.check_topic(WRITE, name, copy)


def _is_topic(vhost: Vhost, name: str) -> bool:
    """Return whether an exchange is a topic exchange, or is missing and may have been one."""
    exchange = vhost.exchanges.by_name.get(name)
    return exchange is None or exchange.has_patterns
