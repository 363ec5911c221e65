"""Behaviours 17-30: publishing, returns, confirms and transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.brokers.brokers import Broker, Client, need_own_broker, running_broker, unique
from support.wire import raw

PUBLISH = (60, 40)


# -- 17, 18, 19: what a publish is refused for


def test_b17_immediate_is_540(connection: raw.Connection, name: str) -> None:
    """17: RabbitMQ has no immediate; the connection ends."""
    connection.declare(1, name, exclusive=True)
    connection.send(raw.publish(1, "", name, b"x", immediate=True))
    connection.expect_connection_close(540, "NOT_IMPLEMENTED - immediate=true", PUBLISH)


def test_b17_immediate_is_offered_where_the_broker_is_not_rabbitmq(
    bytewise: bool, name: str, tmp_path: Path
) -> None:
    """17: 313 without a consumer, a delivery with one; each before its confirm or beside it."""
    need_own_broker()
    with (
        running_broker(tmp_path, {"compatibility": "leveret"}) as own,
        raw.connect(own.uri, bytewise=bytewise) as connection,
    ):
        connection.open_channel(1)
        connection.declare(1, name, exclusive=True)
        connection.call(1, "confirm.select")
        connection.send(raw.publish(1, "", name, b"one", immediate=True))
        returned = connection.expect(1, "basic.return")
        assert (returned.code, returned.text, returned.body) == (313, "NO_CONSUMERS", b"one")
        assert connection.expect(1, "basic.ack").delivery_tag == 1
        connection.call(1, "basic.consume", queue=name, no_ack=True)
        connection.send(raw.publish(1, "", name, b"two", immediate=True))
        got = {
            method.name: method for method in (connection.next_method(), connection.next_method())
        }
        assert got["basic.deliver"].body == b"two"
        assert got["basic.ack"].delivery_tag == 2


def test_b18_missing_exchange_is_404(connection: raw.Connection, name: str) -> None:
    """18: the channel closes; the connection's other channels go on."""
    connection.open_channel(2)
    connection.send(raw.publish(1, name, "key", b"x"))
    text = f"NOT_FOUND - no exchange '{name}' in vhost '/'"
    connection.expect_channel_close(1, 404, text, PUBLISH)
    connection.sync(2)


def test_b18_later_publishes_of_the_channel_are_dropped(
    connection: raw.Connection, name: str
) -> None:
    """18: earlier publishes count, those after the wrong one do not."""
    connection.open_channel(2)
    connection.declare(2, name, exclusive=True)
    connection.send(
        raw.publish(1, "", name, b"before"),
        raw.publish(1, unique("missing"), "key", b"wrong"),
        raw.publish(1, "", name, b"after"),
        raw.publish(1, "", name, b"after"),
    )
    connection.expect_channel_close(1, 404)
    connection.open_channel(1)
    connection.sync(1)
    assert connection.drain(2, name) == [b"before"]


def test_b18_no_confirm_for_a_publish_that_failed(connection: raw.Connection, name: str) -> None:
    """18: a refused publish is neither acked nor nacked: the channel's close is the answer."""
    connection.call(1, "confirm.select")
    connection.send(raw.publish(1, unique("missing"), "key", b"wrong"))
    connection.send(raw.publish(1, "", name, b"after"))
    connection.expect_channel_close(1, 404)
    connection.open_channel(1)
    connection.sync(1)


def test_b19_internal_exchange_is_403(connection: raw.Connection, name: str) -> None:
    """19: clients do not publish to an internal exchange."""
    connection.call(1, "exchange.declare", exchange=name, type="fanout", internal=True)
    connection.send(raw.publish(1, name, "", b"x"))
    text = f"ACCESS_REFUSED - cannot publish to internal exchange '{name}' in vhost '/'"
    connection.expect_channel_close(1, 403, text, PUBLISH)
    connection.open_channel(1)
    connection.call(1, "exchange.delete", exchange=name)


def test_b19_internal_exchange_takes_what_an_exchange_routes(
    connection: raw.Connection, name: str
) -> None:
    """19: it is there for exchange-to-exchange bindings."""
    connection.call(1, "exchange.declare", exchange=name, type="fanout", internal=True)
    outer = name + "-outer"
    connection.call(1, "exchange.declare", exchange=outer, type="fanout", auto_delete=True)
    connection.call(1, "exchange.bind", destination=name, source=outer)
    connection.declare(1, name, exclusive=True)
    connection.call(1, "queue.bind", queue=name, exchange=name)
    connection.send(raw.publish(1, outer, "", b"through"))
    assert connection.drain(1, name) == [b"through"]
    connection.call(1, "exchange.delete", exchange=name)


