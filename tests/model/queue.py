"""Queues and messages of the reference broker: one list, looked through each time."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.channel import Channel


@dataclass(frozen=True)
class Death:
    """One entry of x-death: how often a queue let the message go for this reason."""

    queue: str
    reason: str
    count: int
    second: int
    exchange: str
    keys: tuple[str, ...]
    expiration: str | None

    def entry(self) -> dict[str, Any]:
        """The entry as a table."""
        table: dict[str, Any] = {
            "count": self.count,
            "reason": self.reason,
            "queue": self.queue,
            "time": self.second,
            "exchange": self.exchange,
            "routing-keys": list(self.keys),
        }
        if self.expiration is not None:
            table["original-expiration"] = self.expiration
        return table


@dataclass(frozen=True, repr=False)
class Message:
    """A message.  `keys` are its routing key and those of CC; `hidden` those of BCC."""

    body: bytes
    exchange: str
    keys: tuple[str, ...]
    properties: dict[str, Any]
    hidden: tuple[str, ...] = ()
    deaths: tuple[Death, ...] = ()

    def __repr__(self) -> str:
        return f"{self.body[:12]!r} {self.exchange} {self.keys} {self.properties}"

    @property
    def persistent(self) -> bool:
        """Whether it stays over a restart."""
        return bool(self.properties.get("delivery_mode") == 2)

    @property
    def headers(self) -> dict[str, Any]:
        """Its headers."""
        headers: dict[str, Any] = self.properties.get("headers", {})
        return headers

    @property
    def delay_ms(self) -> int:
        """How long a delaying exchange keeps it."""
        return int(self.headers.get("x-delay", 0))

    def after_delay(self) -> Message:
        """The message when its delay is over: it is not delayed again; BCC counts once more."""
        headers = {**self.headers, "x-delay": -self.delay_ms}
        return replace(self, properties={**self.properties, "headers": headers})

    @property
    def expiration_ms(self) -> int | None:
        """How long it waits at most."""
        expiration = self.properties.get("expiration")
        return None if expiration is None else int(expiration)


@dataclass(eq=False)
class Entry:
    """A message in a queue.

    `count` is how often it came back, `failures` how often of these because a delivery failed,
    `uncertain` that a crash hides whether it was handed out.
    `tie` tells the entries that came in one moment from different queues: their order is open.
    """

    message: Message
    place: int
    priority: int
    expires_ms: int | None
    tie: tuple[int, str] | None = None
    count: int = 0
    failures: int = 0
    uncertain: bool = False
    out: bool = False
    holder: Consumer | None = None

    @property
    def redelivered(self) -> bool:
        """What its next delivery says of earlier ones."""
        return self.count > 0 or self.uncertain


@dataclass(eq=False)
class Consumer:
    """A consumer; `unacked` is how many deliveries it holds, `ended` that its channel ends."""

    tag: str
    channel: Channel
    queue: Queue
    no_ack: bool
    exclusive: bool
    prefetch: int
    priority: int
    unacked: int = 0
    ended: bool = False

    def ready(self) -> bool:
        """Whether it takes one more message."""
        if self.ended or self.no_ack:
            return not self.ended
        channel = self.channel
        return not (
            (self.prefetch and self.unacked >= self.prefetch)
            or (channel.prefetch and channel.consumed >= channel.prefetch)
        )


@dataclass(eq=False, repr=False)
class Queue:
    """A queue; `used_ms` is when a client last did what keeps an expiring queue."""

    name: str
    durable: bool
    auto_delete: bool
    owner: int | None
    arguments: dict[str, Any]
    used_ms: int
    entries: list[Entry] = field(default_factory=list)
    consumers: list[Consumer] = field(default_factory=list)
    active: Consumer | None = None
    next_place: int = 0
    deleted: bool = False

    def __repr__(self) -> str:
        bodies = [entry.message.body[:12] for entry in self.ready()]
        tags = [(one.tag, one.prefetch, one.unacked, one.channel.at) for one in self.consumers]
        text = f"{self.name} {self.arguments} ready={bodies} out={self.unacked_count()}"
        return f"{text} consumers={tags}"

    # -- what it was declared with

    def argument(self, name: str) -> int | None:
        """A number of its arguments."""
        value = self.arguments.get("x-" + name)
        return None if value is None else int(value)

    @property
    def overflow(self) -> str:
        """What happens to messages beyond its limits."""
        return str(self.arguments.get("x-overflow", "drop-head"))

    @property
    def single(self) -> bool:
        """Whether one consumer at a time is active."""
        return bool(self.arguments.get("x-single-active-consumer", False))

    @property
    def recorded(self) -> bool:
        """Whether it stays over a restart."""
        return self.durable and self.owner is None

    # -- its messages

    def ready(self) -> list[Entry]:
        """What waits, in the order in which it is handed out."""
        waiting = [entry for entry in self.entries if not entry.out]
        return sorted(waiting, key=lambda entry: (-entry.priority, entry.place))

    def heads(self) -> list[Entry]:
        """What may be handed out next: the first, or those that came with it from elsewhere."""
        ready = self.ready()
        heads = ready[:1]
        if heads and (tie := heads[0].tie) is not None:
            sources = {tie[1]}
            for entry in ready[1:]:
                if entry.tie is None or entry.tie[0] != tie[0]:
                    break
                if entry.tie[1] not in sources:
                    sources.add(entry.tie[1])
                    heads.append(entry)
        return heads

    def unacked_count(self) -> int:
        """How many messages are out."""
        return sum(entry.out for entry in self.entries)

    def overflows(self, extra: int = 0, extra_bytes: int = 0) -> bool:
        """Whether what waits, with so much more, is beyond a limit."""
        ready = self.ready()
        length, size = self.argument("max-length"), self.argument("max-length-bytes")
        held = sum(len(entry.message.body) for entry in ready)
        return (length is not None and len(ready) + extra > length) or (
            size is not None and held + extra_bytes > size
        )

    def entry_of(self, message: Message, now_ms: int, tie: tuple[int, str] | None) -> Entry:
        """Append a message."""
        limits = [one for one in (self.argument("message-ttl"), message.expiration_ms)
                  if one is not None]  # fmt: skip
        expires_ms = now_ms + min(limits) if limits else None
        highest = self.argument("max-priority")
        priority = min(message.properties.get("priority", 0), highest) if highest else 0
        entry = Entry(message, self.next_place, priority, expires_ms, tie)
        self.next_place += 1
        self.entries.append(entry)
        return entry

    # -- its consumers

    def takers(self) -> list[Consumer]:
        """The consumers of which one must get the next message."""
        candidates = self.consumers
        if self.single:
            # What another holds may come back, and belongs before what waits.
            held = any(entry.out and entry.holder is not self.active for entry in self.entries)
            candidates = [self.active] if self.active and not held else []
        ready = [consumer for consumer in candidates if consumer.ready()]
        highest = max((consumer.priority for consumer in ready), default=0)
        return [consumer for consumer in ready if consumer.priority == highest]

    def join(self, consumer: Consumer) -> None:
        """Add a consumer; the first is active until a higher one comes."""
        self.consumers.append(consumer)
        if self.active is None or consumer.priority > self.active.priority:
            self.active = consumer

    def leave(self, consumer: Consumer) -> None:
        """Take a consumer out; the highest of the others that came first is active after it."""
        self.consumers.remove(consumer)
        if self.active is consumer:
            ranked = sorted(self.consumers, key=lambda one: -one.priority)
            self.active = ranked[0] if ranked else None

    # -- what a stop leaves

    def kept(self) -> Queue:
        """A copy of what is on the disk."""
        kept = Queue(self.name, True, self.auto_delete, None, self.arguments, self.used_ms)
        kept.next_place = self.next_place
        kept.entries = [copy.copy(entry) for entry in self.entries if entry.message.persistent]
        for entry in kept.entries:
            entry.out = False
        return kept
