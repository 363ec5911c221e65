"""The reference broker: what RabbitMQ's documentation says, as plainly as it can be written.

Its methods do what a client's methods do and claim what must be heard of it (`heard`).  Where
RabbitMQ leaves something open (which of several ready consumers gets a message, which of two queues
hands out first) it follows what was heard and judges whether that was allowed.

Not here: bytes, syncs, files and anything fast.  Nothing of Leveret is imported.

Invariants: between two steps no queue has both a message that waits and a consumer that takes it;
a message that waits is not expired.
"""

from __future__ import annotations

from dataclasses import replace

from model.channel import Channel, Confirm, Delivery, Publish, Settle
from model.dead_letter import circle, died
from model.exchange import DEFAULT, DELAYED, Waiting
from model.heard import At, Difference, Heard, in_words
from model.judge import judge_confirms, judge_tags
from model.queue import Consumer, Entry, Message, Queue
from model.topology import Topology
from support.wire.raw import Method


class Refused(Exception):
    """A method that closes its channel."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Reference(Topology):
    """The whole state of a broker with one vhost."""

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self.now_ms = now_ms
        self.channels: dict[At, Channel] = {}
        #: Consumers whose client must be told of their end.
        self.notices: list[Consumer] = []
        #: Whether the step is at its end, and all that it does is here.
        self.finishing = False
        #: Messages that died, with their queue and the reason.
        self.dying: list[tuple[Queue, Message, str]] = []
        #: The moment in which letters are handed on, by which ties are told.
        self.moment: int | None = None
        self.moments = 0

    # -- queues ------------------------------------------------------------------------------------

    def queue(self, at: At, name: str) -> Queue:
        """A queue that a connection may use.  Raises: Refused."""
        queue = self.queues.get(name)
        if queue is None:
            raise Refused(404)
        if queue.owner not in (None, at[0]):
            raise Refused(405)
        return queue

    def declare(self, at: At, wanted: Queue, *, passive: bool = False) -> None:
        """Make a queue, or find it as it was declared."""
        try:
            if wanted.name in self.queues or passive:
                queue = self.queue(at, wanted.name)
                if not passive:
                    self._compare(queue, wanted)
                queue.used_ms = self.now_ms
            else:
                queue = self.queues[wanted.name] = wanted
        except Refused as refused:
            self.refuse(at, refused.code)
            return
        counts = {"message_count": len(queue.ready()), "consumer_count": len(queue.consumers)}
        self.answer(at, "queue.declare-ok", queue=queue.name, may_wait=True, **counts)

    @staticmethod
    def _compare(queue: Queue, wanted: Queue) -> None:
        if queue.owner != wanted.owner:
            raise Refused(405)
        for name in ("durable", "auto_delete", "arguments"):
            if getattr(queue, name) != getattr(wanted, name):
                raise Refused(406)

    def delete(self, at: At, name: str, *, if_unused: bool = False, if_empty: bool = False) -> None:
        """Delete a queue; one that is not there is fine."""
        count = 0
        if name in self.queues:
            try:
                queue = self.queue(at, name)
                if (if_unused and queue.consumers) or (if_empty and queue.ready()):
                    raise Refused(406)
            except Refused as refused:
                self.refuse(at, refused.code)
                return
            count = len(queue.ready())
            self._drop(queue)
        self.answer(at, "queue.delete-ok", may_wait=True, message_count=count)

    def _drop(self, queue: Queue) -> None:
        queue.deleted = True
        del self.queues[queue.name]
        self.unbind_all(True, queue.name)
        for consumer in queue.consumers:
            del consumer.channel.consumers[consumer.tag]
            self.notices.append(consumer)
        queue.consumers.clear()
        queue.entries.clear()

    def purge(self, at: At, name: str) -> None:
        """Drop what waits."""
        try:
            queue = self.queue(at, name)
        except Refused as refused:
            self.refuse(at, refused.code)
            return
        ready = queue.ready()
        queue.entries = [entry for entry in queue.entries if entry.out]
        self.answer(at, "queue.purge-ok", message_count=len(ready))

    # -- publishing --------------------------------------------------------------------------------

    def publish(self, at: At, message: Message, *, mandatory: bool = False) -> None:
        """Take a message."""
        channel = self.channels[at]
        exchange = self.exchanges.get(message.exchange)
        if message.exchange != DEFAULT and (exchange is None or exchange.internal):
            self.refuse(at, 404 if exchange is None else 403)
            return
        one = Publish(message, self.route(message), mandatory, exchange)
        if channel.mode == "tx":
            channel.publishes.append(one)
            return
        accepted, recorded, returned = self._publish(at, one)
        if channel.mode == "confirm":
            channel.published += 1
            channel.confirms[channel.published] = Confirm(
                "ack" if accepted else "nack", "recorded" if recorded else "memory", returned
            )

    def _publish(self, at: At, one: Publish, *, at_once: bool = True) -> tuple[bool, bool, int]:
        """Do it; tell whether all took it, whether it is recorded, and its return's place."""
        message, exchange = one.message, one.exchange
        if exchange is not None:
            if exchange.kind == DELAYED and message.delay_ms > 0:
                if self.exchanges.get(exchange.name) is exchange:
                    due_ms = self.now_ms + message.delay_ms
                    self.waiting.append(Waiting(due_ms, exchange, message.after_delay()))
                return True, exchange.durable, 0
            exchange.keep(message)
        queues = [queue for queue in one.queues if not queue.deleted]
        returned = self._return(at, message) if one.mandatory and not queues else 0
        return *self._enqueue_all(queues, message, at_once=at_once), returned

    def _return(self, at: At, message: Message) -> int:
        event = self.next_reply(at, "basic.return")
        self.saw("return")
        got = event.claim()
        expected = {"code": 312, "exchange": message.exchange, "routing_key": message.keys[0]}
        self.same_content(got, message.body, message.properties)
        if any(got.fields[name] != value for name, value in expected.items()):
            raise Difference(f"{at}: expected a return of {expected}, heard {in_words(got)}")
        return event.place

    def _enqueue_all(
        self, queues: list[Queue], message: Message, *, at_once: bool = True
    ) -> tuple[bool, bool]:
        """Put a message into queues; tell whether all took it and whether one recorded it."""
        accepted, recorded = True, False
        for queue in queues:
            if self._enqueue(queue, message, at_once=at_once):
                recorded = recorded or (queue.recorded and message.persistent)
            else:
                accepted = False
        return accepted, recorded

    def _enqueue(
        self, queue: Queue, message: Message, source: str = "", *, at_once: bool = True
    ) -> bool:
        """Put a message at the tail, and `at_once` to a consumer; tell whether it was taken."""
        if queue.overflow != "drop-head" and queue.overflows(1, len(message.body)):
            self.saw(queue.overflow)
            if queue.overflow == "reject-publish-dlx":
                self._die(queue, message, "maxlen")
            return False
        tie = (self.moment, source) if self.moment is not None and source else None
        surely = at_once and tie is None and not queue.ready() and self._surely_ready(queue)
        entry = queue.entry_of(message, self.now_ms, tie)
        self._dispatch(queue)
        if surely and entry in queue.ready():
            raise Difference(f"{message} was not handed out at once: {self.heard.left()}")
        self._settle_down(queue, patient=not at_once)
        return True

    @staticmethod
    def _surely_ready(queue: Queue) -> bool:
        """Whether a consumer takes a message whatever other queues hand to its channel."""
        return any(one.no_ack or not one.channel.prefetch for one in queue.takers())

    def _settle_down(self, queue: Queue, *, patient: bool = False) -> None:
        """Let go of what is expired, then of what is too much."""
        self._expire(queue, patient=patient)
        while queue.overflow == "drop-head" and queue.overflows():
            entry = queue.ready()[0]
            queue.entries.remove(entry)
            self._die(queue, entry.message, "maxlen")

    def _expire(self, queue: Queue, *, patient: bool = False) -> None:
        """Let expire what is due; with patience not what a consumer may still get right now."""
        last_ms = self.now_ms - (patient and bool(queue.takers()))
        due = [entry for entry in queue.entries if not entry.out
               and entry.expires_ms is not None and entry.expires_ms <= last_ms]  # fmt: skip
        for entry in sorted(due, key=lambda one: (one.expires_ms, one.place)):
            queue.entries.remove(entry)
            self._die(queue, entry.message, "expired")

    def replay(self, queues: list[Queue], message: Message) -> None:
        """Put a message of an exchange's history into queues."""
        self.saw("replayed")
        self._enqueue_all(queues, message, at_once=False)
        self.bury()

    def _end_delays(self) -> None:
        """Route what an exchange delayed until now."""
        due = [one for one in self.waiting if one.due_ms <= self.now_ms]
        self.waiting = [one for one in self.waiting if one.due_ms > self.now_ms]
        for one in sorted(due, key=lambda waiting: waiting.due_ms):
            self.saw("delayed")
            self._enqueue_all(self.route(one.message), one.message, at_once=False)

    # -- dead letters ------------------------------------------------------------------------------

    def _die(self, queue: Queue, message: Message, reason: str) -> None:
        """Let a message go; it is handed on when what is under way is done."""
        self.saw(reason)
        self.dying.append((queue, message, reason))

    def bury(self) -> None:
        """Hand on what died, and what dies of that.

        Dead letters of several publishes that came at once follow all of these; in RabbitMQ any
        order is possible.
        """
        for queue in self.queues.values():
            self._dispatch(queue)
            self._expire(queue)
        self.moments += 1
        self.moment = self.moments
        while self.dying:
            self._dead_letter(*self.dying.pop(0))
        self.moment = None

    def _dead_letter(self, queue: Queue, message: Message, reason: str) -> None:
        """Hand a message that a queue let go to its dead letter exchange."""
        name = queue.arguments.get("x-dead-letter-exchange")
        if name is None or (name != DEFAULT and name not in self.exchanges):
            return
        dead = died(queue, message, reason, name, self.now_ms)
        self.saw("dead letter" if len(dead.deaths) == 1 else "dead letter of another death")
        for target in self.route(dead):
            if reason == "rejected" or not circle(target.name, dead.deaths):
                self._enqueue(target, dead, queue.name)
            else:
                self.saw("circle")

    # -- consuming ---------------------------------------------------------------------------------

    def consume(self, at: At, name: str, consumer: Consumer) -> None:
        """Add a consumer."""
        try:
            queue = consumer.queue = self.queue(at, name)
            alone = any(other.exclusive for other in queue.consumers)
            if alone or (consumer.exclusive and (queue.consumers or queue.single)):
                raise Refused(403)
        except Refused as refused:
            self.refuse(at, refused.code)
            return
        consumer.prefetch = consumer.channel.prefetch_next
        self.answer(at, "basic.consume-ok", consumer_tag=consumer.tag)
        consumer.channel.consumers[consumer.tag] = consumer
        queue.join(consumer)
        self._dispatch(queue)

    def cancel(self, at: At, tag: str) -> None:
        """End a consumer; an unknown one is fine."""
        consumer = self.channels[at].consumers.pop(tag, None)
        if consumer is not None:
            self._leave(consumer)
        self.answer(at, "basic.cancel-ok", may_wait=True, consumer_tag=tag)

    def _leave(self, consumer: Consumer) -> None:
        queue = consumer.queue
        if queue.deleted:
            return
        queue.leave(consumer)
        queue.used_ms = self.now_ms
        if queue.auto_delete and not queue.consumers:
            self._drop(queue)
        else:
            self._dispatch(queue)

    def qos(self, at: At, count: int, *, all_together: bool) -> None:
        """Set the prefetch."""
        channel = self.channels[at]
        if all_together:
            channel.prefetch = count
        else:
            channel.prefetch_next = count
        self.answer(at, "basic.qos-ok")

    def get(self, at: At, name: str, *, no_ack: bool) -> None:
        """Take one message."""
        try:
            queue = self.queue(at, name)
            if queue.single:
                raise Refused(405)
        except Refused as refused:
            self.refuse(at, refused.code)
            return
        queue.used_ms = self.now_ms
        heads = queue.heads()
        if not heads:
            self.answer(at, "basic.get-empty")
            return
        got = self.next_reply(at, "basic.get-ok").claim()
        entry = next((head for head in heads if not self._wrong(got, head, queue)), heads[0])
        self._same_delivery(got, entry, queue)
        self._take(queue, entry, self.channels[at], got.delivery_tag, None, no_ack)
        if got.message_count != len(queue.ready()):
            raise Difference(f"{at}: {queue}, but {got.message_count} are said to be left")

    def _dispatch(self, queue: Queue) -> None:
        """Hand out what was heard to be handed out."""
        while self._hand_out_one(queue):
            pass

    def _hand_out_one(self, queue: Queue) -> bool:
        for consumer in queue.takers() if not queue.deleted else []:
            event = self.heard.delivery(consumer.channel.at, consumer.tag)
            if event is None:
                continue
            got = event.method
            same = [head for head in queue.heads() if head.message.body == got.body]
            # Another of the same body may be on its way: what differs is taken when all is here.
            alike = [one for one in same if self.finishing or not self._wrong(got, one, queue)]
            if alike:
                self._same_delivery(event.claim(), alike[0], queue)
                tag = got.delivery_tag
                self._take(queue, alike[0], consumer.channel, tag, consumer, consumer.no_ack)
                return True
        return False

    def _take(
        self, queue: Queue, entry: Entry, channel: Channel, tag: int,
        consumer: Consumer | None, no_ack: bool,
    ) -> None:  # fmt: skip
        if no_ack:
            queue.entries.remove(entry)
            return
        entry.out, entry.holder, entry.tie = True, consumer, None
        channel.unacked[tag] = Delivery(queue, entry, consumer)
        if consumer is not None:
            consumer.unacked += 1

    def _same_delivery(self, got: Method, entry: Entry, queue: Queue) -> None:
        wrong = self._wrong(got, entry, queue)
        self.saw(got.name)
        if entry.redelivered:
            self.saw("redelivered" if entry.count else "perhaps redelivered")
        if wrong:
            raise Difference(f"of {queue} should come {entry}, came {in_words(got)}: {wrong}")

    def _wrong(self, got: Method, entry: Entry, queue: Queue) -> str:
        message = entry.message
        for name, value in (
            ("exchange", message.exchange),
            ("routing_key", message.keys[0]),
            ("redelivered", entry.redelivered),
        ):
            if got.fields[name] != value:
                return f"{name} is {got.fields[name]}"
        properties = message.properties
        if entry.count and queue.argument("delivery-limit") is not None:
            headers = {**message.headers, "x-acquired-count": entry.count}
            if entry.failures:
                headers["x-delivery-count"] = entry.failures
            properties = {**properties, "headers": headers}
        try:
            self.same_content(got, message.body, properties)
        except Difference as difference:
            return str(difference)
        return ""

    # -- settling ----------------------------------------------------------------------------------

    def settle(self, at: At, tag: int, *, multiple: bool, how: str) -> None:
        """Ack, reject or requeue deliveries."""
        channel = self.channels[at]
        tags = [tag] if tag in channel.unacked else []
        if multiple:
            tags = [one for one in sorted(channel.unacked) if tag in (0, one) or one < tag]
            if tag > channel.last_tag:
                tags = []
        if not tags and not (multiple and tag == 0):
            self.refuse(at, 406)
            return
        deliveries = {one: channel.unacked.pop(one) for one in tags}
        if channel.mode == "tx":
            channel.settles.append(Settle(deliveries, how))
        else:
            self._settle(list(deliveries.values()), how)
            self.bury()

    def recover(self, at: At) -> None:
        """Requeue all that is out on a channel."""
        channel = self.channels[at]
        deliveries = [channel.unacked[tag] for tag in sorted(channel.unacked)]
        channel.unacked.clear()
        self.answer(at, "basic.recover-ok")
        self._settle(deliveries, "requeue")
        self.bury()

    def _settle(self, deliveries: list[Delivery], how: str) -> None:
        for delivery in deliveries:
            if delivery.consumer is not None:
                delivery.consumer.unacked -= 1
        deliveries = [one for one in deliveries if not one.queue.deleted]
        if how in ("requeue", "fail"):
            self._requeue(deliveries, failed=how == "fail")
            return
        for delivery in deliveries:
            delivery.queue.entries.remove(delivery.entry)
            if how == "reject":
                self._die(delivery.queue, delivery.entry.message, "rejected")

    def _requeue(self, deliveries: list[Delivery], *, failed: bool) -> None:
        for delivery in deliveries:
            delivery.entry.out = False
            delivery.entry.count += 1
            delivery.entry.failures += failed
        for queue in dict.fromkeys(delivery.queue for delivery in deliveries):
            limit = queue.argument("delivery-limit")
            over = [] if limit is None else [e for e in queue.ready() if e.failures > limit]
            for entry in over:
                queue.entries.remove(entry)
                self._die(queue, entry.message, "delivery_limit")
            self._settle_down(queue, patient=True)

    # -- transactions and confirms -----------------------------------------------------------------

    def select(self, at: At, mode: str) -> None:
        """Begin confirms or transactions."""
        self.channels[at].mode = mode
        self.answer(at, f"{mode}.select-ok")

    def commit(self, at: At) -> None:
        """Do what the transaction holds: publishes, then acks."""
        channel = self.channels[at]
        publishes, channel.publishes = channel.publishes, []
        settles, channel.settles = channel.settles, []
        all_accepted = True
        for one in publishes:
            # What the commit requeues may go first, and a refusal ends this channel's consumers.
            accepted, _, _ = self._publish(at, one, at_once=False)
            all_accepted = all_accepted and accepted
        for settle in settles:
            self._settle(list(settle.deliveries.values()), settle.how)
        self.bury()
        if all_accepted:
            self.answer(at, "tx.commit-ok", may_wait=True)
        else:
            self.refuse(at, 406)

    def rollback(self, at: At) -> None:
        """Forget the transaction: its deliveries are out again."""
        channel = self.channels[at]
        for settle in channel.settles:
            channel.unacked |= settle.deliveries
        channel.publishes, channel.settles = [], []
        self.answer(at, "tx.rollback-ok", may_wait=True)

    def sealed(self) -> None:
        """Hear that what was recorded is about to be written."""
        self._move_confirms("recorded", "sealed")

    def synced(self) -> None:
        """Hear that what was sealed is on the disk."""
        self._move_confirms("sealed", "synced")

    def _move_confirms(self, old: str, new: str) -> None:
        for channel in self.channels.values():
            for confirm in channel.confirms.values():
                if confirm.state == old:
                    confirm.state = new

    # -- channels ----------------------------------------------------------------------------------

    def open(self, at: At) -> None:
        """Have a new channel."""
        self.channels[at] = Channel(at)

    def release(self, ats: list[At]) -> None:
        """End channels: their consumers end, and what is out returns."""
        channels = [self.channels.pop(at) for at in ats]
        consumers = [one for channel in channels for one in channel.consumers.values()]
        for consumer in consumers:
            consumer.ended = True
        for consumer in consumers:
            self._leave(consumer)
        for channel in channels:
            held = {tag: one for settle in channel.settles
                    for tag, one in settle.deliveries.items()}  # fmt: skip
            deliveries = sorted((channel.unacked | held).items())
            self._settle([delivery for _, delivery in deliveries], "fail")
        self.bury()

    def lose(self, connection: int) -> None:
        """End a connection."""
        self.release([at for at in self.channels if at[0] == connection])
        for queue in list(self.queues.values()):
            if queue.owner == connection:
                self._drop(queue)

    # -- time --------------------------------------------------------------------------------------

    def on_edge(self) -> bool:
        """Whether a message that is out expires right now: it is open what comes of its return."""
        entries = [entry for queue in self.queues.values() for entry in queue.entries]
        return any(entry.out and entry.expires_ms == self.now_ms for entry in entries)

    def pass_time(self, now_ms: int) -> None:
        """Reach a moment: no deadline may lie between."""
        self.now_ms = now_ms
        self._end_delays()
        self.bury()
        for queue in list(self.queues.values()):
            expires = queue.argument("expires")
            if expires is not None and not queue.consumers and queue.used_ms + expires <= now_ms:
                self.saw("queue expired")
                self._drop(queue)

    # -- the end of a step -------------------------------------------------------------------------

    def hand_out(self) -> None:
        """Claim what all queues handed out."""
        for queue in self.queues.values():
            self._dispatch(queue)

    def finish(self) -> None:
        """Judge what is left of a step."""
        for turn in range(len(self.channels) + 1):
            # Again, because what one queue hands out may be why another may not.
            self.finishing = turn > 0
            self.hand_out()
        for consumer in self.notices:
            event = self.heard.notice(consumer.channel.at, consumer.tag)
            if event is not None:
                event.claim()
                self.saw("basic.cancel")
            elif consumer.channel.at in self.channels:
                raise Difference(f"nobody told {consumer.tag} of its end")
        self.notices.clear()
        for channel in self.channels.values():
            judge_confirms(self, channel)
            judge_tags(self, channel)
        if left := self.heard.left():
            raise Difference(f"heard for no reason: {left} {list(self.queues.values())}")
        for queue in self.queues.values():
            if queue.ready() and queue.takers():
                raise Difference(f"not handed out to {queue.takers()[0].tag}: {queue}")
        self.heard = Heard()
        self.finishing = False

    # -- what a stop leaves ------------------------------------------------------------------------

    def kept(self) -> Reference:
        """A copy of what the disk holds if everything was synced."""
        kept = Reference(self.now_ms)
        for name, exchange in self.exchanges.items():
            if exchange.durable:
                kept.exchanges[name] = replace(exchange, bindings=[], history=[])
        kept.queues = {one.name: one.kept() for one in self.queues.values() if one.recorded}
        for exchange in self.exchanges.values():
            for binding in exchange.bindings:
                if kept.bindable(binding):
                    kept.exchanges[exchange.name].bindings.append(binding)
        kept.waiting = [replace(one, exchange=kept.exchanges[one.exchange.name])
                        for one in self.waiting if one.exchange.durable]  # fmt: skip
        return kept

    def started(self, now_ms: int, *, clean: bool) -> None:
        """Begin anew on what was kept."""
        self.now_ms = now_ms
        for queue in self.queues.values():
            queue.used_ms = now_ms
            for entry in queue.entries:
                entry.uncertain = entry.uncertain or not clean
            self._settle_down(queue)
        self._end_delays()
        self.bury()