def test_b20_body_beyond_the_largest_is_406_at_its_header(
    connection: raw.Connection, name: str, broker: Broker
) -> None:
    """20: seen from the header, before a byte of the body; 128 MiB, as in 3.10."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ 3.10 looks at the size only when the body is whole")
    head = raw.method(1, "basic.publish", routing_key=name)
    connection.send(head, raw.header(1, 128 * 1024 * 1024 + 1))
    connection.expect_channel_close(1, 406, "PRECONDITION_FAILED - message size")
    connection.open_channel(1)
    connection.sync(1)


@pytest.mark.parametrize("most", [0, 1, 262_144])
def test_b20_body_at_a_set_limit_passes_and_one_past_it_does_not(
    most: int, bytewise: bool, name: str, tmp_path: Path
) -> None:
    """20: `message_bytes_max` is the size that passes, whatever it is set to."""
    need_own_broker()
    settings = {"message_bytes_max": str(most)}
    with (
        running_broker(tmp_path, settings) as small,
        raw.dial(small.uri).handshake() as connection,
    ):
        connection.open_channel(1)
        connection.declare(1, name, exclusive=True)
        connection.send(raw.publish(1, "", name, bytes(most)))
        got = connection.get(1, name)
        assert got is not None
        assert got.body == bytes(most)
        connection.bytewise = bytewise
        head = raw.method(1, "basic.publish", routing_key=name)
        connection.send(head, raw.header(1, most + 1))
        connection.expect_channel_close(
            1, 406, f"PRECONDITION_FAILED - message size {most + 1} is larger than configured max "
            f"size {most}", PUBLISH
        )  # fmt: skip


def test_b20_body_of_20_mb_passes(whole: Client, name: str) -> None:
    """20: what real programs send to a broker of default settings, in and out."""
    connection = whole()
    connection.declare(1, name, exclusive=True)
    body = bytes(range(256)) * 80_000
    connection.send(raw.publish(1, "", name, body))
    got = connection.get(1, name)
    assert got is not None
    assert got.body == body


def test_b20_a_large_body_reaches_a_peer_that_reads_late(whole: Client, name: str) -> None:
    """20: more than the sockets hold waits for the reader, and close-ok comes behind it."""
    connection = whole()
    connection.declare(1, name, exclusive=True)
    body = bytes(range(256)) * 65_536
    connection.send(raw.publish(1, "", name, body), raw.method(1, "basic.get", queue=name))
    connection.send(raw.method(0, "connection.close", code=200))
    assert connection.expect(1, "basic.get-ok").body == body
    connection.expect(0, "connection.close-ok")
    connection.expect_end()


# -- 24, 25, 30: confirms and returns


def test_b24_return_comes_before_the_confirm(connection: raw.Connection, name: str) -> None:
    """24: basic.return 312 and then basic.ack of the same message."""
    connection.call(1, "confirm.select")
    props: dict[str, Any] = {"headers": {"a": 1}, "message_id": "m1"}
    connection.send(raw.publish(1, "", name, b"body", mandatory=True, **props))
    returned = connection.expect(1, "basic.return")
    assert (returned.code, returned.text) == (312, "NO_ROUTE")
    assert (returned.exchange, returned.routing_key) == ("", name)
    assert (returned.body, returned.properties) == (b"body", raw.properties(**props))
    ack = connection.expect(1, "basic.ack")
    assert ack.delivery_tag == 1


def test_b24_mandatory_without_confirms(connection: raw.Connection, name: str) -> None:
    """24: a routed one is not returned, an unroutable one is, with its whole body."""
    connection.declare(1, name, exclusive=True)
    body = b"z" * 70_000
    connection.send(
        raw.publish(1, "amq.direct", name + "nowhere", body[:300], mandatory=True),
        raw.publish(1, "", name, b"routed", mandatory=True),
        raw.publish(1, "amq.topic", name + ".a.b", b"", mandatory=True),
    )
    first, second = (connection.expect(1, "basic.return") for _ in range(2))
    assert (first.exchange, first.routing_key, first.body) == (
        "amq.direct", name + "nowhere", body[: 300],
    )  # fmt: skip
    assert (second.exchange, second.routing_key, second.body) == ("amq.topic", name + ".a.b", b"")
    assert connection.drain(1, name) == [b"routed"]


def test_b24_large_body_is_returned_in_frames(whole: Client, name: str) -> None:
    """24: a body of several frames comes back whole."""
    connection = whole(raw.Login(frame_max=4096))
    body = bytes(range(256)) * 100
    head = raw.method(1, "basic.publish", routing_key=name, mandatory=True)
    connection.send(head, raw.content(1, body, piece=4088))
    assert connection.expect(1, "basic.return").body == body


def test_b25_unroutable_is_confirmed_at_once(connection: raw.Connection, name: str) -> None:
    """25: without mandatory it is acked and forgotten."""
    connection.call(1, "confirm.select")
    connection.send(raw.publish(1, "amq.direct", name, b"x", delivery_mode=2))
    assert connection.expect(1, "basic.ack").fields == {"delivery_tag": 1, "multiple": False}


def read_confirms(connection: raw.Connection, count: int) -> list[int]:
    """The tags confirmed, until `count`; each exactly once, whether multiple or single."""
    open_tags = set(range(1, count + 1))
    order = []
    while open_tags:
        got = connection.next_method()
        if got.name == "basic.return":
            continue
        assert got.name == "basic.ack", got
        tags = (
            {t for t in open_tags if t <= got.delivery_tag} if got.multiple else {got.delivery_tag}
        )
        assert tags <= open_tags
        assert tags
        open_tags -= tags
        order += sorted(tags)
    return order


def test_b30_confirms_count_every_publish_from_1(connection: raw.Connection, name: str) -> None:
    """30: routed, unroutable and returned ones; publishes before confirm.select do not count."""
    connection.declare(1, name, exclusive=True)
    connection.send(raw.publish(1, "", name, b"uncounted"))
    connection.call(1, "confirm.select")
    parts = [
        raw.publish(1, "", name, b"1"),
        raw.publish(1, "", name + "nowhere", b"2"),
        raw.publish(1, "", name + "nowhere", b"3", mandatory=True),
        raw.publish(1, "", name, b"4", delivery_mode=2),
    ]
    connection.send(*parts)
    read_confirms(connection, 4)
    connection.send(raw.publish(1, "", name, b"5"))
    assert connection.expect(1, "basic.ack").delivery_tag == 5
    assert connection.drain(1, name) == [b"uncounted", b"1", b"4", b"5"]


def test_b30_persistent_confirms_on_a_durable_queue(whole: Client, name: str) -> None:
    """30: many at once; each is confirmed once, whatever the batches."""
    connection = whole()
    connection.declare(1, name, durable=True)
    connection.call(1, "confirm.select")
    connection.send(*[raw.publish(1, "", name, b"%d" % i, delivery_mode=2) for i in range(500)])
    read_confirms(connection, 500)
    assert connection.call(1, "queue.delete", queue=name).message_count == 500


def test_b27_queue_deleted_while_the_confirm_is_pending(
    connection: raw.Connection, name: str
) -> None:
    """27: the publisher gets its ack all the same."""
    connection.call(1, "confirm.select")
    connection.open_channel(2)
    connection.declare(2, name, durable=True)
    connection.send(
        raw.publish(1, "", name, b"x", delivery_mode=2), raw.method(2, "queue.delete", queue=name)
    )
    names = sorted(connection.next_method().name for _ in range(2))
    assert names == ["basic.ack", "queue.delete-ok"]


# -- 26: refusals


def full_and_open(connection: raw.Connection, name: str) -> tuple[str, str]:
    """Two queues bound to the fanout exchange `name`; the first has no room left."""
    full, other = name + "-full", name + "-open"
    reject = {"x-max-length": 1, "x-overflow": "reject-publish"}
    connection.declare(1, full, exclusive=True, arguments=reject)
    connection.declare(1, other, exclusive=True)
    connection.call(1, "exchange.declare", exchange=name, type="fanout", auto_delete=True)
    for queue in (full, other):
        connection.call(1, "queue.bind", queue=queue, exchange=name)
    connection.send(raw.publish(1, name, "", b"fills"))
    connection.sync(1)
    assert connection.declare(1, full, passive=True).message_count == 1
    return full, other


def test_b26_a_queue_without_room_causes_a_nack(connection: raw.Connection, name: str) -> None:
    """26: one of several queues refuses: nack, and the others keep the message."""
    full, other = full_and_open(connection, name)
    connection.call(1, "confirm.select")
    for tag, body in enumerate((b"a", b"b"), 1):
        connection.send(raw.publish(1, name, "", body, mandatory=True))
        assert connection.expect(1, "basic.nack").delivery_tag == tag
    assert connection.drain(1, other) == [b"fills", b"a", b"b"]
    assert connection.drain(1, full) == [b"fills"]
    connection.send(raw.publish(1, name, "", b"c"))
    assert connection.expect(1, "basic.ack").delivery_tag == 3


def test_b26_acks_and_nacks_together_settle_all(connection: raw.Connection, name: str) -> None:
    """26: whatever their order and `multiple`, each publish gets the confirm that is its own."""
    full, other = full_and_open(connection, name)
    connection.call(1, "confirm.select")
    targets = [other, full, full, other, other, full, other] * 5
    connection.send(*[raw.publish(1, "", target, b"x") for target in targets])
    open_tags = set(range(1, len(targets) + 1))
    outcomes: dict[int, str] = {}
    while open_tags:
        got = connection.next_method()
        assert got.name in ("basic.ack", "basic.nack")
        tags = {t for t in open_tags if t == got.delivery_tag}
        if got.multiple:
            tags = {t for t in open_tags if t <= got.delivery_tag}
        assert tags
        open_tags -= tags
        outcomes |= dict.fromkeys(tags, got.name)
    wanted = {True: "basic.nack", False: "basic.ack"}
    assert outcomes == {n: wanted[target == full] for n, target in enumerate(targets, 1)}


# -- 28, 29: transactions


def test_b28_confirm_select_twice(connection: raw.Connection, name: str) -> None:
    """28: the second does not start the numbers again."""
    connection.call(1, "confirm.select")
    connection.send(raw.publish(1, "", name, b""))
    assert connection.expect(1, "basic.ack").delivery_tag == 1
    connection.call(1, "confirm.select")
    connection.send(raw.publish(1, "", name, b""))
    assert connection.expect(1, "basic.ack").delivery_tag == 2


def test_b28_confirm_select_no_wait(connection: raw.Connection, name: str) -> None:
    """28: no reply to no-wait."""
    connection.send(raw.method(1, "confirm.select", no_wait=True), raw.publish(1, "", name, b""))
    assert connection.expect(1, "basic.ack").delivery_tag == 1


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        ("confirm.select", "tx.select", "cannot switch from confirm to tx mode"),
        ("tx.select", "confirm.select", "cannot switch from tx to confirm mode"),
        ("", "tx.commit", "channel is not transactional"),
        ("", "tx.rollback", "channel is not transactional"),
    ],
)
def test_b28_tx_and_confirm_exclude_each_other(
    connection: raw.Connection, first: str, second: str, text: str
) -> None:
    """28: 406, as does a commit without a select."""
    if first:
        connection.call(1, first)
    connection.send(raw.method(1, second))
    connection.expect_channel_close(1, 406, f"PRECONDITION_FAILED - {text}")
    connection.open_channel(1)
    connection.sync(1)


def test_b29_publishes_wait_for_commit(connection: raw.Connection, name: str) -> None:
    """29: seen by others only after commit-ok; rolled back ones never; tx.select twice is fine."""
    connection.declare(1, name, exclusive=True)
    connection.call(1, "tx.select")
    connection.call(1, "tx.select")
    connection.send(raw.publish(1, "", name, b"a"), raw.publish(1, "", name, b"b"))
    assert connection.get(1, name) is None
    connection.call(1, "tx.commit")
    connection.send(raw.publish(1, "", name, b"undone"))
    connection.call(1, "tx.rollback")
    connection.call(1, "tx.commit")
    assert connection.drain(1, name) == [b"a", b"b"]


def test_b29_errors_are_raised_when_publishing(connection: raw.Connection, name: str) -> None:
    """29: 404 at the publish, not at the commit; what came before is undone with the channel."""
    connection.open_channel(2)
    connection.declare(2, name, exclusive=True)
    connection.call(1, "tx.select")
    connection.send(raw.publish(1, "", name, b"a"), raw.publish(1, unique("missing"), "", b"b"))
    connection.expect_channel_close(1, 404, "NOT_FOUND - no exchange", PUBLISH)
    connection.open_channel(1)
    connection.sync(1)
    assert connection.drain(2, name) == []


def test_b29_returns_come_before_commit_ok(connection: raw.Connection, name: str) -> None:
    """29: and not before the commit."""
    connection.call(1, "tx.select")
    connection.send(raw.publish(1, "", name, b"one", mandatory=True))
    connection.sync(1)
    connection.send(raw.publish(1, "", name, b"two", mandatory=True), raw.method(1, "tx.commit"))
    assert connection.expect(1, "basic.return").body == b"one"
    assert connection.expect(1, "basic.return").body == b"two"
    connection.expect(1, "tx.commit-ok")


def test_b29_rollback_discards_acks(connection: raw.Connection, name: str) -> None:
    """29: messages stay un-acked to this channel; nothing is requeued until it closes."""
    connection.open_channel(2)
    connection.declare(2, name, exclusive=True)
    connection.send(raw.publish(2, "", name, b"m"))
    connection.sync(2)
    connection.call(1, "tx.select")
    got = connection.get(1, name, no_ack=False)
    assert got is not None
    connection.send(raw.method(1, "basic.ack", delivery_tag=got.delivery_tag))
    connection.call(1, "tx.rollback")
    assert connection.declare(2, name, passive=True).message_count == 0
    connection.send(raw.method(1, "basic.ack", delivery_tag=got.delivery_tag))
    connection.call(1, "tx.commit")
    connection.call(1, "channel.close", code=200)
    assert connection.drain(2, name) == []


def test_b29_uncommitted_acks_are_undone_with_the_channel(
    connection: raw.Connection, name: str
) -> None:
    """29: the message comes back, redelivered."""
    connection.open_channel(2)
    connection.declare(2, name, exclusive=True)
    connection.send(raw.publish(2, "", name, b"m"))
    connection.sync(2)
    connection.call(1, "tx.select")
    got = connection.get(1, name, no_ack=False)
    assert got is not None
    connection.send(raw.method(1, "basic.ack", delivery_tag=got.delivery_tag))
    connection.call(1, "channel.close", code=200)
    again = connection.get(2, name)
    assert again is not None
    assert again.redelivered


def test_b29_commit_acks_and_publishes_together(connection: raw.Connection, name: str) -> None:
    """29: take from one queue, put on another, as one."""
    source, target = name + "-source", name + "-target"
    connection.declare(1, source, durable=True)
    connection.declare(1, target, durable=True)
    connection.send(raw.publish(1, "", source, b"m", delivery_mode=2))
    connection.call(1, "tx.select")
    got = connection.get(1, source, no_ack=False)
    assert got is not None
    connection.send(
        raw.publish(1, "", target, b"moved", delivery_mode=2),
        raw.method(1, "basic.ack", delivery_tag=got.delivery_tag),
    )
    connection.call(1, "tx.commit")
    assert connection.drain(1, target) == [b"moved"]
    assert connection.call(1, "queue.delete", queue=source).message_count == 0
    assert connection.call(1, "queue.delete", queue=target).message_count == 0


def test_b29_unknown_tag_in_a_transaction(connection: raw.Connection) -> None:
    """29: a wrong ack is refused when it is sent, as a wrong publish is."""
    connection.call(1, "tx.select")
    connection.send(raw.method(1, "basic.ack", delivery_tag=5))
    connection.expect_channel_close(1, 406, "PRECONDITION_FAILED - unknown delivery tag 5")


def test_b29_a_refused_publish_makes_the_commit_406(connection: raw.Connection, name: str) -> None:
    """29: with reject-publish the rest of the transaction is done all the same."""
    full, other = full_and_open(connection, name)
    connection.open_channel(2)
    connection.call(2, "tx.select")
    connection.send(
        raw.publish(2, name, "", b"a"),
        raw.publish(2, "", name + "-nowhere", b"r", mandatory=True),
        raw.publish(2, "", other, b"b"),
        raw.method(2, "tx.commit"),
    )
    assert connection.expect(2, "basic.return").body == b"r"
    connection.expect_channel_close(2, 406, "PRECONDITION_FAILED - partial tx completion", (90, 20))
    assert connection.drain(1, other) == [b"fills", b"a", b"b"]
    assert connection.drain(1, full) == [b"fills"]


def test_b29_nacks_and_rejects_wait_for_the_commit(connection: raw.Connection, name: str) -> None:
    """29: requeued at the commit, on a rollback unacked as before."""
    connection.open_channel(2)
    connection.declare(2, name, exclusive=True)
    connection.send(*[raw.publish(2, "", name, b"%d" % number) for number in range(3)])
    connection.sync(2)
    connection.call(1, "tx.select")
    tags = []
    for _ in range(3):
        got = connection.get(1, name, no_ack=False)
        assert got is not None
        tags.append(got.delivery_tag)
    settle = (
        raw.method(1, "basic.nack", delivery_tag=tags[1], multiple=True, requeue=True),
        raw.method(1, "basic.reject", delivery_tag=tags[2], requeue=False),
    )
    connection.send(*settle)
    connection.call(1, "tx.rollback")
    assert connection.get(2, name) is None
    connection.send(*settle)
    connection.sync(1)
    assert connection.get(2, name) is None
    connection.call(1, "tx.commit")
    assert connection.drain(2, name) == [b"0", b"1"]
