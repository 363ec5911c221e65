"""Rules that do the same to a broker in memory and to the reference, and compare after each.

A step is one method of a client (or a few publishes at once), a moment that passes, or something
that happens to the disk or the process.  Groups are sealed and written by rules of their own,
checkpoints go on in slices between other steps, and a crash keeps any legal part of what was not
synced: the recovery says with which group the journal ends, and the reference goes on from the copy
that was made when that group was sealed.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from leveret.store.disks.recording import Image, RecordingDisk
from model import strategies as some
from model.exchange import TYPE_ARGUMENTS, Binding, Exchange
from model.heard import At, Difference
from model.queue import Consumer, Message, Queue
from model.reference import Reference
from support.node.core import Node, Peer
from support.wire.raw_codec import method, publish

PLAIN, CONFIRM, TX = 1, 2, 3
MODES = {PLAIN: "", CONFIRM: "confirm", TX: "tx"}
CONNECTIONS = 2
AT = st.tuples(st.integers(0, CONNECTIONS - 1), st.sampled_from(sorted(MODES)))

Body = TypeVar("Body", bound=Callable[..., None])


@dataclass(frozen=True)
class Step:
    """A rule: how often it is taken, what it draws, and when it has any effect."""

    weight: int
    draws: st.SearchStrategy[dict[str, Any]]
    when: Callable[[Machine], bool]
    body: Callable[..., None]


#: The rules by their names.
STEPS: dict[str, Step] = {}


def always(machine: Machine) -> bool:
    """Have an effect at any time."""
    return True


def messages_out(machine: Machine) -> bool:
    """Have an effect while something is out."""
    return any(channel.unacked for channel in machine.model.channels.values())


def group_sealed(machine: Machine) -> bool:
    """Have an effect while a group is to be written."""
    return machine.node.group is not None


def step(
    weight: int, *, when: Callable[[Machine], bool] = always, **draws: st.SearchStrategy[Any]
) -> Callable[[Body], Body]:
    """A rule of this weight.

    Hypothesis leaves whole rules out of a run and takes all others as often as each other, so that
    few messages would ever be published; here publishing is worth more steps than deleting.
    """

    def named(body: Body) -> Body:
        STEPS[body.__name__] = Step(weight, st.fixed_dictionaries(draws), when, body)
        return body

    return named


class Machine(RuleBasedStateMachine):
    """A broker, its reference, and two clients of three channels each."""

    #: How often each rule ran, over all runs.
    steps: ClassVar[Counter[str]] = Counter()
    #: What the steps are drawn from.
    seed: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.model = Reference(self.node.clock.wall_ms())
        self.copies: dict[int, Reference] = {}
        self.number = 0
        self.peers: list[Peer] = []

    @initialize(data=st.data())
    def start(self, data: st.DataObject) -> None:
        """Connect, and define enough that most steps have an effect."""
        self.connect()
        at = (0, PLAIN)
        for exchange in some.FIRST_EXCHANGES:
            self.make_exchange(at, exchange)
        for name in some.QUEUE_NAMES:
            self.declare_as(at, name, data.draw(some.FIRST_VARIANTS, label=name))
            self.bind_to(at, Binding("amq.fanout", True, name, ""))
        self.bind_to(at, Binding("delayed1", True, "q1", "#"))

    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        """Take a step, a moment after the one before."""
        self.pass_to(self.model.now_ms + 1)
        while self.model.on_edge():
            self.pass_to(self.model.now_ms + 1)
        # The heaviest first: hypothesis takes what stands first more often than the rest.
        steps = sorted(STEPS.items(), key=lambda item: -item[1].weight)
        names = [name for name, one in steps if one.when(self) for _ in range(one.weight)]
        name = data.draw(st.sampled_from(names), label="step")
        Machine.steps[name] += 1
        STEPS[name].body(self, **data.draw(STEPS[name].draws, label=name))

    def connect(self) -> None:
        """Connect all clients to a broker that has just started."""
        self.node.sealed = self.seal_noted
        self.copies = {int(self.node.journal.durable_group): self.model.kept()}
        self.peers = [self.connect_one(number) for number in range(CONNECTIONS)]

    def connect_one(self, number: int) -> Peer:
        """Connect one client and open its channels."""
        peer = self.node.connect(*MODES)
        for channel in MODES:
            self.model.open((number, channel))
            self.select(peer, (number, channel))
        return peer

    def select(self, peer: Peer, at: At) -> None:
        """Have a channel confirm or transact, as its number says."""
        mode = MODES[at[1]]
        if mode:
            peer.send(method(at[1], f"{mode}.select"))
            self.model.heard.add(at[0], peer.take())
            self.model.select(at, mode)

    # -- doing -------------------------------------------------------------------------------------

    def do(self, at: At, command: Callable[[], None], *data: bytes) -> None:
        """Send bytes, have the reference do what they mean, and compare."""
        self.peers[at[0]].send(*data)
        self.listen()
        command()
        self.finish()
        if at not in self.model.channels:
            self.reopen(at)

    def call(self, at: At, command: Callable[[], None], name: str, **values: Any) -> None:
        """Send one method, and so on."""
        self.do(at, command, method(at[1], name, **values))

    def listen(self) -> None:
        """Note what all clients heard."""
        for number, peer in enumerate(self.peers):
            self.model.heard.add(number, peer.take())

    def finish(self) -> None:
        """End a step: replies may wait for a sync, and then all must be told."""
        if self.model.awaited:
            # What is sealed holds the end of all that was handed out without an ack to come.
            self.model.hand_out()
            self.node.sync()
            self.model.synced()
            self.listen()
            self.model.answer_awaited()
        self.model.finish()
        self.compare()

    def reopen(self, at: At) -> None:
        """Answer the close of a channel and open it anew."""
        peer = self.peers[at[0]]
        peer.send(method(at[1], "channel.close-ok"), method(at[1], "channel.open"))
        peer.expect(at[1], "channel.open-ok")
        self.model.open(at)
        self.select(peer, at)

    def compare(self) -> None:
        """Compare queues, their counts and the exchanges."""
        model, vhost = self.model, self.node.vhost
        found = {
            name: (int(queue.ready_count()), int(queue.unacked_count), len(queue.consumers))
            for name, queue in vhost.queues.by_name.items()
        }
        expected = {
            name: (len(queue.ready()), queue.unacked_count(), len(queue.consumers))
            for name, queue in model.queues.items()
        }
        if found != expected:
            raise Difference(f"queues (ready, unacked, consumers): {found}, expected {expected}")
        exchanges = {name for name in vhost.exchanges.by_name if name in model.exchanges or
                     not name.startswith("amq.")}  # fmt: skip
        if exchanges != {"", *model.exchanges}:
            raise Difference(f"exchanges: {exchanges}, expected {set(model.exchanges)}")

    # -- definitions -------------------------------------------------------------------------------

    @step(3, at=AT, name=some.QUEUES, variant=some.VARIANTS, anew=st.sampled_from([0, 0, 0, 1]))
    def declare(self, at: At, name: str, variant: some.Variant, anew: int) -> None:
        there = self.model.queues.get(name)
        if there is not None and not anew:
            variant = some.Variant(
                there.durable, there.auto_delete, there.owner is not None, there.arguments
            )
        self.declare_as(at, name, variant)

    def declare_as(self, at: At, name: str, variant: some.Variant) -> None:
        """Declare a queue."""
        wanted = Queue(
            name, variant.durable, variant.auto_delete, at[0] if variant.exclusive else None,
            variant.arguments, self.model.now_ms,
        )  # fmt: skip
        self.call(
            at, lambda: self.model.declare(at, wanted), "queue.declare", queue=name,
            **vars(variant),
        )  # fmt: skip

    @step(1, at=AT, name=some.QUEUES)
    def declare_passive(self, at: At, name: str) -> None:
        wanted = Queue(name, False, False, None, {}, 0)
        self.call(
            at, lambda: self.model.declare(at, wanted, passive=True), "queue.declare", queue=name,
            passive=True,
        )  # fmt: skip

    @step(1, at=AT, name=some.QUEUES, condition=st.sampled_from(["", "if_unused", "if_empty"]))
    def delete(self, at: At, name: str, condition: str) -> None:
        conditions = {condition: True} if condition else {}
        self.call(
            at, lambda: self.model.delete(at, name, **conditions), "queue.delete", queue=name,
            **conditions,
        )  # fmt: skip

    @step(1, at=AT, name=some.QUEUES)
    def purge(self, at: At, name: str) -> None:
        self.call(at, lambda: self.model.purge(at, name), "queue.purge", queue=name)

    @step(2, at=AT, exchange=some.NEW_EXCHANGES)
    def declare_exchange(self, at: At, exchange: Exchange) -> None:
        self.make_exchange(at, exchange)

    def make_exchange(self, at: At, exchange: Exchange) -> None:
        """Declare an exchange."""
        arguments = {"alternate-exchange": exchange.alternate} if exchange.alternate else {}
        arguments |= TYPE_ARGUMENTS.get(exchange.kind, {})
        exchange = replace(exchange, bindings=[], history=[])
        self.call(
            at, lambda: self.model.declare_exchange(at, exchange), "exchange.declare",
            exchange=exchange.name, type=exchange.kind, durable=exchange.durable,
            auto_delete=exchange.auto_delete, internal=exchange.internal, arguments=arguments,
        )  # fmt: skip

    @step(1, at=AT, name=some.OWN_EXCHANGES)
    def delete_exchange(self, at: At, name: str) -> None:
        self.call(
            at, lambda: self.model.delete_exchange(at, name), "exchange.delete", exchange=name
        )

    @step(4, at=AT, binding=some.BINDINGS)
    def bind(self, at: At, binding: Binding) -> None:
        self.bind_to(at, binding)

    def bind_to(self, at: At, binding: Binding) -> None:
        """Make a binding."""
        name, values = wire_binding(binding)
        self.call(at, lambda: self.model.bind(at, binding), f"{name}.bind", **values)

    @step(2, at=AT, name=some.QUEUES, key=some.KEYS)
    def bind_to_history(self, at: At, name: str, key: str) -> None:
        self.bind_to(at, Binding("history1", True, name, key))

    @step(1, at=AT, data=st.data())
    def unbind(self, at: At, data: st.DataObject) -> None:
        made = [one for exchange in self.model.exchanges.values() for one in exchange.bindings]
        if made:
            binding = data.draw(st.sampled_from(made))
            name, values = wire_binding(binding)
            self.call(at, lambda: self.model.unbind(at, binding), f"{name}.unbind", **values)

    # -- messages ----------------------------------------------------------------------------------

    @step(20, at=AT, address=some.TARGETS, properties=some.PROPERTIES,
          count=st.sampled_from([1, 1, 3]), size=some.SIZES,
          mandatory=st.sampled_from([False, False, True]))  # fmt: skip
    def publish(
        self, at: At, address: tuple[str, str], properties: dict[str, Any], count: int, size: int,
        mandatory: bool,
    ) -> None:  # fmt: skip
        self.publish_some(at, address, properties, [size] * count, mandatory=mandatory)

    @step(3, at=AT, key=some.KEYS, properties=some.PROPERTIES, delay_ms=some.DELAYS)
    def publish_later(self, at: At, key: str, properties: dict[str, Any], delay_ms: int) -> None:
        headers = {**properties.get("headers", {}), "x-delay": delay_ms}
        self.publish_some(at, ("delayed1", key), {**properties, "headers": headers}, [10])

    def publish_some(
        self, at: At, address: tuple[str, str], properties: dict[str, Any], sizes: list[int], *,
        mandatory: bool = False,
    ) -> None:  # fmt: skip
        """Publish messages at once."""
        exchange, key = address
        if exchange:
            exchange = self.mostly_there(exchange, self.model.exchanges)
        else:
            key = self.mostly_there(key, self.model.queues)
        messages = [self.message(exchange, key, properties, size) for size in sizes]
        data = [
            publish(at[1], exchange, key, one.body, mandatory=mandatory, **properties)
            for one in messages
        ]

        def command() -> None:
            for one in messages:
                if at in self.model.channels:
                    self.model.publish(at, one, mandatory=mandatory)
            self.model.bury()

        self.do(at, command, *data)

    def mostly_there(self, name: str, among: Collection[str]) -> str:
        """A name, or in its place mostly one that is there: else its channel closes by 404."""
        if name in among or not among or self.number % 8 == 0:
            return name
        return sorted(among)[self.number % len(among)]

    def message(self, exchange: str, key: str, properties: dict[str, Any], size: int) -> Message:
        """A message whose body no other has."""
        self.number += 1
        headers = dict(properties.get("headers", {}))
        hidden = tuple(headers.pop("BCC", ()))
        keys = (key, *headers.get("CC", ()))
        if "headers" in properties:
            properties = {**properties, "headers": headers}
        return Message(b"%d." % self.number + bytes(size), exchange, keys, properties, hidden)

    @step(10, at=AT, name=some.QUEUES, no_ack=st.sampled_from([False, False, True]))
    def get(self, at: At, name: str, no_ack: bool) -> None:
        name = self.mostly_there(name, self.model.queues)
        self.call(
            at, lambda: self.model.get(at, name, no_ack=no_ack), "basic.get", queue=name,
            no_ack=no_ack,
        )  # fmt: skip

    @step(8, at=AT, name=some.QUEUES, no_ack=st.sampled_from([False, False, True]),
          exclusive=st.sampled_from([False] * 5 + [True]),
          priority=some.CONSUMER_PRIORITIES)  # fmt: skip
    def consume(self, at: At, name: str, no_ack: bool, exclusive: bool, priority: int) -> None:
        name = self.mostly_there(name, self.model.queues)
        self.number += 1
        tag = f"c{self.number}"
        nowhere = Queue(name, False, False, None, {}, 0)
        consumer = Consumer(tag, self.model.channels[at], nowhere, no_ack, exclusive, 0, priority)
        self.call(
            at, lambda: self.model.consume(at, name, consumer), "basic.consume", queue=name,
            consumer_tag=tag, no_ack=no_ack, exclusive=exclusive,
            arguments={"x-priority": priority} if priority else {},
        )  # fmt: skip

    @step(2, at=AT, data=st.data())
    def cancel(self, at: At, data: st.DataObject) -> None:
        tags = ["unknown", *self.model.channels[at].consumers]
        tag = data.draw(st.sampled_from(tags[-3:]))
        self.call(at, lambda: self.model.cancel(at, tag), "basic.cancel", consumer_tag=tag)

    @step(3, at=AT, count=st.integers(0, 3), all_together=st.sampled_from([False, False, True]))
    def qos(self, at: At, count: int, all_together: bool) -> None:
        self.call(
            at, lambda: self.model.qos(at, count, all_together=all_together), "basic.qos",
            prefetch_count=count, **{"global": all_together},
        )  # fmt: skip

    @step(24, when=messages_out, data=st.data(),
          how=st.sampled_from(["ack", "reject", "requeue", "requeue"]),
          multiple=st.booleans())  # fmt: skip
    def settle(self, data: st.DataObject, how: str, multiple: bool) -> None:
        busy = [at for at, channel in self.model.channels.items() if channel.unacked]
        at = data.draw(st.sampled_from(busy))
        tag = data.draw(st.sampled_from(sorted(self.model.channels[at].unacked)))
        self.settle_one(at, tag, multiple=multiple, how=how)

    @step(1, data=st.data(), how=st.sampled_from(["ack", "reject", "requeue"]))
    def settle_all(self, data: st.DataObject, how: str) -> None:
        at = data.draw(st.sampled_from(sorted(self.model.channels)))
        self.settle_one(at, 0, multiple=True, how=how)

    @step(1, at=AT, ahead=st.sampled_from([-1, 0, 0, 1]), multiple=st.booleans(),
          how=st.sampled_from(["ack", "reject", "requeue"]))  # fmt: skip
    def settle_unknown(self, at: At, ahead: int, multiple: bool, how: str) -> None:
        tag = self.model.channels[at].last_tag + ahead
        if tag > 0 and tag not in self.model.channels[at].unacked:
            self.settle_one(at, tag, multiple=multiple, how=how)

    def settle_one(self, at: At, tag: int, *, multiple: bool, how: str) -> None:
        """Settle by the method that fits."""
        is_nack = multiple or tag % 2
        outcome = "fail" if how == "requeue" and not is_nack else how
        command = functools.partial(self.model.settle, at, tag, multiple=multiple, how=outcome)
        if how == "ack":
            self.call(at, command, "basic.ack", delivery_tag=tag, multiple=multiple)
        elif is_nack:
            self.call(
                at, command, "basic.nack", delivery_tag=tag, multiple=multiple,
                requeue=how == "requeue",
            )  # fmt: skip
        else:
            self.call(at, command, "basic.reject", delivery_tag=tag, requeue=how == "requeue")

    @step(2, at=AT)
    def recover(self, at: At) -> None:
        self.call(at, lambda: self.model.recover(at), "basic.recover", requeue=True)

    @step(5, number=st.integers(0, CONNECTIONS - 1), rollback=st.sampled_from([False, False, True]))
    def end_transaction(self, number: int, rollback: bool) -> None:
        at = (number, TX)
        if rollback:
            self.call(at, lambda: self.model.rollback(at), "tx.rollback")
        else:
            self.call(at, lambda: self.model.commit(at), "tx.commit")

    # -- ends of channels and connections ----------------------------------------------------------

    @step(1, at=AT)
    def close_channel(self, at: At) -> None:
        def command() -> None:
            self.model.answer(at, "channel.close-ok")
            self.model.release([at])

        self.peers[at[0]].send(method(at[1], "channel.close", code=200))
        self.listen()
        command()
        self.finish()
        self.peers[at[0]].call(at[1], "channel.open")
        self.model.open(at)
        self.select(self.peers[at[0]], at)

    @step(1, number=st.integers(0, CONNECTIONS - 1), close=st.booleans())
    def end_connection(self, number: int, close: bool) -> None:
        peer = self.peers[number]
        if close:
            peer.send(method(0, "connection.close", code=200))
            peer.expect(0, "connection.close-ok")
        peer.lose()
        self.listen()
        self.model.lose(number)
        self.finish()
        self.peers[number] = self.connect_one(number)

    # -- time --------------------------------------------------------------------------------------

    @step(6, by_ms=some.MOMENTS)
    def pass_time(self, by_ms: int) -> None:
        end_ms = self.model.now_ms + by_ms
        while True:
            due = [one for one in self.model.deadlines() if self.model.now_ms < one <= end_ms]
            self.pass_to(min(due, default=end_ms))
            if self.model.now_ms >= end_ms:
                return

    def pass_to(self, moment_ms: int) -> None:
        """Let the next moment come at which something happens."""
        self.node.tick(moment_ms - self.model.now_ms)
        self.listen()
        self.model.pass_time(moment_ms)
        self.finish()

    # -- the disk and the process ------------------------------------------------------------------

    def seal_noted(self, group: int) -> None:
        """Keep what the disk will hold when `group` is on it."""
        self.model.sealed()
        self.copies[group] = self.model.kept()

    def seal_passed(self, group: int) -> None:
        """Keep nothing: the process ends in order."""

    @step(4)
    def seal(self) -> None:
        self.node.begin_sync()
        self.listen()
        self.finish()

    @step(12, when=group_sealed)
    def write(self) -> None:
        self.node.write()
        self.node.end_sync()
        self.model.synced()
        self.listen()
        self.finish()

    @step(3, items=st.integers(1, 6))
    def checkpoint(self, items: int) -> None:
        self.node.step_checkpoint(items)
        self.listen()
        self.finish()

    @step(1)
    def whole_checkpoint(self) -> None:
        self.node.take_checkpoint()
        self.model.synced()
        self.listen()
        self.finish()

    @step(1, seed=st.integers(0, 1 << 16))
    def crash(self, seed: int) -> None:
        """Lose the process, and any legal part of what was not synced."""
        draw = random.Random(seed)
        if self.node.group is not None and draw.randrange(2):
            # The group is written and perhaps synced, and the core has not heard of it.
            self.node.write()
        durable = int(self.node.journal.durable_group)
        self.restart(draw.choice(self.node.crashed(draw.randrange)))
        found = int(self.node.report.next_group) - 1
        if found < durable:
            raise Difference(f"group {durable} was synced, recovered was {found}")
        self.model = self.copies[found]
        self.go_on(clean=False)

    @step(1)
    def stop(self) -> None:
        """Stop in order."""
        if self.node.group is not None:
            self.node.write()
            self.node.end_sync()
        self.node.sealed = self.seal_passed
        image = self.node.stop()
        self.model.release(list(self.model.channels))
        self.restart(image)
        if not self.node.report.clean_stop:
            raise Difference("the stop was in order")
        self.model = self.model.kept()
        self.go_on(clean=True)

    def restart(self, image: Image) -> None:
        """Start on what a stop left."""
        self.node = Node(RecordingDisk(image), clock=self.node.clock)
        if self.node.report.damages or self.node.orphaned:
            raise Difference(f"damage: {self.node.report.damages} {self.node.orphaned}")

    def go_on(self, *, clean: bool) -> None:
        """Work on with the new process."""
        self.model.started(self.node.clock.wall_ms(), clean=clean)
        self.compare()
        self.connect()
        self.finish()


def wire_binding(binding: Binding) -> tuple[str, dict[str, Any]]:
    """The class and the arguments of a bind."""
    values = {"routing_key": binding.key, "arguments": dict(binding.arguments)}
    if binding.to_queue:
        return "queue", {"queue": binding.destination, "exchange": binding.source, **values}
    return "exchange", {"destination": binding.destination, "source": binding.source, **values}
