"""The faults of the embedded broker, as clients of other people meet them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest

from leveret.testing import Broker, BrokerFailed

#: A channel of pika, which has no types.
Channel = Any

#: A wait that ends by an event; it is as long as a broken broker is to be waited for.
SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def shared() -> Iterator[Broker]:
    """Give a broker to all tests of this file."""
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared: Broker) -> Iterator[Broker]:
    """Give that broker without faults."""
    shared.start()
    yield shared
    shared.start()
    shared.heal()


@pytest.fixture
def connection(broker: Broker) -> Iterator[pika.BlockingConnection]:
    """Give a connection to a vhost of its own."""
    vhost = broker.add_vhost()
    opened = pika.BlockingConnection(pika.URLParameters(vhost.url))
    yield opened
    with contextlib.suppress(pika.exceptions.AMQPError):
        # The broker may have gone meanwhile.
        opened.close()


@pytest.fixture
def channel(connection: pika.BlockingConnection) -> Channel:
    """Give a channel with confirms, and the queue `q`."""
    opened = connection.channel()
    opened.confirm_delivery()
    opened.queue_declare("q", durable=True)
    return opened


def bodies(channel: Channel, queue: str = "q") -> list[bytes]:
    """Take all messages of a queue."""
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


# -- connections -----------------------------------------------------------------------------------


def test_dropped_connections_are_gone_without_a_word(
    broker: Broker, connection: pika.BlockingConnection
) -> None:
    assert broker.connections() == 1
    assert broker.drop_connections() == 1
    assert broker.connections() == 0
    with pytest.raises(pika.exceptions.StreamLostError):
        connection.process_data_events(SECONDS_MAX)
    assert broker.drop_connections() == 0


def test_refused_connections_are_closed_before_a_word(broker: Broker) -> None:
    broker.refuse_next(count=2)
    for _ in range(2):
        with socket.create_connection((broker.host, broker.port)) as refused:
            refused.settimeout(SECONDS_MAX)
            with contextlib.suppress(ConnectionResetError):
                assert refused.recv(1) == b""
    pika.BlockingConnection(pika.URLParameters(broker.url)).close()
    assert broker.connections() == 0


def test_a_refused_connection_gives_its_place_back(broker: Broker) -> None:
    broker.refuse_next(count=1)
    broker.refuse_next(count=0)
    pika.BlockingConnection(pika.URLParameters(broker.url)).close()


def test_a_refused_login_says_403(broker: Broker) -> None:
    broker.refuse_next("login")
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="403"):
        pika.BlockingConnection(pika.URLParameters(broker.url))
    pika.BlockingConnection(pika.URLParameters(broker.url)).close()


def test_a_refused_vhost_says_530(broker: Broker) -> None:
    broker.refuse_next("connection.open", code=530, text="not today")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match=r"530.*not today"):
        pika.BlockingConnection(pika.URLParameters(broker.url))
    pika.BlockingConnection(pika.URLParameters(broker.url)).close()


# -- methods ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "name"), [(403, "ACCESS_REFUSED"), (406, "PRECONDITION_FAILED")])
def test_a_refused_method_closes_its_channel_alone(
    broker: Broker, connection: pika.BlockingConnection, code: int, name: str
) -> None:
    first, second = connection.channel(), connection.channel()
    broker.refuse_next("queue.declare", code=code, text="not today")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
        first.queue_declare("q")
    assert (closed.value.reply_code, closed.value.reply_text) == (code, f"{name} - not today")
    second.queue_declare("q")


def test_a_method_is_refused_as_often_as_it_was_asked_for(
    broker: Broker, connection: pika.BlockingConnection
) -> None:
    broker.refuse_next("basic.consume", 3)
    for _ in range(3):
        channel = connection.channel()
        channel.queue_declare("q")
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.basic_consume("q", print)
    channel = connection.channel()
    channel.basic_consume("q", print)


def test_a_hard_code_closes_the_connection(
    broker: Broker, connection: pika.BlockingConnection
) -> None:
    channel = connection.channel()
    broker.refuse_next("queue.declare", code=541)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="541"):
        channel.queue_declare("q")


def test_a_refused_publish_takes_its_content_along(broker: Broker, channel: Channel) -> None:
    broker.refuse_next("basic.publish", code=404)
    connection = channel.connection
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
        channel.basic_publish("", "q", b"x" * 300_000)
    again = connection.channel()
    again.basic_publish("", "q", b"kept")
    assert bodies(again) == [b"kept"]


def test_what_cannot_be_refused_is_said(broker: Broker) -> None:
    with pytest.raises(ValueError, match=r"no method 'queue.destroy'"):
        broker.refuse_next("queue.destroy")
    with pytest.raises(ValueError, match=r"cannot refuse queue\.declare with reply code 999"):
        broker.refuse_next("queue.declare", code=999)
    with pytest.raises(ValueError, match=r"cannot refuse connection\.open with reply code 404"):
        broker.refuse_next("connection.open", code=404)


# -- publishes -------------------------------------------------------------------------------------


def test_nacks_hit_the_next_publishes_and_no_others(broker: Broker, channel: Channel) -> None:
    channel.basic_publish("", "q", b"before")
    broker.nack_next(2)
    for body in (b"", b"x" * 300_000):
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("", "q", body)
    channel.basic_publish("", "q", b"after")
    assert bodies(channel) == [b"before", b"after"]


def test_nacks_keep_the_order_of_confirms_in_a_pipeline(broker: Broker) -> None:
    """Publishes 3 and 4 of 10 that are sent at once, persistent, are refused by their numbers."""
    heard: list[tuple[str, int, bool]] = []
    vhost = broker.add_vhost()
    done = threading.Event()

    def count(frame: pika.frame.Method) -> None:
        method = frame.method
        heard.append((method.NAME, method.delivery_tag, method.multiple))
        if method.delivery_tag == 10:
            done.set()
            connection.close()

    def opened(channel: pika.channel.Channel) -> None:
        channel.queue_declare("q", durable=True, callback=lambda _: declared(channel))

    def declared(channel: pika.channel.Channel) -> None:
        channel.confirm_delivery(count, callback=lambda _: publish(channel))

    def publish(channel: pika.channel.Channel) -> None:
        broker.nack_next(2)
        for number in range(10):
            body, persistent = b"%d" % number, pika.BasicProperties(delivery_mode=2)
            channel.basic_publish("", "q", body, persistent)

    connection = pika.SelectConnection(
        pika.URLParameters(vhost.url),
        on_open_callback=lambda made: made.channel(on_open_callback=opened),
        on_close_callback=lambda made, _: made.ioloop.stop(),
    )
    connection.ioloop.start()
    connection.ioloop.close()
    assert done.is_set()
    settled: dict[int, str] = {}
    last = 0
    for name, tag, multiple in heard:
        for number in range(last + 1 if multiple else tag, tag + 1):
            settled[number] = name
        last = tag
    assert settled == {n: "Basic.Nack" if n <= 2 else "Basic.Ack" for n in range(1, 11)}
    with pika.BlockingConnection(pika.URLParameters(vhost.url)) as reader:
        assert bodies(reader.channel()) == [b"%d" % number for number in range(2, 10)]


def test_publishes_without_confirms_are_not_refused(
    broker: Broker, connection: pika.BlockingConnection
) -> None:
    channel = connection.channel()
    channel.queue_declare("q")
    broker.nack_next(1)
    channel.basic_publish("", "q", b"taken")
    assert bodies(channel) == [b"taken"]


def test_blocked_publishers_hear_of_it_and_go_on(
    broker: Broker, connection: pika.BlockingConnection, channel: Channel
) -> None:
    heard: list[str] = []
    connection.add_on_connection_blocked_callback(
        lambda _, frame: heard.append(frame.method.reason)
    )
    connection.add_on_connection_unblocked_callback(lambda *_: heard.append("unblocked"))
    with broker.block():
        unblocking = threading.Timer(0.05, broker.unblock)
        unblocking.start()
        channel.basic_publish("", "q", b"waits")
        unblocking.join()
    while len(heard) < 2:
        connection.process_data_events(SECONDS_MAX)
    assert heard == ["low on memory", "unblocked"]
    assert bodies(channel) == [b"waits"]


def test_a_full_disk_holds_confirms_back_and_loses_nothing(
    broker: Broker, channel: Channel
) -> None:
    persistent = pika.BasicProperties(delivery_mode=2)
    with broker.fill_disk():
        freeing = threading.Timer(0.05, broker.free_disk)
        freeing.start()
        channel.basic_publish("", "q", b"waits", persistent)
        freeing.join()
    assert bodies(channel) == [b"waits"]


def test_a_broker_with_a_full_disk_stops(channel: Channel, broker: Broker) -> None:
    broker.fill_disk()
    broker.restart()
    assert broker.is_running


def test_late_input_keeps_its_order(broker: Broker, channel: Channel) -> None:
    with broker.delay(0.05):
        began = time.monotonic()
        for number in range(3):
            channel.basic_publish("", "q", b"%d" % number)
        assert time.monotonic() - began >= 0.15
    channel.basic_publish("", "q", b"3")
    assert bodies(channel) == [b"0", b"1", b"2", b"3"]


# -- time ------------------------------------------------------------------------------------------


def test_messages_expire_when_time_has_passed(broker: Broker, channel: Channel) -> None:
    channel.queue_declare("short", arguments={"x-message-ttl": 60_000})
    channel.basic_publish("", "short", b"goes")
    channel.basic_publish("", "q", b"stays")
    broker.advance(59)
    assert channel.queue_declare("short", passive=True).method.message_count == 1
    broker.advance(2)
    assert channel.queue_declare("short", passive=True).method.message_count == 0
    assert bodies(channel) == [b"stays"]


def test_what_expires_on_the_way_expires_where_it_went(broker: Broker, channel: Channel) -> None:
    """Three queues of 10 s, one after the other: 31 s later the message is at the end."""
    for number in range(3):
        onward = f"step{number + 1}" if number < 2 else "q"
        arguments = {"x-message-ttl": 10_000, "x-dead-letter-exchange": ""}
        arguments["x-dead-letter-routing-key"] = onward
        channel.queue_declare(f"step{number}", arguments=arguments, durable=True)
    channel.basic_publish("", "step0", b"far", pika.BasicProperties(delivery_mode=2))
    broker.advance(25)
    assert channel.queue_declare("step2", passive=True).method.message_count == 1
    broker.advance(6)
    assert bodies(channel) == [b"far"]


def test_delayed_messages_come_when_time_has_passed(broker: Broker, channel: Channel) -> None:
    arguments = {"x-delayed-type": "fanout"}
    channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=arguments)
    channel.queue_bind("q", "later")
    delay = pika.BasicProperties(headers={"x-delay": 3_600_000}, delivery_mode=2)
    channel.basic_publish("later", "", b"in an hour", delay)
    broker.advance(3599)
    assert bodies(channel) == []
    broker.advance(2)
    assert bodies(channel) == [b"in an hour"]


def test_queues_expire(broker: Broker, channel: Channel) -> None:
    channel.queue_declare("unused", arguments={"x-expires": 1_800_000})
    broker.advance(1_801)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="404"):
        channel.queue_declare("unused", passive=True)


def test_a_deadline_that_came_near_is_met_by_the_machines_clock(
    broker: Broker, channel: Channel
) -> None:
    """The broker waits only for what is left, and not for the time that the clock was moved by."""
    arguments = {"x-message-ttl": 1_000_000, "x-dead-letter-exchange": ""}
    arguments["x-dead-letter-routing-key"] = "q"
    channel.queue_declare("short", arguments=arguments)
    channel.basic_publish("", "short", b"soon")
    broker.advance(999.9)
    got = next(channel.consume("q", inactivity_timeout=SECONDS_MAX))
    assert got[2] == b"soon"


def test_connections_without_heartbeats_outlive_any_time(broker: Broker, channel: Channel) -> None:
    broker.advance(86_400)
    channel.basic_publish("", "q", b"here")
    assert bodies(channel) == [b"here"]


def test_heartbeats_may_be_spared(broker: Broker) -> None:
    parameters = pika.URLParameters(broker.url)
    parameters.heartbeat = 60
    with pika.BlockingConnection(parameters) as connection:
        broker.advance(86_400, heartbeats=False)
        connection.channel()


def test_heartbeats_follow(broker: Broker) -> None:
    parameters = pika.URLParameters(broker.url)
    parameters.heartbeat = 60
    connection = pika.BlockingConnection(parameters)
    broker.advance(30)
    assert broker.connections() == 1
    broker.advance(200)
    assert broker.connections() == 0
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        connection.process_data_events(SECONDS_MAX)


def test_time_does_not_go_back(broker: Broker) -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        broker.advance(-1)
    with pytest.raises(ValueError, match="must be 0 or more"):
        broker.delay(-1)


@pytest.mark.parametrize("seconds", [1e18, float("inf"), float("nan")])
def test_time_moves_on_by_a_hundred_years_at_most(broker: Broker, seconds: float) -> None:
    with pytest.raises(ValueError, match="at most a hundred years"):
        broker.advance(seconds)
    broker.advance(100 * 365 * 24 * 3600)
    assert broker.connections() == 0


def test_a_delay_is_a_number(broker: Broker) -> None:
    with pytest.raises(ValueError, match="nan"):
        broker.delay(float("nan"))


# -- failures --------------------------------------------------------------------------------------


def test_a_directory_that_fails_ends_the_broker_and_says_why(tmp_path: Path) -> None:
    """The journal of a broker becomes a directory under its feet."""
    broker = Broker(data_dir=tmp_path, journal_file_bytes=65_536).start()
    try:
        for file in (tmp_path / "journal").iterdir():
            file.unlink()
        (tmp_path / "journal").rmdir()
        with pytest.raises(pika.exceptions.AMQPError):
            fill(broker)
        with pytest.raises(BrokerFailed, match="journal"):
            look(broker)
    finally:
        broker.stop()


def look(broker: Broker) -> None:
    """Ask the broker until it has failed."""
    while True:
        broker.connections()


def fill(broker: Broker) -> None:
    """Publish more than a file of the journal has room for."""
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("q", durable=True)
        channel.confirm_delivery()
        for _ in range(5):
            channel.basic_publish("", "q", b"x" * 60_000, pika.BasicProperties(delivery_mode=2))
