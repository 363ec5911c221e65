"""Confirms and returns of a channel, seen by the publisher.

Source: behaviours 24 (return before confirm), 25 (unroutable is confirmed), 26 (reject-publish), 28
(no tx with confirms) and 30 (confirm numbering).
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client.errors import Nacked, PublishFailed, Returned
from leveret.client.events import CameBack, ChannelEnded, ConnectionEnded, Event, Settled, Token
from leveret.client.message import Message, ReturnedMessage
from leveret.client.session.channel import ChannelSession
from leveret.client.session.confirms import CLIENT_FAILURES_MAX, PublisherConfirms
from leveret.wire.methods import (
    BasicAck,
    BasicNack,
    BasicReturn,
    ChannelClose,
    ConfirmSelect,
    ConfirmSelectOk,
    ConnectionClose,
)
from support.wire.client_peer import Peer, Waiter, content, frame


def confirming(peer: Peer) -> ChannelSession:
    """Return a channel in confirm mode."""
    channel = peer.channel()
    channel.request(ConfirmSelect(), Waiter())
    peer.feed(frame(1, ConfirmSelectOk()))
    peer.sent()
    return channel


def outcomes(events: Sequence[Event | Message]) -> list[tuple[Token, PublishFailed | None]]:
    """Return the outcomes that the events report."""
    return [one for event in events if isinstance(event, Settled) for one in event.outcomes]


def publish(channel: ChannelSession, key: str = "k", *, mandatory: bool = False) -> Waiter:
    """Publish and return the token."""
    token = Waiter()
    channel.publish(b"body", "e", key, mandatory=mandatory, token=token)
    return token


def came_back(key: str = "k") -> bytes:
    """Return the frames of a basic.return."""
    return content(1, BasicReturn(312, "NO_ROUTE", "e", key), b"body")


def ack(sequence: int, multiple: bool = False) -> bytes:
    """Return the frame of a confirm."""
    return frame(1, BasicAck(sequence, multiple))


def test_sequences_start_at_1_with_confirm_select(peer: Peer) -> None:
    """Behaviour 30 (confirm numbering).

    They count every publish, also before select-ok has come.
    """
    channel = peer.channel()
    assert channel.publish(b"", "", "q") == 0
    channel.request(ConfirmSelect(), Waiter())
    assert channel.publish(b"", "", "q") == 1
    channel.request(ConfirmSelect(), Waiter())
    assert channel.publish(b"", "", "q", mandatory=True) == 2
    assert peer.session.awaits_reply
    peer.feed(frame(1, ConfirmSelectOk()), frame(1, ConfirmSelectOk()), ack(2, True))
    assert not peer.session.awaits_reply


def test_a_confirm(peer: Peer) -> None:
    channel = confirming(peer)
    one, two = publish(channel), publish(channel)
    assert outcomes(peer.feed(ack(2))) == [(two, None)]
    assert outcomes(peer.feed(ack(1))) == [(one, None)]


@pytest.mark.parametrize("sequence", [3, 0])
def test_confirms_of_many(peer: Peer, sequence: int) -> None:
    channel = confirming(peer)
    tokens = [publish(channel) for _ in range(3)]
    assert outcomes(peer.feed(ack(2))) == [(tokens[1], None)]
    assert outcomes(peer.feed(ack(sequence, True))) == [(tokens[0], None), (tokens[2], None)]
    assert outcomes(peer.feed(ack(3, True))) == []


def test_a_refusal(peer: Peer) -> None:
    """Behaviour 26 (reject-publish)."""
    channel = confirming(peer)
    token = publish(channel)
    ((settled, error),) = outcomes(peer.feed(frame(1, BasicNack(1, False, False))))
    assert settled is token
    assert isinstance(error, Nacked)
    assert error.sequences == (1,)


def test_a_return_comes_before_its_confirm(peer: Peer) -> None:
    """Behaviour 24 (return before confirm)."""
    channel = confirming(peer)
    one, two = publish(channel, mandatory=True), publish(channel, mandatory=True)
    events = peer.feed(came_back(), ack(1), ack(2))
    (first, error), second = outcomes(events)
    assert first is one
    assert isinstance(error, Returned)
    assert error.message.routing_key == "k"
    assert second == (two, None)
    assert not any(isinstance(event, CameBack) for event in events)


def test_returns_are_told_apart_by_what_they_carry(peer: Peer) -> None:
    channel = confirming(peer)
    keys = ["a", "b", "a", "c", "a"]
    tokens = [publish(channel, key, mandatory=True) for key in keys]
    events = peer.feed(came_back("b"), came_back("a"), came_back("a"), ack(5, True))
    returned = [token for token, error in outcomes(events) if isinstance(error, Returned)]
    assert returned == [tokens[0], tokens[1], tokens[2]]


def test_a_settled_publish_comes_back_no_more(peer: Peer) -> None:
    channel = confirming(peer)
    publish(channel, mandatory=True)
    later = publish(channel, mandatory=True)
    events = peer.feed(ack(1), came_back(), ack(2))
    assert [token for token, error in outcomes(events) if error is not None] == [later]


def test_a_return_that_fits_no_publish_is_reported(peer: Peer) -> None:
    channel = confirming(peer)
    publish(channel)
    (event,) = peer.feed(came_back())
    assert isinstance(event, CameBack)
    assert event.channel is channel


def test_a_phantom_confirm_closes_the_channel(peer: Peer) -> None:
    channel = confirming(peer)
    publish(channel)
    (ended,) = peer.feed(ack(2))
    assert isinstance(ended, ChannelEnded)
    assert len(ended.tokens) == 1
    assert peer.sent()[-1][1] == ChannelClose(406, "PRECONDITION_FAILED - unknown delivery tag 2")


def test_a_confirm_without_confirm_mode_is_a_fault(peer: Peer) -> None:
    peer.channel()
    assert isinstance(peer.feed(ack(1))[-1], ConnectionEnded)
    assert peer.sent_one(ConnectionClose).reply_code == 503


def test_the_end_of_the_channel_ends_who_waits(peer: Peer) -> None:
    channel = confirming(peer)
    tokens = [publish(channel) for _ in range(2)]
    (ended,) = peer.feed(frame(1, ChannelClose(404, "NOT_FOUND - no exchange 'e' in vhost '/'")))
    assert isinstance(ended, ChannelEnded)
    assert list(ended.tokens) == tokens
    assert channel.confirms is not None
    assert channel.confirms.lost


# -- windows: publishes without a token ------------------------------------------------------------


def returned_message(key: str) -> ReturnedMessage:
    """Return a returned message."""
    return ReturnedMessage(BasicReturn(312, "NO_ROUTE", "e", key), b"\x00\x00", b"body")


def test_failures_of_a_window_are_kept_until_they_are_taken() -> None:
    confirms = PublisherConfirms()
    for _ in range(5):
        confirms.published(None, None)
    confirms.settle(2, True, False)
    confirms.settle(5, True, True)
    failure = confirms.take_failure()
    assert isinstance(failure, Nacked)
    assert failure.sequences == (1, 2)
    assert confirms.take_failure() is None


def test_returns_of_a_window_are_kept_until_they_are_taken() -> None:
    confirms = PublisherConfirms()
    for key in "abc":
        confirms.published(None, ("e", key, b"body"))
    assert confirms.returned(returned_message("b"))
    assert confirms.returned(returned_message("c"))
    assert not confirms.returned(returned_message("d"))
    assert confirms.take_failure() is None
    confirms.settle(0, True, True)
    failure = confirms.take_failure()
    assert isinstance(failure, Returned)
    assert [message.routing_key for message in failure.messages] == ["b", "c"]


@pytest.mark.parametrize("count", [CLIENT_FAILURES_MAX, CLIENT_FAILURES_MAX + 1])
def test_failures_are_kept_up_to_a_limit(count: int) -> None:
    confirms = PublisherConfirms()
    for _ in range(count):
        confirms.published(None, None)
        confirms.published(None, ("e", "k", b"body"))
        confirms.returned(returned_message("k"))
        confirms.settle(confirms.last - 1, False, False)
        confirms.settle(confirms.last, False, True)
    nacked = confirms.take_failure()
    assert isinstance(nacked, Nacked)
    assert len(nacked.sequences) == CLIENT_FAILURES_MAX


def test_a_window_knows_how_far_it_has_settled() -> None:
    confirms = PublisherConfirms()
    assert confirms.settled_to(0)
    for _ in range(4):
        confirms.published(None, None)
    confirms.settle(1, False, True)
    confirms.settle(3, False, True)
    assert confirms.settled_to(1)
    assert not confirms.settled_to(2)
    confirms.settle(2, False, True)
    assert confirms.settled_to(3)
    assert not confirms.settled_to(4)


@given(st.data())
def test_every_publish_settles_once_whatever_the_order(data: st.DataObject) -> None:
    confirms = PublisherConfirms()
    tokens: dict[int, Waiter] = {}
    settled: list[Token] = []
    for _ in range(data.draw(st.integers(1, 40))):
        if data.draw(st.booleans()) or confirms.last == 0:
            token = Waiter()
            tokens[confirms.published(token, None)] = token
            continue
        sequence = data.draw(st.integers(1, confirms.last))
        multiple = data.draw(st.booleans())
        expected = {n for n in confirms.waiting if n == sequence or (multiple and n < sequence)}
        found = [token for token, _ in confirms.settle(sequence, multiple, True)]
        assert found == [tokens[n] for n in sorted(expected)]
        settled += found
    settled += [token for token, _ in confirms.settle(0, True, True)]
    assert len(settled) == len(set(map(id, settled))) == len(tokens)
    assert confirms.settled_to(confirms.last)
    assert confirms.waiting == {}
