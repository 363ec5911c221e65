"""A seeded load on a broker in memory, and a check that no promise is sent before its sync.

Each promise (a confirm, a tx.commit-ok, the -ok of a durable declare, bind or delete) depends on a
record that contains a unique word: a body, a name, a key.  The check finds the write of that word
in the disk's trace and a sync of the same file after it, both before the promise was received.

Invariants: the load is decided by its seed alone; every word is used once.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

CONFIRMING: Final = 1
TX: Final = 2
DEFINING: Final = 3
QUEUES: Final = 4


@dataclass
class Side:
    """The promises that one client waits for, in order."""

    peer: Peer
    publishes: list[str] = field(default_factory=list)
    confirmed: int = 0
    tx_open: list[str] = field(default_factory=list)
    commits: list[list[str]] = field(default_factory=list)
    definitions: list[str] = field(default_factory=list)
    heard: int = 0


@dataclass
class Promise:
    """A promise: the words that must be on disk, and the time of its arrival.

    `nth` is the number of the write of the word that it depends on: the first for a declare, the
    second for a delete.
    """

    what: str
    words: list[str]
    at: int
    nth: int = 0


class Load:
    """Three clients that publish, define, commit, get and ack at random."""

    def __init__(self, node: Node, seed: int) -> None:
        self.node = node
        self.random = random.Random(seed)
        self.number = 0
        self.input: list[list[bytes]] = [[], [], []]
        self.sides = [Side(node.connect(CONFIRMING, TX, DEFINING)) for _ in range(3)]
        self.peers = [side.peer for side in self.sides]
        self.found: list[Promise] = []
        self._set_up()

    def _set_up(self) -> None:
        peer = self.peers[0]
        for number in range(QUEUES):
            peer.declare(f"q{number}")
            peer.call(1, "queue.bind", queue=f"q{number}", exchange="amq.fanout")
        peer.declare("s", arguments={"x-queue-type": "stream"})
        peer.call(1, "queue.bind", queue="s", exchange="amq.fanout")
        for each in self.peers:
            each.call(CONFIRMING, "confirm.select")
            each.call(TX, "tx.select")
            each.heard.clear()
            each.take()

    # -- the load ----------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Take `steps` steps.  Raises: StorageFailure if the disk fails."""
        for _ in range(steps):
            step = self.random.choice(
                [self.publish] * 5
                + [self.feed] * 5
                + [self.begin, self.end, self.define, self.commit, self.settle, self.tick]
            )
            step()
            self.hear()

    def finish(self) -> None:
        """Feed all remaining input, and sync everything."""
        self.feed(whole=True)
        self.node.sync()
        self.feed(whole=True)
        self.node.sync()
        self.hear()

    def word(self) -> str:
        """A unique word."""
        self.number += 1
        return f"<{self.number}>"

    def pick(self) -> int:
        """Choose the number of a client."""
        return self.random.randrange(3)

    def publish(self) -> None:
        """Publish to one queue, to all, or to a stream: with confirms or in a transaction."""
        place = self.pick()
        side = self.sides[place]
        word = self.word()
        exchange, key = self.random.choice(
            [("", f"q{self.random.randrange(QUEUES)}"), ("amq.fanout", ""), ("", "s")]
        )
        channel = self.random.choice([CONFIRMING, CONFIRMING, TX])
        body = word.encode() + bytes(self.random.choice([0, 10, 5000]))
        self.input[place].append(publish(channel, exchange, key, body, delivery_mode=2))
        if channel == TX:
            side.tx_open.append(word)
        else:
            side.publishes.append(word)

    def commit(self) -> None:
        """Commit a client's transaction."""
        place = self.pick()
        side = self.sides[place]
        self.input[place].append(method(TX, "tx.commit"))
        side.commits.append(side.tx_open)
        side.tx_open = []

    def define(self) -> None:
        """Declare and bind, or declare and delete."""
        place = self.pick()
        word = self.word()
        steps = [("queue.declare", {"queue": word, "durable": True})]
        if self.random.randrange(2):
            steps.append(("queue.bind", {"queue": word, "exchange": "amq.direct"}))
        else:
            steps.append(("queue.delete", {"queue": word}))
        for name, values in steps:
            self.input[place].append(method(DEFINING, name, **values))
            self.sides[place].definitions.append(word)

    def settle(self) -> None:
        """Get a message, with or without no_ack: a record between others, but no promise."""
        queue = f"q{self.random.randrange(QUEUES)}"
        no_ack = self.random.randrange(2) == 0
        get = method(DEFINING, "basic.get", queue=queue, no_ack=no_ack)
        self.input[self.pick()].append(get)

    def feed(self, *, whole: bool = False) -> None:
        """Send the broker some of one client's input, cut anywhere, or all input of all clients."""
        for place in range(3) if whole else [self.pick()]:
            data = b"".join(self.input[place])
            cut = len(data) if whole else self.random.randrange(len(data) + 1)
            self.input[place] = [data[cut:]]
            if cut:
                self.peers[place].send(data[:cut])

    def begin(self) -> None:
        """Seal a group."""
        self.node.begin_sync()

    def end(self) -> None:
        """Write the current group, if any, and tell the core."""
        if self.node.group is not None:
            self.node.write()
            self.node.end_sync()

    def tick(self) -> None:
        """Let a second pass."""
        self.node.tick(1000)

    # -- promises ----------------------------------------------------------------------------------

    def hear(self) -> None:
        """Convert the methods received by the clients into promises."""
        for side in self.sides:
            for heard in side.peer.heard[side.heard :]:
                self._hear(side, heard.method.name, heard.method.channel, heard.at, heard.method)
            side.heard = len(side.peer.heard)

    def _hear(self, side: Side, name: str, channel: int, at: int, got: object) -> None:
        if name == "basic.ack":
            tag = int(getattr(got, "delivery_tag"))  # noqa: B009 - a field of the method
            self.found.append(Promise(name, side.publishes[side.confirmed : tag], at))
            side.confirmed = tag
        elif name == "tx.commit-ok":
            self.found.append(Promise(name, side.commits.pop(0), at))
        elif channel == DEFINING and name.startswith("queue."):
            word = side.definitions.pop(0)
            self.found.append(Promise(name, [word], at, int(name != "queue.declare-ok")))
        else:
            assert name in ("basic.get-ok", "basic.get-empty"), got

    def promises(self) -> int:
        """The number of received promises."""
        self.hear()
        return len(self.found)

    def unconfirmed(self) -> list[str]:
        """The unconfirmed publishes of clients in confirm mode."""
        return [word for side in self.sides for word in side.publishes[side.confirmed :]]


def check_promises(load: Load) -> int:
    """Assert that each promise arrived after the sync of its record; return their number."""
    assert load.node.recording is not None
    trace = load.node.recording.trace
    writes = [place for place, operation in enumerate(trace) if operation.verb == "write"]
    for promise in load.found:
        for word in promise.words:
            raw = word.encode()
            holding = [place for place in writes if raw in trace[place].data]
            assert len(holding) > promise.nth, f"{promise}: its record was never written"
            written = holding[promise.nth]
            syncs = [
                place
                for place in range(written, promise.at)
                if trace[place].verb == "sync" and trace[place].file == trace[written].file
            ]
            assert syncs, f"{promise}: heard before its sync"
    return len(load.found)
