"""What the clients of the replayer do, and what a load is made of.

A load is data: queues, and names of acts (methods of `Acts`) with weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from leveret.broker.policies.policy import make_policy
from leveret.broker.users.users import User, hash_password
from leveret.store.disk import StorageFailure
from leveret.store.disks.recording import Image
from replay.account import Holding
from replay.drive import CONFIRM, KILLS, PLAIN, PLAIN_LIFE, TX, Drive, Life, Out, Sizes
from replay.ledger import Commit, offset_at, queue_there, there
from support.wire.raw_codec import method

SIZES = (3, 3, 3, 40, 40, 700, 5000)
SMALL = (3, 3, 40)
UNACKED_MAX = 40


@dataclass
class Load:
    """Queues with their arguments, bindings, and acts with their weights."""

    name: str
    queues: dict[str, dict[str, Any]]
    acts: dict[str, int]
    sizes: tuple[int, ...] = SIZES
    #: Queues that may let messages go by themselves.
    loose: tuple[str, ...] = ()
    #: Queues whose rejected messages go somewhere else.
    lettered: tuple[str, ...] = ()
    #: Queues that clients publish to; all when empty.
    targets: tuple[str, ...] = ()
    exchanges: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    bindings: tuple[tuple[str, str, str], ...] = ()
    limits: Sizes = field(default_factory=Sizes)
    #: The name under which streams are read, if any.
    reader: str = ""
    #: Whether what was recovered can be drained in order: nothing leaves by itself.
    drains: bool = True
    properties: Callable[[Acts], dict[str, Any]] = lambda acts: acts.plain()
    #: Who acts, where there is more to do than `Acts` knows.
    actor: type[Acts] | None = None

    def begin(self, seed: str, image: Image | None, start: Holding, mode: str = PLAIN_LIFE) -> Acts:
        """Return the clients of one life."""
        return (self.actor or Acts)(self, seed, image, start, mode)


class Acts(Drive):
    """What the clients of a load do."""

    def __init__(
        self, load: Load, seed: str, image: Image | None, start: Holding, mode: str = PLAIN_LIFE
    ) -> None:
        super().__init__(seed, image, start, load.limits, mode)
        self.load = load
        self.ledger.loose |= set(load.loose)

    def live(self, steps: int) -> Life:
        """Start, declare what the load needs, do so many acts, and end; or until the disk fails."""
        try:
            return self._live(steps)
        except StorageFailure as failure:
            return self.fail(failure)

    def _live(self, steps: int) -> Life:
        self._unless_killed(self.start_again)
        names = list(self.load.acts)
        weights = list(self.load.acts.values())
        for _ in range(steps):
            name = self.chance.choices(names, weights)[0]
            self.step(name)
            self._unless_killed(getattr(self, name))
            self._unless_killed(self.hum)
        self.step("the end")
        self._unless_killed(self.finish)
        return self.end()

    def _unless_killed(self, act: Callable[[], None]) -> None:
        """Do something; where the process is killed meanwhile, start again."""
        try:
            act()
        except StorageFailure:
            if self.mode != KILLS:
                raise
            self.killed()

    def finish(self) -> None:
        """Do what is to be done before the end."""

    def start_again(self) -> None:
        """Start again after a kill, with what the load needs."""
        self.start_machine()
        self.set_up()

    def set_up(self) -> None:
        """Declare what the load needs; what is there already stays."""
        for name, (kind, arguments) in self.load.exchanges.items():
            self.ask(
                self.publisher, CONFIRM, "exchange.declare", exchange=name, type=kind,
                durable=True, arguments=arguments,
            )  # fmt: skip
        for name in self.load.queues:
            self.declare(name)
        for source, key, queue in self.load.bindings:
            self.bind(source, key, queue)

    def let_go(self, outs: list[Out]) -> None:
        """Note that a client is about to let messages go; a stream keeps them."""
        super().let_go([out for out in outs if not self.is_stream(out.place[0])])

    def is_stream(self, queue: str) -> bool:
        """Tell whether a queue of the load is a stream."""
        return self.load.queues[queue].get("x-queue-type") == "stream"

    def declare(self, name: str) -> None:
        """Declare one of the load's queues."""
        at, _ = self.ask(
            self.publisher, CONFIRM, "queue.declare", queue=name, durable=True,
            arguments=self.load.queues[name],
        )  # fmt: skip
        self.ledger.promised.append((at, f"declare of '{name}'", queue_there(name, True)))

    def bind(self, source: str, key: str, queue: str) -> None:
        """Bind a queue."""
        at, _ = self.ask(
            self.publisher, CONFIRM, "queue.bind", exchange=source, routing_key=key, queue=queue
        )
        one = ("binding", "/", source, "queue", queue, key, "[]")
        self.ledger.promised.append((at, f"binding of '{queue}'", there(one)))

    # -- properties --------------------------------------------------------------------------------

    def plain(self) -> dict[str, Any]:
        """Properties of most messages."""
        found: dict[str, Any] = {"delivery_mode": 2 if self.chance.random() < 0.9 else 1}
        if self.chance.random() < 0.2:
            found["headers"] = {"h": self.chance.randint(0, 9)}
        return found

    def kept(self) -> dict[str, Any]:
        """Properties of messages that are all persistent."""
        return {"delivery_mode": 2}

    def some_priority(self) -> dict[str, Any]:
        return {**self.kept(), "priority": self.chance.randint(0, 6)}

    def some_expiry(self) -> dict[str, Any]:
        if self.chance.random() < 0.5:
            return self.kept()
        return {**self.kept(), "expiration": str(self.chance.choice((0, 40, 900)))}

    def some_delay(self) -> dict[str, Any]:
        delay_ms = self.chance.choice((1, 60, 800, 100_000))
        return {**self.kept(), "headers": {"x-delay": delay_ms}}

    def some_number(self) -> dict[str, Any]:
        """Properties of a message with a new number."""
        publisher = self.chance.choice(("ann", "bob", "joe"))
        number = {"x-publisher": publisher, "x-publishing-id": self.number + 1}
        return {**self.kept(), "headers": number}

    # -- publishing --------------------------------------------------------------------------------

    def targets(self) -> list[str]:
        """Return the queues that are there and may be published to."""
        names = self.load.targets or tuple(self.load.queues)
        return [name for name in names if name in self.machine.vhost.queues.by_name]

    def send(self, channel: int = CONFIRM) -> int | None:
        """Publish a message to one of the queues."""
        targets = self.targets()
        if not targets:
            return None
        size = self.chance.choice(self.load.sizes)
        key = self.chance.choice(targets)
        return self.publish("", key, size, channel=channel, **self.load.properties(self))

    def publish_one(self) -> None:
        self.send()

    def publish_some(self) -> None:
        for _ in range(self.chance.randint(3, 12)):
            self.send()

    def publish_again(self) -> None:
        """Publish with numbers that were used before, as after a crash of the publisher."""
        properties = self.some_number()
        again = self.chance.randint(0, self.number)
        for number in range(again, min(again + 4, self.number + 1)):
            headers = {**properties["headers"], "x-publishing-id": number}
            key = self.chance.choice(self.targets())
            self.publish("", key, 3, **{**properties, "headers": headers})

    def publish_wide(self) -> None:
        """Publish to all queues bound to the first exchange."""
        exchange = next(iter(self.load.exchanges))
        key = self.chance.choice(("a", "b"))
        size = self.chance.choice(self.load.sizes)
        self.publish(exchange, key, size, **self.load.properties(self))

    # -- consuming ---------------------------------------------------------------------------------

    def a_queue(self) -> str | None:
        there = [name for name in self.load.queues if name in self.machine.vhost.queues.by_name]
        return self.chance.choice(there) if there else None

    def consume(self) -> None:
        """Begin to consume from a queue, or end it."""
        queue = self.a_queue()
        if queue is None:
            return
        if queue in self.consuming:
            self.consuming.discard(queue)
            at, _ = self.ask(self.consumer, PLAIN, "basic.cancel", consumer_tag=queue)
            if self.load.reader:
                self.promise_offset(at, queue)
            return
        stream = self.is_stream(queue)
        self.ask(self.consumer, PLAIN, "basic.qos", prefetch_count=self.chance.randint(1, 9))
        self.consuming.add(queue)
        arguments = {"x-stream-offset": self.chance.choice(("first", "next"))} if stream else {}
        if self.load.reader:
            arguments["x-stream-consumer"] = self.load.reader
        self.ask(
            self.consumer, PLAIN, "basic.consume", queue=queue, consumer_tag=queue,
            arguments=arguments,
        )  # fmt: skip

    def promise_offset(self, at: int, queue: str) -> None:
        """Note where a named consumer that was cancelled begins the next time.

        It is the first message that it holds, or else beyond all that it was ever given.
        """
        held = [out.offset for out in self.out if out.place[0] == queue and out.offset is not None]
        seen = self.ledger.seen[self.seen_before :]
        given = [offset for _, stream, offset in seen if stream == queue]
        if held:
            least = most = min(held)
        else:
            least, most = max(given[-1:], default=-1) + 1, 1 << 60
        holds = offset_at(queue, self.load.reader, least, most)
        self.ledger.promised.append((at, f"the offset of '{queue}'", holds))

    def get(self) -> None:
        """Get a message, to be acked later or not at all."""
        queue = self.a_queue()
        if queue is None or len(self.out) > UNACKED_MAX:
            return
        no_ack = self.chance.random() < 0.2
        self.get_from(queue, PLAIN, no_ack)

    def get_from(self, queue: str, channel: int, no_ack: bool) -> Out | None:
        """Get a message from a queue by a channel."""
        peer = self.publisher if channel == TX else self.consumer
        _, got = self.ask(peer, channel, "basic.get", queue=queue, no_ack=no_ack)
        if got.name == "basic.get-empty":
            return None
        out = Out(peer, channel, got.delivery_tag, (queue, self.number_in(got.body)))
        if no_ack:
            self.let_go([out])
            return None
        self.out.append(out)
        return out

    @staticmethod
    def number_in(body: bytes) -> int:
        return int(body[: body.index(b":")])

    def settled_here(self) -> list[Out]:
        """Return what may be settled outside of transactions."""
        return [out for out in self.out if out.channel != TX]

    def ack_one(self) -> None:
        outs = self.settled_here()
        if outs:
            self.ack(self.chance.choice(outs))

    def ack_most(self) -> None:
        """Ack all but a few, in any order."""
        outs = self.settled_here()
        self.chance.shuffle(outs)
        for out in outs[self.chance.randint(0, 3) :]:
            self.ack(out)

    def ack_multiple(self) -> None:
        """Ack all up to one of them."""
        outs = self.settled_here()
        if not outs:
            return
        last = self.chance.choice(outs)
        gone = [out for out in outs if out.tag <= last.tag and out.peer is last.peer]
        self.let_go(gone)
        self.out = [out for out in self.out if out not in gone or out is last]
        self.settle(last, "basic.ack", multiple=True)

    def drain_some(self) -> None:
        """Get and ack some messages of one queue at once."""
        queue = self.a_queue()
        for _ in range(self.chance.randint(2, 15)):
            out = self.get_from(queue, PLAIN, False) if queue is not None else None
            if out is not None:
                self.ack(out)

    def reject(self) -> None:
        outs = self.settled_here()
        if outs:
            out = self.chance.choice(outs)
            if out.place[0] not in self.load.lettered:
                self.let_go([out])
            self.settle(out, "basic.reject")

    def requeue(self) -> None:
        outs = self.settled_here()
        if outs:
            self.settle(self.chance.choice(outs), "basic.nack", requeue=True)

    def lose_consumer(self) -> None:
        """Lose the consuming connection: what is out goes back."""
        self.listen()
        self.consumer.lose()
        self.out = [out for out in self.out if out.channel == TX]
        self.connect_consumer()

    def purge(self) -> None:
        queue = self.a_queue()
        if queue is not None:
            self.ledger.loose.add(queue)
            self.ask(self.publisher, CONFIRM, "queue.purge", queue=queue)

    # -- transactions ------------------------------------------------------------------------------

    def transaction(self) -> None:
        """Publish and ack some, then commit or roll back."""
        outs: list[Out] = []
        for _ in range(self.chance.randint(0, 3)):
            queue = self.a_queue()
            out = self.get_from(queue, TX, False) if queue is not None else None
            if out is not None:
                outs.append(out)
        numbers = [self.send(TX) for _ in range(self.chance.choice((0, 1, 2, 3, 8)))]
        rollback = self.chance.random() < 0.25
        acked = outs[: self.chance.randint(0, len(outs))]
        if not rollback:
            self.let_go(acked)
        for out in acked:
            self.settle(out, "basic.ack")
        if rollback:
            self.ask(self.publisher, TX, "tx.rollback")
        else:
            at, _ = self.ask(self.publisher, TX, "tx.commit")
            sent = [number for number in numbers if number is not None]
            self.ledger.committed.append((at, Commit(sent, [out.place for out in acked])))
        for out in [out for out in self.out if out.channel == TX]:
            self.out.remove(out)
            out.peer.send(method(TX, "basic.reject", delivery_tag=out.tag, requeue=True))
        self.ask(self.publisher, TX, "tx.commit")

    # -- definitions -------------------------------------------------------------------------------

    def declare_or_delete(self) -> None:
        """Declare a queue that is not there, or delete one that is."""
        name = self.chance.choice(list(self.load.queues))
        if name not in self.machine.vhost.queues.by_name:
            self.declare(name)
            return
        self.ledger.loose.add(name)
        self.out = [out for out in self.out if out.place[0] != name]
        self.consuming.discard(name)
        at, _ = self.ask(self.publisher, CONFIRM, "queue.delete", queue=name)
        self.ledger.promised.append((at, f"delete of '{name}'", queue_there(name, False)))

    def exchange(self) -> None:
        """Declare an exchange or delete it."""
        name = self.chance.choice(("x1", "x2"))
        one = ("exchange", "/", name)
        if name in self.machine.vhost.exchanges.by_name:
            at, _ = self.ask(self.publisher, CONFIRM, "exchange.delete", exchange=name)
            gone = there(one)
            self.ledger.promised.append((at, f"delete of {name}", lambda held: not gone(held)))
            return
        kind = self.chance.choice(("fanout", "direct"))
        at, _ = self.ask(
            self.publisher, CONFIRM, "exchange.declare", exchange=name, type=kind, durable=True
        )
        self.ledger.promised.append((at, f"declare of {name}", there(one)))

    def bind_or_unbind(self) -> None:
        queue = self.a_queue()
        sources = [name for name in ("x1", "x2") if name in self.machine.vhost.exchanges.by_name]
        if queue is None or not sources:
            return
        source, key = self.chance.choice(sources), self.chance.choice(("a", "b"))
        if self.chance.random() < 0.6:
            self.bind(source, key, queue)
            return
        at, _ = self.ask(
            self.publisher, CONFIRM, "queue.unbind", exchange=source, routing_key=key, queue=queue
        )
        one = there(("binding", "/", source, "queue", queue, key, "[]"))
        self.ledger.promised.append((at, f"unbind of '{queue}'", lambda held: not one(held)))

    def publish_bound(self) -> None:
        """Publish by an exchange that may be bound to several queues."""
        sources = [name for name in ("x1", "x2") if name in self.machine.vhost.exchanges.by_name]
        if sources:
            source, key = self.chance.choice(sources), self.chance.choice(("a", "b"))
            self.publish(source, key, 30, **self.load.properties(self))

    def policy(self) -> None:
        """Set a policy, or clear it, as the HTTP API does; only loose queues get a low limit."""
        vhost = self.machine.vhost
        name = self.chance.choice(("p1", "p2"))
        if name in vhost.policies.by_name:
            vhost.policies.clear(name)
        else:
            most = self.chance.randint(5, 60) if self.load.loose else 100_000 + self.number
            definition: dict[str, object] = {"max-length": most}
            vhost.policies.set(make_policy(name, "^q", definition, 0, "queues"))
        self._operated(("policy", "/", name), name in vhost.policies.by_name)

    def user(self) -> None:
        """Add a user with a permission, or delete him, as the HTTP API does."""
        users = self.machine.broker.users
        name = self.chance.choice(("ann", "bob"))
        if name in users.by_name:
            users.delete(name)
        else:
            users.put(User(name, hash_password(b"salt", name.encode()), []))
            users.set_permission(name, "/", "^a", ".*", "")
        self._operated(("user", name), name in users.by_name)

    def vhost(self) -> None:
        """Add a vhost with a queue, or delete it with all in it."""
        broker = self.machine.broker
        if "other" in broker.vhosts:
            broker.delete_vhost("other")
        else:
            broker.add_vhost("other")
            broker.users.set_permission("guest", "other", ".*", ".*", ".*")
        self._operated(("vhost", "other"), "other" in broker.vhosts)

    def _operated(self, one: tuple[str, ...], expected: bool) -> None:
        """Wait for the sync, as an operator's request does, and note what was promised."""
        self.sync()
        at = self.machine.trace_length()
        found = there(one)
        self.ledger.promised.append((at, str(one), lambda held: found(held) == expected))

    # -- the machine -------------------------------------------------------------------------------

    def rest(self) -> None:
        """Sync all."""
        self.sync()

    def wait(self) -> None:
        """Let time pass."""
        self.machine.tick(self.chance.choice((10, 100, 1000)))
        self.listen()

    def checkpoint(self) -> None:
        """Take a whole checkpoint."""
        self.machine.take_checkpoint()
        self.listen()

    def stop_or_kill(self) -> None:
        self.listen()
        self.restart()
        self.set_up()
