"""Where a script plays: connections and channels that write down all that they send and hear.

A script never asserts: it says what to send and how many answers to wait for, and the transcript
is what two brokers are compared by.  So it goes on after an error: a channel that the broker
closed is opened again by the next call, and so is a connection.

Invariants: nothing sleeps.  A wait is for a frame, with a deadline; that nothing more comes is
shown by the counts of a queue (`count`) or a round trip on the channel (`sync`).  What brokers may
send at any time (deliveries, confirms, returns, cancels) is written down when a script asks.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from differential.transcript import Transcript, read_properties, show, show_fields, without_extras
from support.wire import raw

#: How long to wait for what a broker owes; RabbitMQ's silent close takes 3 s.
SECONDS_MAX: Final = 8.0

#: How long the counts of a queue may take to become what is waited for.
SETTLE_SECONDS_MAX: Final = 5.0

#: What may come at any time, on a channel or (blocked) on the connection.
UNASKED: Final = {
    "basic.deliver",
    "basic.return",
    "basic.ack",
    "basic.nack",
    "basic.cancel",
    "connection.blocked",
    "connection.unblocked",
}


#: What comes with a body.
WITH_BODY: Final = {"basic.return", "basic.deliver", "basic.get-ok"}


@dataclass
class Heard:
    """A method that came; `properties` has tagged values."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    properties: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""

    def __str__(self) -> str:
        parts = [self.name, show_fields(self.fields)]
        if self.properties:
            parts.append(show(self.properties))
        if self.name in WITH_BODY:
            parts.append(show(self.body))
        return " ".join(part for part in parts if part)

    @property
    def tag(self) -> int:
        """The delivery tag; 0 where it has none."""
        return int(self.fields.get("delivery_tag", 0))


NOTHING: Final = Heard("(nothing)")
END: Final = Heard("(end)")


@dataclass
class Host:
    """One of the brokers: where it is, what manages it, and RabbitMQ's version."""

    name: str
    uri: str
    api: Callable[[str, str, Any], tuple[int, Any]]
    version: str = ""


class Stage:
    """What a script gets: names of its own, connections, the transcript."""

    def __init__(self, host: Host, prefix: str) -> None:
        self.host = host
        self.prefix = prefix
        self.transcript = Transcript(prefix)
        self.peers: list[Peer] = []
        self.extras = False  # whether headers are shown that only Leveret adds

    def name(self, name: str) -> str:
        """Return a name that no other script has."""
        return self.prefix + name

    def note(self, text: str) -> None:
        """Write a line of the script's own."""
        self.transcript.add(text)

    def peer(self, login: raw.Login | None = None) -> Peer:
        """Open a connection."""
        peer = Peer(self, "abcdefgh"[len(self.peers)], login or raw.Login())
        self.peers.append(peer)
        peer.open()
        return peer

    def channel(self, login: raw.Login | None = None) -> Channel:
        """Open a connection and its channel 1."""
        return self.peer(login).channel(1)

    def dial(self) -> Peer:
        """Open a socket on which nothing was sent."""
        peer = Peer(self, "abcdefgh"[len(self.peers)], raw.Login())
        self.peers.append(peer)
        peer.dial()
        return peer

    def api(self, verb: str, path: str, body: object = None) -> Any:
        """Ask the HTTP API, write down the status and return the answer."""
        status, answer = self.host.api(verb, path.replace("{s}", self.prefix), body)
        self.note(f"api {verb} {path} {status}")
        return answer

    def finish(self) -> None:
        """Close all sockets."""
        for peer in self.peers:
            peer.drop()


