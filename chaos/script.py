"""A script of operations on one connection, and the state that each of them leads to.

A seed decides all of it: declares, binds and deletes, publishes to one queue or by a topic to
several, acks, rejects with dead letters, returns, purges and transactions.  All of it is on one
connection, and the broker keeps one order; so what a crash leaves must be the state after some
operation, not before the last that was promised and not after the last that was sent.

Invariants: an operation is one step for the broker, done or not; `states[n]` is the state after n
operations, noted before the operation is sent; bodies follow from their names.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from support.wire import raw
from support.wire.raw_codec import decode_properties

EXCHANGE: Final = "x"
DEAD: Final = "dead"
QUEUES: Final = ("a", "b", "c", DEAD)
#: Declared and deleted now and then.
PASSING: Final = ("p", "q")
KEYS: Final = ("k1", "k2", "k3")

LETTERS: Final = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": DEAD}

PLAIN: Final = 1
TX: Final = 2

#: What the names of messages begin with: of those with bodies of 0.3 to 4 KB, or of 30 to 120 KB.
SMALL: Final = "m"
LARGE: Final = "l"

_NOISE: Final = random.Random(2).randbytes(1 << 16)


def body_of(name: str) -> bytes:
    """Return the body of a message, which follows from its name; a large one if that says so."""
    chance = random.Random(name)
    start = chance.randrange(1 << 15)
    if name.startswith(LARGE):
        return name.encode() + b":" + _NOISE[start : start + 30_000] * chance.randrange(1, 5)
    return name.encode() + b":" + _NOISE[start : start + chance.randrange(300, 4000)]


@dataclass(frozen=True)
class State:
    """What there is.  A message that died stands as `name<queue` in the queue of the dead."""

    exchange: bool = False
    queues: dict[str, tuple[str, ...]] = field(default_factory=dict)
    bindings: frozenset[tuple[str, str]] = frozenset()

    def with_queue(self, queue: str, messages: tuple[str, ...]) -> State:
        """Return the state in which a queue holds these."""
        return replace(self, queues=self.queues | {queue: messages})

    def added(self, queue: str, message: str) -> State:
        """Return the state with a message more at the end of a queue."""
        return self.with_queue(queue, (*self.queues[queue], message))

    def without(self, queue: str, message: str) -> State:
        """Return the state without a message."""
        return self.with_queue(queue, tuple(m for m in self.queues[queue] if m != message))

    def routed(self, key: str) -> list[str]:
        """Return the queues that a key of the exchange reaches."""
        return sorted({queue for bound, queue in self.bindings if bound == key})


class Script:
    """One play of the script; it is over when it was played or the broker is gone."""

    def __init__(self, seed: int, operations: int, names: str = SMALL) -> None:
        self.random = random.Random(seed)
        self.names = names
        self.operations = operations
        self.states = [State()]
        #: The state that must be reached, by its number.
        self.promised = 0
        self.promises = 0
        self.complete = False
        self._number = 0
        self._connection: raw.Connection | None = None

    @property
    def state(self) -> State:
        """The state after the last operation that was sent."""
        return self.states[-1]

    def play(self, uri: str) -> None:
        """Play it as far as the broker lives."""
        with contextlib.suppress(raw.Closed, ConnectionError):
            self._connection = raw.connect(uri)
            with self._connection as connection:
                connection.open_channel(PLAIN)
                connection.open_channel(TX)
                self._connection.call(PLAIN, "confirm.select")
                self._connection.call(TX, "tx.select")
                self._set_up()
                while len(self.states) <= self.operations:
                    self._operation()
                # A promise behind all, so that nothing is left open.
                self._publish()
                self.complete = True

    # -- steps -------------------------------------------------------------------------------------

    def _call(self, state: State, name: str, **values: Any) -> None:
        """Do an operation that is a method with a reply, which is a promise."""
        assert self._connection is not None
        self.states.append(state)
        self._connection.call(PLAIN, name, **values)
        self._promise()

    def _promise(self) -> None:
        self.promised = len(self.states) - 1
        self.promises += 1

    def _send(self, state: State, *frames: bytes) -> None:
        """Do an operation that has no reply."""
        assert self._connection is not None
        self.states.append(state)
        self._connection.send(*frames)

    def _confirmed(self, state: State, frames: bytes) -> None:
        """Do a publish and wait for its confirm."""
        assert self._connection is not None
        self._send(state, frames)
        self._connection.expect(PLAIN, "basic.ack")
        self._promise()

    def _set_up(self) -> None:
        values = {"exchange": EXCHANGE, "type": "topic", "durable": True}
        self._call(replace(self.state, exchange=True), "exchange.declare", **values)
        for queue in QUEUES:
            self._declare(queue)
            for key in KEYS[:2]:
                self._bind(queue, key)

    def _operation(self) -> None:
        kinds = (
            [self._publish] * 8
            + [self._publish_by_topic] * 6
            + [self._ack, self._reject] * 4
            + [self._give_back, self._commit, self._commit] * 2
            + [self._roll_back, self._purge, self._come_and_go, self._bind_or_unbind]
        )
        self.random.choice(kinds)()

    # -- definitions -------------------------------------------------------------------------------

    def _declare(self, queue: str) -> None:
        arguments = {} if queue == DEAD else LETTERS
        state = self.state.with_queue(queue, self.state.queues.get(queue, ()))
        values = {"queue": queue, "durable": True, "arguments": arguments}
        self._call(state, "queue.declare", **values)

    def _bind(self, queue: str, key: str) -> None:
        state = replace(self.state, bindings=self.state.bindings | {(key, queue)})
        values = {"queue": queue, "exchange": EXCHANGE, "routing_key": key}
        self._call(state, "queue.bind", **values)

    def _come_and_go(self) -> None:
        queue = self.random.choice(PASSING)
        if queue not in self.state.queues:
            self._declare(queue)
            self._bind(queue, self.random.choice(KEYS))
            return
        left = {name: found for name, found in self.state.queues.items() if name != queue}
        bindings = frozenset(one for one in self.state.bindings if one[1] != queue)
        state = replace(self.state, queues=left, bindings=bindings)
        self._call(state, "queue.delete", queue=queue)

    def _bind_or_unbind(self) -> None:
        queue, key = self.random.choice(QUEUES), self.random.choice(KEYS)
        if (key, queue) not in self.state.bindings:
            self._bind(queue, key)
            return
        state = replace(self.state, bindings=self.state.bindings - {(key, queue)})
        values = {"queue": queue, "exchange": EXCHANGE, "routing_key": key}
        self._call(state, "queue.unbind", **values)

    def _purge(self) -> None:
        """Empty a queue; the reply is no promise, the next one is."""
        assert self._connection is not None
        queue = self._any()
        self._send(self.state.with_queue(queue, ()), raw.method(PLAIN, "queue.purge", queue=queue))
        self._connection.expect(PLAIN, "queue.purge-ok")

    # -- messages ----------------------------------------------------------------------------------

    def _any(self) -> str:
        return self.random.choice(sorted(self.state.queues))

    def _name(self) -> str:
        self._number += 1
        return f"{self.names}{self._number}"

    def _publish(self) -> None:
        name, queue = self._name(), self._any()
        self._confirmed(self.state.added(queue, name), publish("", queue, name))

    def _publish_by_topic(self) -> None:
        """Publish to any number of queues, none among them; all of it is one operation.

        Nothing has to reach the disk for what no queue gets: its confirm comes at once, and is no
        promise of the acks that were sent before it.
        """
        assert self._connection is not None
        name, key = self._name(), self.random.choice(KEYS)
        state = self.state
        queues = state.routed(key)
        for queue in queues:
            state = state.added(queue, name)
        if queues:
            self._confirmed(state, publish(EXCHANGE, key, name))
        else:
            self._send(state, publish(EXCHANGE, key, name))
            self._connection.expect(PLAIN, "basic.ack")

    def _get(self, channel: int = PLAIN) -> tuple[str, str, int] | None:
        """Get the first message of a queue; return the queue, its name, and its tag."""
        assert self._connection is not None
        queue = self._any()
        got = self._connection.get(channel, queue, no_ack=False)
        if got is None:
            assert self.state.queues[queue] == ()
            return None
        name = message_of(queue, got)
        assert name == self.state.queues[queue][0], f"{name} is not the first of {queue}"
        return queue, name, got.delivery_tag

    def _ack(self) -> None:
        if got := self._get():
            queue, name, tag = got
            state = self.state.without(queue, name)
            self._send(state, raw.method(PLAIN, "basic.ack", delivery_tag=tag))

    def _reject(self) -> None:
        """Reject a message: it moves to the dead in one step; the dead are dropped.

        It moves when the broker has handled what it had read at once: hence the round trip.
        """
        assert self._connection is not None
        if got := self._get():
            queue, name, tag = got
            state = self.state.without(queue, name)
            if queue != DEAD:
                state = state.added(DEAD, f"{name}<{queue}")
            self._send(state, raw.method(PLAIN, "basic.reject", delivery_tag=tag))
            self._connection.sync(PLAIN)

    def _give_back(self) -> None:
        if got := self._get():
            values = {"delivery_tag": got[2], "requeue": True}
            self._send(self.state, raw.method(PLAIN, "basic.nack", **values))

    def _commit(self) -> None:
        """Publish two and ack one, all or nothing."""
        assert self._connection is not None
        got = self._get(TX)
        frames, state = self._transaction(got)
        self._send(state, frames, raw.method(TX, "tx.commit"))
        self._connection.expect(TX, "tx.commit-ok")
        self._promise()

    def _roll_back(self) -> None:
        """Do what a transaction does, and take it back; what was got stays where it was."""
        assert self._connection is not None
        got = self._get(TX)
        frames, _ = self._transaction(got)
        self._connection.send(frames, raw.method(TX, "tx.rollback"))
        self._connection.expect(TX, "tx.rollback-ok")
        if got:
            values = {"delivery_tag": got[2], "requeue": True}
            self._send(
                self.state, raw.method(TX, "basic.nack", **values), raw.method(TX, "tx.commit")
            )
            self._connection.expect(TX, "tx.commit-ok")
            self._promise()

    def _transaction(self, got: tuple[str, str, int] | None) -> tuple[bytes, State]:
        state = self.state
        frames = []
        for _ in range(2):
            name, queue = self._name(), self._any()
            frames.append(publish("", queue, name, TX))
            state = state.added(queue, name)
        if got:
            queue, name, tag = got
            frames.append(raw.method(TX, "basic.ack", delivery_tag=tag))
            state = state.without(queue, name)
        return b"".join(frames), state


def publish(exchange: str, key: str, name: str, channel: int = PLAIN) -> bytes:
    """Return the frames of a persistent publish."""
    return raw.publish(channel, exchange, key, body_of(name), delivery_mode=2, message_id=name)


def message_of(queue: str, got: raw.Method) -> str:
    """Return what a message stands as in a state.  Raises: AssertionError where it is altered."""
    values = decode_properties(got.properties)
    name = str(values.get("message_id"))
    assert got.body == body_of(name), f"altered: {name} in {queue}"
    deaths = values.get("headers", {}).get("x-death", [])
    if not deaths:
        return name
    assert len(deaths) == 1, f"{name} died {deaths}"
    assert (deaths[0]["reason"], deaths[0]["count"]) == ("rejected", 1), f"{name} died {deaths}"
    return f"{name}<{deaths[0]['queue']}"


def found(uri: str) -> State:
    """Return the state that a broker is in; it is taken apart on the way."""
    with raw.connect(uri) as connection:
        state = State(exchange=exists(connection, "exchange", EXCHANGE))
        connection.open_channel(PLAIN)
        for queue in (*QUEUES, *PASSING):
            if exists(connection, "queue", queue):
                state = state.with_queue(queue, tuple(messages(connection, queue)))
        bindings = set()
        for key in KEYS if state.exchange else ():
            connection.send(raw.publish(PLAIN, EXCHANGE, key, b"?"))
            for queue in state.queues:
                bindings |= {(key, queue) for _ in connection.drain(PLAIN, queue)}
        connection.close()
    return replace(state, bindings=frozenset(bindings))


def exists(connection: raw.Connection, kind: str, name: str) -> bool:
    """Ask whether there is a queue or an exchange, on a channel of its own."""
    connection.open_channel(9)
    connection.send(raw.method(9, f"{kind}.declare", **{kind: name, "passive": True}))
    got = connection.next_method()
    if got.name == f"{kind}.declare-ok":
        connection.call(9, "channel.close", code=200)
        return True
    assert (got.name, got.code) == ("channel.close", 404), got
    connection.send(raw.method(9, "channel.close-ok"))
    return False


def messages(connection: raw.Connection, queue: str) -> Iterator[str]:
    """Take all messages of a queue."""
    while (got := connection.get(PLAIN, queue)) is not None:
        yield message_of(queue, got)
