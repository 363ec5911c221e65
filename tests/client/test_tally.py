"""Counted confirms: the same outcome as of confirms that are kept one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client.errors import Nacked
from leveret.client.publish_frames import PublishFrames
from leveret.client.session.channel import ChannelSession
from leveret.client.session.confirms import PublisherConfirms
from leveret.client.session.tally import Tally
from leveret.errors import PreconditionFailed
from leveret.wire.methods import BasicAck, BasicReturn, ConfirmSelect, ConfirmSelectOk
from support.wire.client_peer import Peer, Waiter, content, frame

#: Either a number of publishes, or a confirm: sequence, multiple, acked.
STEPS = st.lists(
    st.one_of(
        st.integers(1, 9),
        st.tuples(st.integers(0, 60), st.booleans(), st.booleans()),
    ),
    max_size=40,
)


def refuses(confirms: PublisherConfirms, sequence: int, multiple: bool, acked: bool) -> bool:
    """Settle; tell whether it was refused as never published."""
    try:
        confirms.settle(sequence, multiple, acked)
    except PreconditionFailed:
        return True
    return False


@given(STEPS)
def test_it_counts_what_confirms_remember(steps: list[int | tuple[int, bool, bool]]) -> None:
    tally, confirms = Tally(), PublisherConfirms()
    nacked: set[int] = set()
    for step in steps:
        if isinstance(step, int):
            tally.published_many(step)
            for _ in range(step):
                confirms.published(None, None)
            continue
        refused = refuses(confirms, *step)
        assert refuses(tally, *step) == refused
        failure = confirms.take_failure()
        if isinstance(failure, Nacked):
            nacked.update(failure.sequences)
        assert tally.unconfirmed == confirms.unconfirmed
        assert tally.nack_count == len(nacked)
        assert (tally.first_nack in nacked) == bool(nacked)
        settled = [confirms.settled_to(number) for number in range(70)]
        assert [tally.settled_to(number) for number in range(70)] == settled


def tallied(peer: Peer) -> tuple[ChannelSession, Tally]:
    """Return a channel that counts its confirms."""
    channel = peer.channel()
    channel.request(ConfirmSelect(), Waiter())
    peer.feed(frame(1, ConfirmSelectOk()))
    peer.sent()
    return channel, channel.tally()


def publishes(count: int) -> bytes:
    """Return publishes of `count` messages on channel 1."""
    return PublishFrames(1, 131_072).publish("e", "k", True, b"\0\0", b"body") * count


def test_encoded_publishes_are_sent_as_they_are_and_counted(peer: Peer) -> None:
    channel, tally = tallied(peer)
    channel.publish_encoded(publishes(5), 5)
    assert [part for _, part in peer.sent() if isinstance(part, bytes)][1::2] == [b"body"] * 5
    assert tally.unconfirmed == 5
    peer.feed(frame(1, BasicAck(3, True)))
    assert (tally.unconfirmed, tally.lowest) == (2, 4)
    peer.feed(frame(1, BasicAck(5, False)))
    assert (tally.unconfirmed, tally.lowest) == (1, 4)
    assert channel.awaits_reply
    peer.feed(frame(1, BasicAck(0, True)))
    assert (tally.unconfirmed, tally.lowest) == (0, 6)
    assert not channel.awaits_reply


def test_what_comes_back_is_kept_until_it_is_taken(peer: Peer) -> None:
    channel, tally = tallied(peer)
    channel.publish_encoded(publishes(2), 2)
    peer.feed(content(1, BasicReturn(312, "NO_ROUTE", "e", "k"), b"body") * 2)
    assert [m.body for m in tally.take_returned()] == [b"body", b"body"]
    assert tally.take_returned() == []


def test_a_channel_that_ends_with_some_unconfirmed_says_so(peer: Peer) -> None:
    channel, tally = tallied(peer)
    channel.publish_encoded(publishes(2), 2)
    peer.feed(frame(1, BasicAck(1, False)))
    peer.session.lost("gone")
    assert tally.lost


def test_counting_begins_with_confirm_mode_and_before_any_publish(peer: Peer) -> None:
    channel = peer.channel()
    with pytest.raises(ValueError, match="needs confirm mode"):
        channel.tally()
    channel.request(ConfirmSelect(), Waiter())
    channel.publish(b"", "e", "k")
    with pytest.raises(ValueError, match="precede the first publish"):
        channel.tally()