class Peer:
    """One connection; it is opened again by the next call when the broker closed it."""

    def __init__(self, stage: Stage, name: str, login: raw.Login) -> None:
        self.stage = stage
        self.name = name
        self.login = login
        self.connection: raw.Connection | None = None
        self.channels: dict[int, Channel] = {}
        self.waiting: dict[int, deque[Heard]] = {}

    # -- life

    def dial(self) -> None:
        """Open the socket."""
        self.connection = raw.dial(self.stage.host.uri)
        self.connection.socket.settimeout(SECONDS_MAX)

    def open(self) -> None:
        """Open the connection; a refusal is written down."""
        self.dial()
        assert self.connection is not None
        try:
            self.connection.handshake(self.login)
        except raw.Closed:
            self.drop()
            self.note("(refused: end)")
        except AssertionError as error:
            self.drop()
            self.note(f"(refused: {str(error).partition('fields=')[2]})")

    def drop(self) -> None:
        """Close the socket."""
        if self.connection is not None:
            self.connection.socket.close()
        self.connection = None
        self.waiting.clear()
        for channel in self.channels.values():
            channel.is_open = False

    def note(self, text: str) -> None:
        """Write a line about this connection."""
        self.stage.note(f"{self.name} {text}")

    def channel(self, number: int = 1) -> Channel:
        """Open a channel."""
        self.channels[number] = channel = Channel(self, number)
        channel.open()
        return channel

    def close(self) -> None:
        """Close by the handshake."""
        self.send(raw.method(0, "connection.close", code=200, text="bye"))
        self.note("> connection.close")
        while (heard := self.next_on(0)).name in UNASKED:
            self.note(f"< {heard}")
        self.note(f"< {heard}")
        self.drop()

    def raw(self) -> raw.Connection:
        """Return the open connection, opened again where it was lost."""
        if self.connection is None:
            self.note("(opened again)")
            self.open()
        assert self.connection is not None, "refused"
        return self.connection

    # -- frames

    def send(self, *parts: bytes) -> None:
        """Send bytes and write nothing down; that the broker is gone is seen by the next wait."""
        with contextlib.suppress(OSError):
            self.raw().send(*parts)

    def next_on(self, number: int) -> Heard:
        """Return the next method on a channel; of others it is kept.  A close ends a wait too."""
        kept = self.waiting.setdefault(number, deque())
        while not kept:
            if self.connection is None:
                return END
            try:
                got = self.connection.next_method()
            except TimeoutError:
                return NOTHING
            except (raw.Closed, OSError):
                self.drop()
                return END
            properties = read_properties(got.properties) if got.properties else {}
            if not self.stage.extras:
                properties = without_extras(properties)
            heard = Heard(got.name, got.fields, properties, got.body)
            if got.name == "connection.close":
                self._closed(heard)
                return heard
            self.waiting.setdefault(got.channel, deque()).append(heard)
        return kept.popleft()

    def _closed(self, heard: Heard) -> None:
        """Answer the broker's close."""
        self.send(raw.method(0, "connection.close-ok"))
        self.drop()

    def hear(self, number: int = 0) -> Heard:
        """Wait for the next method on channel 0 or another, and write it down."""
        heard = self.next_on(number)
        self.note(f"< {heard}")
        return heard

    def end(self) -> None:
        """Expect the end of the stream."""
        self.note(f"< {self.next_on(0)}")


