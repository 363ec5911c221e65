"""Recovery without numbers: what the broker has is not sent again, and everything else is.

A proxy keeps the broker's answers from the client, and then cuts: so the broker has messages that
the client does not know of.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from leveret.client import (
    BasicProperties,
    Nacked,
    Recovered,
    Recovery,
    RecoveryEvent,
    Returned,
    blocking,
    connect,
)
from leveret.client.events import Settled
from leveret.client.recovery.recoverer import Recoverer
from leveret.client.session.confirms import PublisherConfirms
from leveret.client.uri import Parameters
from leveret.wire.content.publish_marks import NACKED, RETURNED, PublishMarks
from leveret.wire.methods import (
    BasicAck,
    ChannelOpen,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionStart,
    ConnectionStartOk,
)
from support.wire.client_peer import Waiter
from support.wire.client_twice import Twice
from support.wire.cut_proxy import CutProxy

SECONDS: Final = 60.0
PERSISTENT: Final = BasicProperties(delivery_mode=2)
SESSION: Final = "0123456789abcdef" * 2
WINDOW: Final = 40
CUTS: Final = 6


# -- the engine ------------------------------------------------------------------------------------


class TwiceToLeveret(Twice):
    """A connection to Leveret that is lost, and the next one."""

    start = ConnectionStart(server_properties={"product": "RabbitMQ", "platform": "Leveret 1"})

    def recoverer_of(self) -> Recoverer:
        """Return one that has a session."""
        return Recoverer(Recovery(), [Parameters()], {}, "me", publish_session=SESSION)

    def opening(self) -> list[str]:
        """Return the keys of the channels that are being opened."""
        return [one.key for _, one in self.peer.sent() if isinstance(one, ChannelOpen)]

    def bodies(self) -> list[bytes]:
        """Return the bodies that were sent."""
        return [part for _, part in self.peer.sent() if isinstance(part, bytes) and len(part) == 1]


class TwiceToAnother(TwiceToLeveret):
    """The same to another broker."""

    start = ConnectionStart(server_properties={"product": "RabbitMQ", "platform": "Erlang"})


@pytest.mark.parametrize(
    ("kind", "session", "keys"),
    [(TwiceToLeveret, SESSION, ["1", "2"]), (TwiceToAnother, None, ["", ""])],
)
def test_the_session_is_told_to_leveret_only(
    bytewise: bool, kind: type[TwiceToLeveret], session: str | None, keys: list[str]
) -> None:
    one = kind(bytewise)
    one.lose()
    opened = [method.key for method in one.sent if isinstance(method, ChannelOpen)]
    assert [*opened, *one.opening()] == keys
    said = [method for method in one.sent if isinstance(method, ConnectionStartOk)]
    assert [method.client_properties.get("leveret-session") for method in said] == [session] * 2


def test_what_the_broker_has_is_settled_and_the_rest_sent_again(bytewise: bool) -> None:
    one = TwiceToLeveret(bytewise)
    one.ask(ConfirmSelect(), ConfirmSelectOk())
    for number in range(1, 8):
        one.channel.publish(b"%d" % number, "", "q", token=Waiter())
    one.feed(1, BasicAck(1))
    one.lose()
    assert one.opening() == ["2:1"]
    # Of 2 nothing is known, 3 was taken, 4 refused, 5 returned; 6 was taken, and 7 never came.
    events = one.feed(1, ChannelOpenOk(b"6 2 n4-4 r5-5"))
    settled = [outcome for e in events if isinstance(e, Settled) for outcome in e.outcomes]
    assert [type(failure) for _, failure in settled] == [type(None), Nacked, type(None)]
    one.peer.sent()
    one.feed(1, ConfirmSelectOk())
    assert one.bodies() == [b"2", b"5", b"7"]
    # Lost again: the broker's numbers are now those of what was sent again.
    one.lose()
    assert one.opening() == ["3:2"]
    one.feed(1, ChannelOpenOk(b"2 0"))
    one.peer.sent()
    one.feed(1, ConfirmSelectOk())
    assert one.bodies() == [b"7"]


def test_a_loss_before_anything_is_sent_again_asks_for_the_same_channel(bytewise: bool) -> None:
    one = TwiceToLeveret(bytewise)
    one.ask(ConfirmSelect(), ConfirmSelectOk())
    one.channel.publish(b"1", "", "q")
    one.channel.publish(b"2", "", "q")
    for key in ("2:1", "3:1"):
        one.lose()
        assert one.opening() == [key]
        one.feed(1, ChannelOpenOk(b"1 0"))
    one.peer.sent()
    one.feed(1, ConfirmSelectOk())
    assert one.bodies() == [b"2"]


@pytest.mark.parametrize("marks", [b"", b"x", b"-1", b"1 0 z3-4", b"1 0 n3", b"9" * 30, b"\xff 0"])
def test_words_that_are_none_settle_nothing(bytewise: bool, marks: bytes) -> None:
    one = TwiceToLeveret(bytewise)
    one.ask(ConfirmSelect(), ConfirmSelectOk())
    one.channel.publish(b"1", "", "q")
    one.lose()
    one.feed(1, ChannelOpenOk(marks))
    one.peer.sent()
    one.feed(1, ConfirmSelectOk())
    assert one.bodies() == [b"1"]


def test_marks_settle_among_what_was_settled_early() -> None:
    confirms = PublisherConfirms()
    confirms.last = 10
    confirms.settle(7, False, True)
    confirms.settle(3, False, True)
    assert confirms.settle_marks(PublishMarks(8, 1, [(2, 2, RETURNED), (4, 5, NACKED)])) == []
    left = [number for number in range(1, 11) if not confirms.is_settled(number)]
    assert left == [1, 2, 9, 10]
    failure = confirms.take_failure()
    assert isinstance(failure, Nacked)
    assert failure.sequences == (4, 5)


# -- both shells -----------------------------------------------------------------------------------


class Watch:
    """The queues, on a connection of its own that nobody cuts.

    Message 1 of 4 goes to a queue with little room, and 2 to no queue, `by_turns` in other windows.
    """

    def __init__(self, uri: str, name: str, *, by_turns: bool) -> None:
        self._connection = blocking.connect(uri)
        self._channel = self._connection.channel()
        self._name = name
        self._by_turns = by_turns
        self._channel.queue_declare(name)
        limited: dict[str, object] = {"x-max-length": 5, "x-overflow": "reject-publish"}
        self._channel.queue_declare(f"{name}.full", arguments=limited)
        #: What became of each message, as its publisher was told.
        self.outcomes: dict[int, str] = {}

    def place(self, number: int) -> str:
        """Where a message goes."""
        kind = number % 4
        if kind in (1, 2) and self._by_turns:
            kind = 1 + number // WINDOW % 2
        return {1: f"{self._name}.full", 2: f"{self._name}.nowhere"}.get(kind, self._name)

    def cut_when_taken(self, proxy: CutProxy, window: int) -> None:
        """Cut when the broker has taken a window, whose confirms the client does not get."""
        count = (window + 1) * WINDOW // 2
        while self._channel.queue_declare(self._name, passive=True).message_count < count:
            pass
        # What is still to come on this connection stays away, and the next one is answered.
        proxy.stall()
        proxy.is_deaf = False
        (proxy.cut, proxy.reset)[window % 2]()

    def check(self) -> None:
        """Check that each message came to what its publisher was told, once; delete the queues."""
        told = {
            kind: {number for number in range(WINDOW * CUTS) if self.place(number).endswith(kind)}
            for kind in (self._name, ".full", ".nowhere")
        }
        outcomes = self.outcomes
        assert len(outcomes) == WINDOW * CUTS
        assert {outcomes[number] for number in told[self._name]} == {"acked"}
        assert {outcomes[number] for number in told[".nowhere"]} == {"returned"}
        assert {outcomes[number] for number in told[".full"]} == {"acked", "nacked"}
        full = {number for number in told[".full"] if outcomes[number] == "acked"}
        assert self._drain(self._name) == Counter(told[self._name])
        assert self._drain(f"{self._name}.full") == Counter(full)
        self._connection.close()

    def _drain(self, queue: str) -> Counter[int]:
        found: Counter[int] = Counter()
        while (message := self._channel.get(queue, no_ack=True)) is not None:
            found[int(message.body)] += 1
        self._channel.queue_delete(queue)
        return found


def quick(on_event: Callable[[RecoveryEvent], None] | None = None) -> Recovery:
    """Return recovery with its defaults, except that it does not wait for long."""
    return Recovery(delay_seconds=0.01, delay_seconds_max=0.1, on_event=on_event)


def test_nothing_is_doubled_or_lost_asyncio(proxy: CutProxy, broker_uri: str, name: str) -> None:
    watch = Watch(broker_uri, name, by_turns=False)
    outcomes = watch.outcomes

    async def test() -> None:
        async with await connect(proxy.uri, recover=quick()) as connection:
            channel = await connection.channel()
            await channel.confirm_select()

            async def publish(number: int) -> None:
                body, queue = b"%d" % number, watch.place(number)
                try:
                    await channel.publish(body, "", queue, PERSISTENT, mandatory=True)
                    outcomes[number] = "acked"
                except Returned:
                    outcomes[number] = "returned"
                except Nacked:
                    outcomes[number] = "nacked"

            for window in range(CUTS):
                proxy.is_deaf = True
                first = window * WINDOW
                tasks = [asyncio.create_task(publish(first + i)) for i in range(WINDOW)]
                await asyncio.to_thread(watch.cut_when_taken, proxy, window)
                await asyncio.gather(*tasks)

    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            await test()

    asyncio.run(bounded())
    watch.check()


def test_nothing_is_doubled_or_lost_blocking(proxy: CutProxy, broker_uri: str, name: str) -> None:
    watch = Watch(broker_uri, name, by_turns=True)
    recovered: list[Recovered] = []

    def note(event: RecoveryEvent) -> None:
        if isinstance(event, Recovered):
            recovered.append(event)

    with blocking.connect(proxy.uri, recover=quick(note)) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for window in range(CUTS):
            proxy.is_deaf = True
            numbers = range(window * WINDOW, (window + 1) * WINDOW)
            for number in numbers:
                queue = watch.place(number)
                channel.publish_nowait(b"%d" % number, "", queue, PERSISTENT, mandatory=True)
            cutting = threading.Thread(target=watch.cut_when_taken, args=(proxy, window))
            cutting.start()
            watch.outcomes |= dict.fromkeys(numbers, "acked")
            try:
                channel.wait_for_confirms()
            except Nacked as failure:
                watch.outcomes |= {sequence - 1: "nacked" for sequence in failure.sequences}
            except Returned as failure:
                watch.outcomes |= {int(one.body): "returned" for one in failure.messages}
            cutting.join(SECONDS)
            # The confirms may come before all is done again.
            channel.queue_declare(name, passive=True)
    watch.check()
    assert len(recovered) == CUTS
