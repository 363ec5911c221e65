"""Behaviours 49 and 66: queues that nobody uses expire, messages expire when their time has come.

Nothing here waits for a length of time: a message that expires is awaited where it is
dead-lettered to, a queue where its end is told.
"""

from __future__ import annotations

from support.brokers.brokers import Client
from support.wire import raw


def letters(connection: raw.Connection, name: str) -> str:
    """A queue for dead letters, consumed on channel 1; returns its name."""
    queue = connection.declare(1, name + "-letters", exclusive=True).queue
    connection.call(1, "basic.consume", queue=queue, no_ack=True)
    return str(queue)


def dying(connection: raw.Connection, name: str, **arguments: object) -> str:
    """A queue whose dead letters go to `letters`; returns its name."""
    to = letters(connection, name)
    given = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
    connection.declare(1, name, exclusive=True, arguments=given | arguments)
    return name


def test_b66_queue_ttl(connection: raw.Connection, name: str) -> None:
    """66: a message that waited as long as the queue allows expires."""
    queue = dying(connection, name, **{"x-message-ttl": 20})
    connection.send(raw.publish(1, "", queue, b"m"))
    letter = connection.expect(1, "basic.deliver")
    assert letter.body == b"m"
    assert raw.decode_properties(letter.properties)["headers"]["x-death"][0]["reason"] == "expired"


def test_b66_message_ttl(connection: raw.Connection, name: str) -> None:
    """66: a message may bring its own."""
    queue = dying(connection, name)
    connection.send(raw.publish(1, "", queue, b"m", expiration="20"))
    assert connection.expect(1, "basic.deliver").body == b"m"


def test_b66_lesser_of_both(connection: raw.Connection, name: str) -> None:
    """66: the queue's where it is less, the message's where that is."""
    queue = dying(connection, name, **{"x-message-ttl": 30})
    connection.send(
        raw.publish(1, "", queue, b"queue", expiration="3600000"),
    )
    assert connection.expect(1, "basic.deliver").body == b"queue"
    connection.send(raw.publish(1, "", queue, b"message", expiration="1"))
    assert connection.expect(1, "basic.deliver").body == b"message"


def test_b66_zero_without_consumer(connection: raw.Connection, name: str) -> None:
    """66: a TTL of 0 expires at once where nobody takes the message."""
    queue = dying(connection, name)
    connection.send(raw.publish(1, "", queue, b"m", expiration="0"))
    assert connection.expect(1, "basic.deliver").body == b"m"
    assert connection.get(1, queue) is None


def test_b66_zero_with_consumer(connection: raw.Connection, name: str) -> None:
    """66: a TTL of 0 is delivered where somebody is ready."""
    queue = connection.declare(1, name, exclusive=True).queue
    connection.call(1, "basic.consume", queue=queue, no_ack=True)
    connection.send(raw.publish(1, "", queue, b"m", expiration="0"))
    assert connection.expect(1, "basic.deliver").body == b"m"


def test_b66_not_only_the_head(connection: raw.Connection, name: str) -> None:
    """66: a short TTL behind a long one expires in its own time (RabbitMQ waits for the head)."""
    queue = dying(connection, name)
    connection.send(
        raw.publish(1, "", queue, b"long", expiration="3600000"),
        raw.publish(1, "", queue, b"short", expiration="10"),
        raw.publish(1, "", queue, b"ever"),
    )
    assert connection.expect(1, "basic.deliver").body == b"short"
    assert connection.drain(1, queue) == [b"long", b"ever"]


def test_b66_unacked_does_not_expire(connection: raw.Connection, name: str) -> None:
    """66: what a consumer holds stays with it, and expires when it comes back."""
    queue = dying(connection, name)
    connection.send(
        raw.publish(1, "", queue, b"held", expiration="20"),
    )
    held = connection.get(1, queue, no_ack=False)
    assert held is not None
    connection.send(raw.publish(1, "", queue, b"marker", expiration="40"))
    assert connection.expect(1, "basic.deliver").body == b"marker"
    connection.send(raw.method(1, "basic.nack", delivery_tag=held.delivery_tag, requeue=True))
    assert connection.expect(1, "basic.deliver").body == b"held"


def test_b49_unused_queue_expires(connection: raw.Connection, client: Client, name: str) -> None:
    """49: its end is told to the bindings: a mandatory message comes back."""
    connection.declare(1, name, arguments={"x-expires": 50})
    while True:
        connection.send(raw.publish(1, "", name, b"m", mandatory=True))
        connection.send(raw.method(1, "basic.qos"))
        if connection.next_method().name == "basic.return":
            break
    connection.expect(1, "basic.qos-ok")
    other = client()
    other.send(raw.method(1, "queue.declare", queue=name, passive=True))
    other.expect_channel_close(1, 404)


def test_b49_consumer_keeps_it(connection: raw.Connection, name: str) -> None:
    """49: a queue with a consumer lives; it counts from the consumer's end."""
    queue = dying(connection, name, **{"x-message-ttl": 60})
    connection.declare(1, name + "-kept", arguments={"x-expires": 20})
    tag = connection.call(1, "basic.consume", queue=name + "-kept", no_ack=True).consumer_tag
    connection.send(raw.publish(1, "", queue, b"time has passed"))
    assert connection.expect(1, "basic.deliver").body == b"time has passed"
    connection.declare(1, name + "-kept", passive=True)
    connection.call(1, "basic.cancel", consumer_tag=tag)
    connection.call(1, "queue.delete", queue=name + "-kept")


def test_b49_does_not_dead_letter(connection: raw.Connection, name: str) -> None:
    """49: the messages of a queue that expired are gone."""
    to = letters(connection, name)
    arguments = {"x-expires": 30, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": to}
    connection.declare(1, name, arguments=arguments)
    connection.send(raw.publish(1, "", name, b"gone"))
    while True:
        connection.send(raw.publish(1, "", name, b"gone", mandatory=True))
        connection.send(raw.method(1, "basic.qos"))
        if connection.next_method().name == "basic.return":
            break
    connection.expect(1, "basic.qos-ok")
    connection.send(raw.publish(1, "", to, b"marker"))
    assert connection.expect(1, "basic.deliver").body == b"marker"