class Channel:
    """One channel, with a word for each of AMQP's methods."""

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer = peer
        self.number = number
        self.is_open = False
        self.confirming = False
        self.published = 0  # since confirm.select
        self.verdicts: dict[int, str] = {}  # of those that are confirmed

    def note(self, text: str) -> None:
        """Write a line about this channel."""
        self.peer.stage.note(f"{self.peer.name}{self.number} {text}")

    # -- the ground

    def open(self) -> None:
        """Open the channel; what came for the one before it is forgotten."""
        self.peer.waiting.pop(self.number, None)
        self.peer.send(raw.method(self.number, "channel.open"))
        heard = self.peer.next_on(self.number)
        self.is_open = heard.name == "channel.open-ok"
        if not self.is_open:
            self.note(f"< {heard}")

    def ensure(self) -> None:
        """Open it again where it was closed."""
        self.peer.raw()
        if not self.is_open:
            self.note("(opened again)")
            self.confirming = False
            self.open()

    def send(self, name: str, **fields: Any) -> None:
        """Send a method and wait for nothing."""
        self.ensure()
        self.peer.send(raw.method(self.number, name, **fields))
        shown = show_fields({k: v for k, v in fields.items() if v not in (False, None, "", {})})
        self.note(f"> {name} {shown}".rstrip())

    def call(self, name: str, **fields: Any) -> Heard:
        """Send a method and wait for its answer or the end of the channel."""
        self.send(name, **fields)
        return self.answer()

    def answer(self) -> Heard:
        """Wait for what is not unasked for, and write it down."""
        heard = self._reply()
        self.note(f"< {heard}")
        return heard

    def _reply(self) -> Heard:
        kept = []
        while (heard := self._next()).name in UNASKED:
            kept.append(heard)
        self._keep(kept)
        return heard

    def _next(self) -> Heard:
        heard = self.peer.next_on(self.number)
        if heard.name == "channel.close":
            self.peer.send(raw.method(self.number, "channel.close-ok"))
            self.is_open = False
        return heard

    def hear(self, count: int = 1) -> list[Heard]:
        """Wait for so many methods of any kind and write them down; a close ends it."""
        got: list[Heard] = []
        while len(got) < count:
            heard = self._next()
            self.note(f"< {heard}")
            got.append(heard)
            if heard.name not in UNASKED:
                break
        return got

    def delivered(self, count: int = 1) -> list[Heard]:
        """Wait for so many deliveries and write them down; others are kept."""
        got: list[Heard] = []
        kept = []
        while len(got) < count:
            heard = self._next()
            if heard.name in UNASKED and heard.name != "basic.deliver":
                kept.append(heard)
                continue
            self.note(f"< {heard}")
            got.append(heard)
            if heard.name != "basic.deliver":
                break
        self._keep(kept)
        return got

    def confirmed(self) -> None:
        """Wait until all that was published is confirmed; write down what became of each.

        Brokers are free in how many they confirm by one method.
        """
        known = set(self.verdicts)
        kept = []
        while len(self.verdicts) < self.published:
            heard = self._next()
            if heard.name in ("basic.ack", "basic.nack"):
                first = 1 if heard.fields["multiple"] else heard.tag
                for tag in range(first, heard.tag + 1):
                    self.verdicts.setdefault(tag, heard.name.removeprefix("basic."))
            elif heard.name in UNASKED:
                kept.append(heard)
            else:
                self.note(f"< {heard}")
                break
        self._keep(kept)
        new = sorted(set(self.verdicts) - known)
        self.note("confirmed " + " ".join(f"{tag}:{self.verdicts[tag]}" for tag in new))

    def _keep(self, heard: list[Heard]) -> None:
        """Put back what came before it was asked for."""
        self.peer.waiting.setdefault(self.number, deque()).extendleft(reversed(heard))

    def rest(self) -> None:
        """Write down what came and was not asked for, best after a `count`."""
        waiting = self.peer.waiting.get(self.number, deque())
        for heard in waiting:
            self.note(f"< {heard}")
        self.note(f"({len(waiting)} left)")
        waiting.clear()

    def sync(self) -> None:
        """A round trip without other effect: soft errors of what was sent before are heard."""
        self.peer.send(
            raw.method(
                self.number, "exchange.declare", exchange="amq.direct", type="direct", passive=True
            )
        )
        heard = self._reply()
        if heard.name != "exchange.declare-ok":
            self.note(f"< {heard}")

    def close(self) -> Heard:
        """Close the channel."""
        heard = self.call("channel.close", code=200, text="bye")
        self.is_open = False
        return heard

    # -- exchanges, queues, bindings

    def exchange(self, exchange: str, type: str = "direct", **fields: Any) -> Heard:
        """Declare an exchange."""
        return self.call("exchange.declare", exchange=exchange, type=type, **fields)

    def declare(self, queue: str = "", **fields: Any) -> Heard:
        """Declare a queue."""
        return self.call("queue.declare", queue=queue, **fields)

    def bind(self, queue: str, exchange: str, key: str = "", **fields: Any) -> Heard:
        """Bind a queue."""
        fields = {"queue": queue, "exchange": exchange, "routing_key": key, **fields}
        return self.call("queue.bind", **fields)

    def count(self, queue: str, ready: int | None = None) -> Heard:
        """Declare passively and write down the counts; with `ready`, when so many are ready.

        -1 waits until the queue is gone.

        RabbitMQ's queues answer this before what was sent to them earlier, so a count says
        nothing about a publish or a requeue but by being asked for again.
        """
        deadline = time.monotonic() + SETTLE_SECONDS_MAX
        while True:
            self.ensure()
            self.peer.send(raw.method(self.number, "queue.declare", queue=queue, passive=True))
            heard = self._reply()
            counted = heard.fields.get("message_count")
            if ready in (None, counted) or counted is None or time.monotonic() > deadline:
                self.note(f"count {heard}")
                return heard

    # -- messages

    def publish(
        self, exchange: str, key: str = "", body: str | bytes = "", *, mandatory: bool = False,
        immediate: bool = False, **properties: Any,
    ) -> None:  # fmt: skip
        """Publish a message."""
        self.ensure()
        data = body.encode() if isinstance(body, str) else body
        if self.confirming:
            self.published += 1
        self.peer.send(
            raw.publish(
                self.number, exchange, key, data, mandatory=mandatory, immediate=immediate,
                **properties,
            )
        )  # fmt: skip
        flags = " mandatory" * mandatory + " immediate" * immediate
        shown = f" {show_fields(properties)}" if properties else ""
        self.note(f"> basic.publish {exchange!r} {key!r} {show(data)}{flags}{shown}")

    def publish_many(self, count: int, exchange: str, key: str, body: str) -> None:
        """Publish a message so many times, in one line of the transcript."""
        self.ensure()
        self.peer.send(raw.publish(self.number, exchange, key, body.encode()) * count)
        self.note(f"> basic.publish {exchange!r} {key!r} {show(body.encode())} {count} times")

    def confirm(self) -> Heard:
        """Select confirms."""
        heard = self.call("confirm.select")
        self.confirming, self.published, self.verdicts = True, 0, {}
        return heard

    def get(self, queue: str = "", *, no_ack: bool = True) -> Heard:
        """Get a message."""
        return self.call("basic.get", queue=queue, no_ack=no_ack)

    def drain(self, queue: str) -> None:
        """Get all messages that are ready."""
        while self.get(queue).name == "basic.get-ok":
            pass

    def bodies(self, queue: str) -> None:
        """Get all messages that are ready and write down their bodies alone."""
        got = []
        while True:
            self.peer.send(raw.method(self.number, "basic.get", queue=queue, no_ack=True))
            heard = self._reply()
            if heard.name != "basic.get-ok":
                break
            got.append(heard.body.decode())
        self.note(f"{queue}: {' '.join(got)} ({heard.name})")

    def consume(self, queue: str = "", tag: str = "c", **fields: Any) -> Heard:
        """Start a consumer."""
        return self.call("basic.consume", queue=queue, consumer_tag=tag, **fields)

    def cancel(self, tag: str = "c") -> Heard:
        """Cancel a consumer."""
        return self.call("basic.cancel", consumer_tag=tag)

    def qos(self, count: int, *, overall: bool = False, size: int = 0) -> Heard:
        """Set the prefetch; `overall` is the flag `global`."""
        fields = {"prefetch_count": count, "prefetch_size": size, "global": overall}
        return self.call("basic.qos", **fields)

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        """Ack a delivery."""
        self.send("basic.ack", delivery_tag=tag, multiple=multiple)

    def nack(self, tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        """Nack a delivery."""
        self.send("basic.nack", delivery_tag=tag, multiple=multiple, requeue=requeue)

    def reject(self, tag: int, *, requeue: bool = True) -> None:
        """Reject a delivery."""
        self.send("basic.reject", delivery_tag=tag, requeue=requeue)
