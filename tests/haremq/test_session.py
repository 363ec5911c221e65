"""What HareMQ's clients ask for is done on the vhost that AMQP clients see; a broker in memory."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.haremq.answers import HAREMQ_ANSWERS_WAITING_MAX
from leveret.haremq.connection import HAREMQ_REFUSALS_LOGGED_MAX
from leveret.limits import (
    HAREMQ_ID_BYTES_MAX,
    HAREMQ_LISTED_MAX,
    HAREMQ_REQUEST_BYTES_MAX,
    HAREMQ_UNACKED_MAX,
    OUTPUT_BYTES_HIGH,
    OUTPUT_BYTES_MAX,
)
from leveret.session.settings import SessionSettings
from support.node.core import Node
from support.wire.hare import HarePeer, frame, frame_of, make
from support.wire.raw_codec import publish as amqp_publish

DIRECT, FANOUT, TOPIC = 1, 2, 3
#: A text of which HareMQ's client makes its ids.
LONG_ID = ("0123-" * 31)[:155]


@pytest.fixture
def node() -> Node:
    """A broker on an empty disk in memory."""
    return Node()


@pytest.fixture
def hare(node: Node) -> HarePeer:
    """A connection with the channel `c1` open."""
    peer = HarePeer(node)
    assert peer.open()
    return peer


def beside(hare: HarePeer, cid: str = "c2") -> HarePeer:
    """Return another connection of the same listener with a channel open."""
    peer = HarePeer(hare.node, hare.shared)
    assert peer.open(cid)
    return peer


def setup_queue(hare: HarePeer, queue: str = "q", **fields: Any) -> None:
    """Declare a queue and bind it to the fanout exchange `x`."""
    assert hare.exchange("x", FANOUT)
    assert hare.queue(queue, **fields)
    assert hare.bind("x", queue)


# -- packages of other names -----------------------------------------------------------------------


@pytest.mark.parametrize("package", ["Fy_mq.", "bitmq.", "my.own.mq.", "p" * 100 + ".", ""])
def test_the_first_frame_names_the_package_of_the_connection(
    hare: HarePeer, node: Node, package: str
) -> None:
    setup_queue(hare)
    peer = HarePeer(node, hare.shared, package=package)
    assert peer.open("other")
    assert peer.publish("x", "short")
    assert peer.publish("x", "long" * HAREMQ_REQUEST_BYTES_MAX)
    assert not peer.publish("none", "")
    assert "exists queues: q" in peer.call("basicQueryRequest").message.body
    assert peer.consume("q")
    assert [len(body) for body in peer.bodies()] == [5, 4 * HAREMQ_REQUEST_BYTES_MAX]


def test_a_long_publish_may_be_the_first_frame(node: Node) -> None:
    peer = HarePeer(node, package="bitmq.")
    assert not peer.publish("x", "long" * HAREMQ_REQUEST_BYTES_MAX)


@pytest.mark.parametrize("unbind", ["queueUnBindRequest", "queueUnbindRequest"])
def test_a_bind_and_an_unbind_have_two_names(hare: HarePeer, unbind: str) -> None:
    assert hare.exchange("x", FANOUT)
    assert hare.queue("q")
    names = {"rid": "r", "cid": "c1", "exchange_name": "x", "queue_name": "q"}
    bind = make("bindRequest", **names, binding_key="key").SerializeToString()
    for name, message in (
        ("queueBindRequest", bind),
        (unbind, make("unbindRequest", **names).SerializeToString()),
    ):
        hare.send(frame_of(name, message))
        answer = hare.inbox.got[-1]
        assert (answer.message.rid, answer.ok) == ("r", True)
        listed = hare.call("basicQueryRequest").message.body
        assert ("x<-->q, binding_key: key" in listed) == (name == "queueBindRequest")


@pytest.mark.parametrize(
    ("first", "name"),
    [
        ("hare_mq.openChannelRequest", "hare_mq.basicGetRequest"),
        ("hare_mq.openChannelRequest", "Fy_mq.openChannelRequest"),
        ("hare_mq.openChannelRequest", "hare_mq.basicCommonResponse"),
        ("Fy_mq.openChannelRequest", "hare_mq.openChannelRequest"),
        # Its exchange types and delivery modes have other numbers.
        ("hz_mq.closeRequest", "hz_mq.openChannelRequest"),
        ("other.closeRequest", "other.openChannelRequst"),
    ],
)
def test_a_request_that_is_not_known_is_answered_and_ends_nothing(
    node: Node, first: str, name: str
) -> None:
    package = first[: first.index(".") + 1]
    peer = HarePeer(node, package=package)
    message = make("openChannelRequest", rid="r", cid="c").SerializeToString()
    for one in (first, name):
        peer.send(frame_of(one, message, ""))
    answers = [(got.name, got.message.rid, got.message.cid, got.ok) for got in peer.inbox.got]
    is_open = first.endswith(".openChannelRequest")
    assert answers == [("basicCommonResponse", "r", "c", ok) for ok in (is_open, False)]
    level, line = peer.connection.log[-1]
    assert level == "warning"
    assert (
        line
        == f"{name} refused: the package '{package[:-1]}' has no such request, or is not supported"
    )
    assert peer.open("goes on") == (package != "hz_mq.")


# -- both protocols see the same -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "binding", "hits", "misses"),
    [
        (DIRECT, "red", ["red"], ["", "blue", "red.dark"]),
        (FANOUT, "red", ["red", "", "blue"], []),
        (TOPIC, "news.*.#", ["news.music", "news.music.pop"], ["news", "sport.x"]),
    ],
    ids=["direct", "fanout", "topic"],
)
def test_each_gets_what_the_other_published(
    hare: HarePeer, node: Node, kind: int, binding: str, hits: list[str], misses: list[str]
) -> None:
    assert hare.exchange("x", kind)
    assert hare.queue("for-amqp")
    assert hare.queue("for-hare")
    for queue in ("for-amqp", "for-hare"):
        assert hare.bind("x", queue, binding)
    amqp = node.connect()
    for key in hits + misses:
        assert hare.publish("x", f"hare {key}", key, id=f"{LONG_ID}{key}")
        amqp.send(amqp_publish(1, "x", key, f"amqp {key}".encode()))
    expected = [f"{who} {key}" for key in hits for who in ("hare", "amqp")]
    assert hare.consume("for-hare")
    assert hare.bodies() == expected
    got = [amqp.call_get("for-amqp", no_ack=True) for _ in expected]
    assert [one.body.decode() for one in got] == expected
    assert {one.routing_key for one in got} == set(hits)
    message_id = f"{LONG_ID}{hits[0]}".encode()
    assert got[0].properties == b"\x10\x80\x01" + bytes((len(message_id),)) + message_id


def test_what_amqp_declared_is_used_and_the_reverse(hare: HarePeer, node: Node) -> None:
    amqp = node.connect()
    amqp.call(1, "exchange.declare", exchange="h", type="headers")
    amqp.declare("q", durable=False)
    amqp.call(1, "queue.bind", queue="q", exchange="h", arguments={"x-match": "all"})
    assert hare.publish("h", "by headers")
    assert hare.publish("", "by name", "q")
    assert hare.consume("q")
    assert hare.bodies() == ["by headers", "by name"]
    assert hare.queue("mine", durable=True)
    amqp.declare("mine")
    assert not hare.exchange("h", DIRECT)
    assert hare.call("deleteQueueRequest", queue_name="q").ok
    assert hare.call("deleteExchangeRequest", exchange_name="h").ok
    assert "q" not in node.vhost.queues.by_name
    assert "h" not in node.vhost.exchanges.by_name


def test_a_push_has_all_that_the_publish_had(hare: HarePeer) -> None:
    setup_queue(hare)
    assert hare.publish("x", "später", "news.x", id=LONG_ID, mode=2)
    assert hare.publish("x", "", "", mode=0)
    assert hare.consume("q", tag="tag")
    first, second = hare.pushes()
    properties = {"id": LONG_ID, "delivery_mode": 2, "routing_key": "news.x"}
    assert first == make(
        "basicConsumeResponse", cid="c1", consumer_tag="tag", body="später", properties=properties
    )
    assert second.body == ""
    assert second.properties.delivery_mode == 1
    assert second.properties.id


# -- consumers -------------------------------------------------------------------------------------


def test_messages_wait_without_a_consumer_and_are_requeued_when_one_goes(hare: HarePeer) -> None:
    setup_queue(hare)
    for number in range(3):
        assert hare.publish("x", str(number), id=f"id{number}")
    other = beside(hare)
    assert other.consume("q")
    assert other.bodies() == ["0", "1", "2"]
    assert other.ack("q", "id1")
    other.lose()
    assert hare.consume("q")
    assert hare.bodies() == ["0", "2"]
    assert hare.cancel("q")
    assert hare.consume("q", tag="again")
    assert hare.bodies() == ["0", "2", "0", "2"]
    assert hare.call("closeChannelRequest").ok
    third = beside(hare)
    assert third.consume("q")
    assert third.bodies() == ["0", "2"]


def test_no_push_comes_with_the_answer_of_the_consume_or_within_a_millisecond(
    hare: HarePeer, node: Node
) -> None:
    setup_queue(hare)
    assert hare.publish("x", "waits")
    hare.send(frame("basicConsumeRequest", rid="c", cid="c1", consumer_tag="t", queue_name="q"))
    answered = node.clock.wall_ms()
    assert hare.inbox.got[-1].message.rid == "c"
    writes = hare.inbox.writes
    while not hare.pushed():
        node.clock.advance(1)
        node.now()
        node.run()
    # The clock counts whole ms: of two of them one has passed.
    assert node.clock.wall_ms() - answered >= 2
    assert hare.inbox.got[-1].write > writes
    # Later ones come at once.
    assert hare.publish("x", "later")
    assert [push.body for push in hare.pushed()] == ["waits", "later"]


def test_a_consume_behind_a_durable_declare_waits_for_its_answer(
    hare: HarePeer, node: Node
) -> None:
    setup_queue(hare)
    assert hare.publish("x", "waits")
    hare.send(
        frame("declareQueueRequest", rid="d", cid="c1", queue_name="durable", durable=True),
        frame("basicConsumeRequest", rid="c", cid="c1", consumer_tag="t", queue_name="q"),
    )
    before = len(hare.inbox.got)
    assert hare.pushes() == []
    node.sync()
    assert [got.message.rid for got in hare.inbox.got[before:]] == ["d", "c"]
    assert hare.bodies() == ["waits"]


def test_a_channel_has_one_consumer(hare: HarePeer) -> None:
    setup_queue(hare)
    assert hare.consume("q", tag="a")
    assert not hare.consume("q", tag="b")
    assert not hare.cancel("q", "b")
    assert not hare.cancel("other", "a")
    assert hare.cancel("q", "a")
    assert not hare.cancel("q", "a")
    assert hare.consume("q", tag="b")


def test_a_consumer_that_ends_before_its_first_push_gets_none(hare: HarePeer) -> None:
    setup_queue(hare)
    assert hare.publish("x", "waits")
    assert hare.consume("q")
    assert hare.cancel("q")
    assert hare.pushes() == []
    assert hare.consume("q")
    assert hare.call("closeChannelRequest").ok
    assert hare.pushes() == []


def test_a_closed_channel_gets_no_push_and_takes_no_request(hare: HarePeer) -> None:
    setup_queue(hare)
    assert hare.consume("q")
    assert hare.pushes() == []
    assert hare.call("closeChannelRequest").ok
    assert not hare.publish("x", "to nobody")
    publisher = beside(hare)
    assert publisher.publish("x", "waits")
    assert hare.pushes() == []
    assert not hare.call("closeChannelRequest").ok
    assert not hare.ack("q", "any")
    assert not hare.call("basicQueryRequest").name.startswith("basicQuery")
    assert hare.open("c1")
    assert hare.consume("q")
    assert hare.bodies() == ["waits"]


def test_a_deleted_queue_ends_its_consumer_without_a_word(hare: HarePeer) -> None:
    setup_queue(hare)
    assert hare.consume("q")
    hare.pushes()
    before = len(hare.inbox.got)
    assert hare.call("deleteQueueRequest", queue_name="q").ok
    assert len(hare.inbox.got) == before + 1
    assert not hare.cancel("q")
    assert hare.queue("other")
    assert hare.consume("other")


def test_what_was_pushed_from_a_deleted_queue_is_forgotten(hare: HarePeer) -> None:
    setup_queue(hare)
    assert hare.publish("x", "gone", id="id")
    assert hare.consume("q")
    assert hare.bodies() == ["gone"]
    assert hare.call("deleteQueueRequest", queue_name="q").ok
    assert len(hare.shared.deliveries) == 0
    assert hare.queue("q")
    assert hare.publish("", "new", "q", id="id")
    assert hare.ack("q", "id")
    assert hare.consume("q")
    assert hare.bodies() == ["gone", "new"]


@pytest.mark.parametrize("auto_ack", [True, False], ids=["automatic", "acked"])
def test_a_stream_is_consumed_from_its_next_message_on(
    hare: HarePeer, node: Node, auto_ack: bool
) -> None:
    assert hare.queue("s", durable=True, args={"x-queue-type": "stream"})
    assert hare.publish("", "before", "s")
    assert hare.consume("s", auto_ack=auto_ack)
    hare.pushes()
    assert hare.publish("", "after", "s", id="id")
    assert hare.bodies() == ["after"]
    assert hare.ack("s", "id")
    assert len(hare.shared.deliveries) == 0


def test_an_auto_delete_queue_goes_with_its_consumer(hare: HarePeer, node: Node) -> None:
    assert hare.queue("q", auto_delete=True)
    assert hare.consume("q")
    assert hare.cancel("q")
    assert "q" not in node.vhost.queues.by_name


def test_an_exclusive_queue_is_its_connections(hare: HarePeer, node: Node) -> None:
    assert hare.queue("q", exclusive=True, durable=True)
    assert hare.queue("q", exclusive=True, durable=True)
    assert not beside(hare).consume("q")
    hare.lose()
    assert "q" not in node.vhost.queues.by_name


# -- acks ------------------------------------------------------------------------------------------


def test_acks_come_from_any_channel_and_connection_and_for_what_is_gone(
    hare: HarePeer, node: Node
) -> None:
    setup_queue(hare)
    for number in range(3):
        assert hare.publish("x", str(number), id=f"id{number}")
    assert hare.consume("q")
    assert len(hare.pushes()) == 3
    queue = node.classic("q")
    assert hare.open("c2")
    assert hare.ack("q", "id0")
    assert queue.unacked_count == 2
    other = beside(hare)
    assert other.ack("q", "id1")
    assert queue.unacked_count == 1
    for gone in ("id0", "id1", "never"):
        assert other.ack("q", gone)
    assert other.ack("no queue", "id2")
    assert queue.unacked_count == 1
    hare.lose()
    assert queue.ready_count() == 1


def test_with_automatic_acks_messages_are_acked_as_they_leave(hare: HarePeer, node: Node) -> None:
    setup_queue(hare)
    assert hare.publish("x", "one", id="id")
    assert hare.consume("q", auto_ack=True)
    assert hare.bodies() == ["one"]
    assert node.classic("q").unacked_count == 0
    assert hare.ack("q", "id")
    assert hare.call("closeChannelRequest").ok
    assert node.classic("q").ready_count() == 0


def test_the_ack_of_an_automatic_consumer_means_no_other_delivery(
    hare: HarePeer, node: Node
) -> None:
    setup_queue(hare)
    other = beside(hare)
    assert hare.consume("q", auto_ack=True)
    assert other.consume("q")
    hare.pushes()
    for _ in range(2):
        assert hare.publish("x", "same", id="id")
    assert [len(peer.pushes()) for peer in (hare, other)] == [1, 1]
    assert hare.ack("q", "id")
    assert node.classic("q").unacked_count == 1
    assert other.ack("q", "id")
    assert node.classic("q").unacked_count == 0


def test_each_push_that_waits_for_its_ack_has_an_id_of_its_own(hare: HarePeer, node: Node) -> None:
    setup_queue(hare)
    amqp = node.connect()
    number = int(node.classic("q").queue_id)
    amqp.send(amqp_publish(1, "x", "", b"a", message_id=f"leveret-{number}-2"))
    for _ in range(2):
        amqp.send(amqp_publish(1, "x", "", b"none"))
        amqp.send(amqp_publish(1, "x", "", b"same", message_id="same"))
    assert hare.consume("q")
    ids = [push.properties.id for push in hare.pushes()]
    assert len(set(ids)) == 5
    assert ids[2] == "same"
    for one in ids:
        assert hare.ack("q", one)
    assert node.classic("q").unacked_count == 0


@pytest.mark.one_build
def test_a_channel_holds_so_many_unacked(hare: HarePeer, node: Node) -> None:
    setup_queue(hare)
    amqp = node.connect()
    amqp.send(*[amqp_publish(1, "x", "", b"") for _ in range(HAREMQ_UNACKED_MAX + 1)])
    assert hare.consume("q")
    pushes = hare.pushes()
    assert len(pushes) == HAREMQ_UNACKED_MAX
    assert hare.ack("q", pushes[5].properties.id)
    assert len(hare.pushes()) == HAREMQ_UNACKED_MAX + 1


# -- durability ------------------------------------------------------------------------------------


def test_durable_publishes_and_declares_are_answered_after_their_sync(
    hare: HarePeer, node: Node
) -> None:
    setup_queue(hare, durable=True)
    properties = {"delivery_mode": 2}
    before = len(hare.inbox.got)
    hare.send(
        frame("basicPublishRequest", rid="p", cid="c1", exchange_name="x", properties=properties),
        frame("basicPublishRequest", rid="t", cid="c1", exchange_name="x"),
        frame("declareQueueRequest", rid="d", cid="c1", queue_name="d", durable=True),
        frame("closeChannelRequest", rid="e", cid="c1"),
    )
    assert hare.inbox.got[before:] == []
    node.sync()
    assert [got.message.rid for got in hare.inbox.got[before:]] == ["p", "t", "d", "e"]
    assert all(got.ok for got in hare.inbox.got[before:])


def test_what_waits_for_its_sync_is_limited(hare: HarePeer, node: Node) -> None:
    setup_queue(hare, durable=True)
    one = frame(
        "basicPublishRequest", rid="p", cid="c1", exchange_name="x", properties={"delivery_mode": 2}
    )
    before = len(hare.inbox.got)
    hare.send(one * (HAREMQ_ANSWERS_WAITING_MAX + 5))
    assert node.classic("q").ready_count() == HAREMQ_ANSWERS_WAITING_MAX
    assert hare.inbox.got[before:] == []
    node.sync()
    assert node.classic("q").ready_count() == HAREMQ_ANSWERS_WAITING_MAX + 5
    assert len(hare.inbox.got) - before == HAREMQ_ANSWERS_WAITING_MAX + 5


def test_long_answers_that_wait_for_a_sync_are_limited_by_their_bytes(hare: HarePeer) -> None:
    for number in range(600):
        assert hare.queue(f"{number:0>250}")
    assert hare.queue("durable", durable=True)
    query = frame("basicQueryRequest", rid="query", cid="c1")
    publish = frame(
        "basicPublishRequest",
        rid="publish",
        cid="c1",
        body="x",
        properties={"delivery_mode": 2, "routing_key": "durable"},
    )
    before = len(hare.inbox.got)
    hare.send(publish, query * 60)
    assert hare.inbox.got[before:] == []
    waiting = 60 - hare.connection.input_bytes_held() // len(query)
    hare.node.sync()
    assert len(hare.inbox.got) - before == 61
    # The limit is passed by two answers at most.
    size = len(hare.inbox.got[-1].message.body)
    assert OUTPUT_BYTES_MAX // size <= waiting <= OUTPUT_BYTES_MAX // size + 2


def test_a_full_queue_refuses_and_the_answer_says_so(hare: HarePeer) -> None:
    setup_queue(hare, args={"x-max-length": "1", "x-overflow": "reject-publish"})
    assert hare.publish("x", "fits")
    assert not hare.publish("x", "does not")


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [0, 4, 77, -1])
def test_an_exchange_type_beyond_the_three_is_refused(hare: HarePeer, kind: int) -> None:
    assert not hare.exchange("x", kind)


@pytest.mark.parametrize("mode", [0, 1, 3, 127, 128, 2**31 - 1, -1])
def test_a_delivery_mode_other_than_durable_is_transient(
    hare: HarePeer, node: Node, mode: int
) -> None:
    setup_queue(hare, durable=True)
    assert hare.publish("x", "transient", mode=mode)
    assert not node.classic("q").ready.waiting()[0].message.persistent


@pytest.mark.parametrize("behind", [b"", b"\x0a\x01r"], ids=["as protobuf writes it", "otherwise"])
@pytest.mark.parametrize("size", [4, HAREMQ_REQUEST_BYTES_MAX], ids=["short", "long"])
@pytest.mark.parametrize(
    ("properties", "persistent"),
    [(b"", True), (b"\x2a\x00", False), (b"\x2a\x02\x10\x02", True)],
    ids=["absent", "empty", "durable"],
)
def test_a_message_whose_properties_were_left_out_is_as_durable_as_its_queue(
    hare: HarePeer, node: Node, properties: bytes, persistent: bool, size: int, behind: bytes
) -> None:
    setup_queue(hare, durable=True)
    fields = make("basicPublishRequest", rid="r", cid="c1", exchange_name="x", body="b" * size)
    message = fields.SerializeToString() + properties + behind
    hare.send(frame_of("basicPublishRequest", message))
    assert node.classic("q").ready.waiting()[0].message.persistent == persistent


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        ({"x-max-length": "5"}, {"x-max-length": 5}),
        ({"x-delivery-limit": "-1"}, {"x-delivery-limit": -1}),
        ({"x-single-active-consumer": "true"}, {"x-single-active-consumer": True}),
        ({"x-overflow": "reject-publish"}, {"x-overflow": "reject-publish"}),
        ({"unknown": "5", "other": "true"}, {"unknown": "5", "other": "true"}),
    ],
)
def test_arguments_become_what_amqp_would_have_sent(
    hare: HarePeer, node: Node, args: dict[str, str], kept: dict[str, object]
) -> None:
    assert hare.queue("q", args=args)
    assert node.classic("q").arguments == kept
    node.connect().declare("q", durable=False, arguments=kept)


@pytest.mark.parametrize(
    "args",
    [
        {"x-max-length": "many"},
        {"x-max-length": "-1"},
        {"x-max-length": "9" * 19},
        {"x-max-length": "٣"},
        {"x-max-length": "-"},
        {"x-single-active-consumer": "maybe"},
        {"x-overflow": "explode"},
        {"x-queue-type": "stream"},
        {"x-super-stream-partitions": "3"},
        {"n" * 256: ""},
        {"n": "v" * 131_072},
        {str(number): "" for number in range(4097)},
    ],
    ids=lambda args: next(iter(args))[:20],
)
def test_arguments_that_cannot_be_are_refused(hare: HarePeer, args: dict[str, str]) -> None:
    assert not hare.queue("q", args=args)


def test_names_and_ids_have_their_limits(hare: HarePeer) -> None:
    setup_queue(hare)
    fits, long = "ä" * 127 + "x", "ä" * 128
    assert hare.exchange(fits, FANOUT)
    assert not hare.exchange(long, FANOUT)
    assert hare.queue(fits)
    assert not hare.queue(long)
    assert not hare.queue("")
    assert hare.bind("x", "q", fits)
    assert not hare.bind("x", "q", long)
    assert hare.publish("x", "", fits)
    assert not hare.publish("x", "", long)
    assert not hare.publish(long, "")
    assert hare.publish("x", "", id=fits)
    assert not hare.publish("x", "", id=long)
    assert not hare.consume("q", tag=long)
    assert hare.consume("q", tag=fits)
    assert not hare.open("")
    assert hare.open("i" * HAREMQ_ID_BYTES_MAX)
    hare.send(frame("openChannelRequest", rid="r", cid="i" * (HAREMQ_ID_BYTES_MAX + 1)))
    assert not hare.is_open()


def test_what_is_not_there_is_refused(hare: HarePeer) -> None:
    assert not hare.publish("none", "")
    assert not hare.bind("none", "none")
    assert not hare.consume("none")
    assert not hare.exchange("amq.mine")
    assert not hare.queue("amq.mine")
    assert not hare.queue("amq.rabbitmq.reply-to")
    assert not hare.call("deleteExchangeRequest", exchange_name="amq.direct").ok
    # As over AMQP, nothing is to be done for these.
    assert hare.call("deleteQueueRequest", queue_name="none").ok
    assert hare.call("deleteExchangeRequest", exchange_name="none").ok
    assert hare.call("unbindRequest", exchange_name="none", queue_name="none").ok


def test_an_unbind_removes_every_binding_of_the_pair(hare: HarePeer, node: Node) -> None:
    assert hare.exchange("x", TOPIC)
    assert hare.exchange("y", TOPIC)
    assert hare.queue("q")
    for key in ("a", "b", "c.#"):
        assert hare.bind("x", "q", key)
    assert hare.bind("y", "q", "kept")
    assert hare.call("unbindRequest", exchange_name="x", queue_name="q").ok
    found = node.vhost.exchanges.bindings_to(node.classic("q"))
    assert [(one.source.name, one.binding_key) for one in found] == [("y", "kept")]


def test_channels_are_limited(node: Node) -> None:
    node.settings = SessionSettings("test", channels_max=2)
    hare = HarePeer(node)
    assert hare.open("a")
    assert hare.open("b")
    assert hare.open("a")
    assert not hare.open("c")
    hare.cid = "a"
    assert hare.call("closeChannelRequest").ok
    assert hare.open("c")


def test_a_body_over_the_limit_is_refused(node: Node) -> None:
    node.settings = SessionSettings("test", message_bytes_max=10)
    hare = HarePeer(node)
    hare.open()
    setup_queue(hare)
    assert hare.publish("x", "0123456789")
    assert not hare.publish("x", "0123456789a")


def test_refusals_are_logged_but_not_without_end(hare: HarePeer) -> None:
    for _ in range(HAREMQ_REFUSALS_LOGGED_MAX + 5):
        assert not hare.publish("none", "")
    log = hare.connection.log
    assert len(log) == HAREMQ_REFUSALS_LOGGED_MAX
    assert log[0] == ("warning", "basicPublishRequest refused: no exchange 'none' in vhost '/'")
    assert log[-1][1].endswith("the next ones are not logged")


# -- rights ----------------------------------------------------------------------------------------


def test_the_user_has_its_rights_and_no_others(node: Node) -> None:
    setup_queue(boss := _opened(node, "guest"))
    boss.queue("secret")
    node.add_user("limited", configure="^mine", write="^(x|mine)", read="^(q|x)$")
    hare = _opened(node, "limited")
    assert not hare.queue("other")
    assert hare.queue("mine")
    assert not hare.exchange("other")
    assert hare.bind("x", "mine")
    assert not hare.bind("x", "secret")
    assert not hare.consume("secret")
    assert not hare.consume("mine")
    assert hare.publish("x", "")
    assert not hare.publish("", "", "mine")
    assert not hare.call("deleteQueueRequest", queue_name="secret").ok
    assert "secret" not in hare.call("basicQueryRequest").message.body
    assert not hare.queue("mine-too", args={"x-dead-letter-exchange": "x"})


def test_rights_that_go_end_consumers_and_publishes(node: Node) -> None:
    setup_queue(_opened(node, "guest"))
    node.add_user("limited", configure="", write=".*", read=".*")
    hare = _opened(node, "limited")
    assert hare.consume("q")
    assert hare.publish("x", "seen")
    assert hare.bodies() == ["seen"]
    node.broker.users.set_permission("limited", "/", "", "", "")
    node.run()
    assert not hare.publish("x", "refused")
    _opened(node, "guest").publish("x", "unseen")
    assert hare.bodies() == ["seen"]
    node.broker.users.delete("limited")
    node.run()
    assert not hare.is_open()


def _opened(node: Node, user: str) -> HarePeer:
    peer = HarePeer(node, user=user)
    assert peer.open()
    return peer


@pytest.mark.parametrize(
    ("user", "host", "why"),
    [
        ("nobody", "127.0.0.1", "access to vhost '/' refused"),
        ("guest", "192.0.2.1", "can only connect via localhost"),
    ],
)
def test_who_may_not_enter_is_turned_away(node: Node, user: str, host: str, why: str) -> None:
    hare = HarePeer(node, user=user, host=host)
    node.run()
    assert not hare.is_open()
    assert why in hare.connection.log[0][1]


def test_connections_of_the_vhost_are_limited(node: Node) -> None:
    node.vhost.metadata.set({}, {"max-connections": 1})
    first = _opened(node, "guest")
    second = HarePeer(node)
    node.run()
    assert not second.is_open()
    first.lose()
    assert _opened(node, "guest").is_open()


# -- texts -----------------------------------------------------------------------------------------


def test_what_is_no_text_is_pushed_with_replacements(hare: HarePeer, node: Node) -> None:
    setup_queue(hare)
    amqp = node.connect()
    amqp.send(amqp_publish(1, "x", "", b"a\xff\xfeb", message_id="id"))
    assert hare.consume("q")
    assert hare.bodies() == ["a\ufffd\ufffdb"]
    assert any("not UTF-8" in text for _, text in hare.connection.log)
    hare.lose()
    assert amqp.call_get("q").body == b"a\xff\xfeb"


def test_a_body_that_fits_no_frame_waits_for_another_client(hare: HarePeer, node: Node) -> None:
    setup_queue(hare)
    amqp = node.connect()
    large = bytes(64 * 1024 * 1024)
    amqp.send(amqp_publish(1, "x", "", large), amqp_publish(1, "x", "", b"small"))
    assert hare.consume("q", auto_ack=True)
    assert hare.bodies() == ["small"]
    assert any("too long" in text for _, text in hare.connection.log)
    assert hare.cancel("q")
    assert amqp.call_get("q").body == large


# -- backpressure and alarms -----------------------------------------------------------------------


def test_a_client_that_does_not_read_is_not_fed(hare: HarePeer) -> None:
    setup_queue(hare)
    body = "x" * 10_000
    count = 8 * OUTPUT_BYTES_HIGH // len(body)
    for _ in range(count):
        assert hare.publish("x", body)
    deaf = beside(hare)
    assert deaf.consume("q", auto_ack=True)
    deaf.reads = False
    deaf.pushes()
    held = sum(map(len, deaf.waiting))
    assert OUTPUT_BYTES_HIGH < held < 2 * OUTPUT_BYTES_HIGH + 2 * len(body)
    deaf.read_on()
    assert len(deaf.pushes()) == count


def test_the_memory_alarm_stops_publishers_and_no_others() -> None:
    node = Node(memory_bytes_max=100_000)
    hare = HarePeer(node)
    hare.open()
    setup_queue(hare)
    consumer = beside(hare)
    one = frame("basicPublishRequest", rid="p", cid="c1", exchange_name="x", body="x" * 60_000)
    hare.send(one, one)
    assert node.broker.blocked
    before = node.classic("q").ready_count()
    hare.send(one, one, one)
    assert node.classic("q").ready_count() == before + 1
    assert consumer.consume("q", auto_ack=True)
    consumer.pushes()
    node.run()
    assert len(consumer.pushes()) == 5


def test_a_query_lists_what_there_is_up_to_a_limit(hare: HarePeer) -> None:
    setup_queue(hare)
    answer = hare.call("basicQueryRequest")
    assert answer.name == "basicQueryResponse"
    assert "x<-->q, binding_key: " in answer.message.body
    assert "amq.topic" in answer.message.body
    for number in range(HAREMQ_LISTED_MAX):
        hare.queue(f"more{number}")
    body = hare.call("basicQueryRequest").message.body
    assert "and more" in body
    assert body.count("more") == HAREMQ_LISTED_MAX
