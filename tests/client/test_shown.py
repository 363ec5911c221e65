"""What a session at the prompt shows of messages, consumers, channels and connections."""

from __future__ import annotations

import asyncio

from leveret.client import blocking, connect, parse_uri


def test_the_blocking_shell(broker_uri: str) -> None:
    with blocking.connect(broker_uri) as connection, connection.channel() as channel:
        assert repr(connection) == f"<Connection {parse_uri(broker_uri)} is open>"
        assert repr(channel) == "<Channel 1 is open, 0 consumers>"
        declared = channel.queue_declare(exclusive=True)
        queue = declared.queue
        assert repr(declared) == f"DeclareOk(queue='{queue}', message_count=0, consumer_count=0)"
        channel.confirm_select()
        channel.publish(b"hello", routing_key=queue)
        channel.publish_nowait(b"hello", routing_key="nowhere")
        assert repr(channel) == "<Channel 1 is open, 0 consumers, 1 unconfirmed>"
        consumer = channel.consume(queue, consumer_tag="tag")
        message = next(consumer)
        where = f"exchange='' routing_key='{queue}'"
        assert repr(message) == f"<Message 1 {where} 5 bytes>"
        message.nack()
        message = next(consumer)
        message.ack()
        assert repr(message) == f"<Message 2 {where} 5 bytes redelivered processed>"
        running = f"<Consumer 'tag' of queue '{queue}' runs, 0 messages buffered>"
        assert repr(consumer) == running
        consumer.cancel()
        assert repr(consumer) == running.replace("runs", "has ended")
    assert repr(channel) == "<Channel 1 has ended, 0 consumers, 0 unconfirmed>"
    assert repr(connection) == f"<Connection {parse_uri(broker_uri)} has ended>"


def test_the_asyncio_shell(broker_uri: str) -> None:
    async def main() -> None:
        async with connect(broker_uri) as connection, connection.channel() as channel:
            assert repr(connection) == f"<Connection {parse_uri(broker_uri)} is open>"
            assert repr(channel) == "<Channel 1 is open, 0 consumers>"
            consumer = channel.consume("jobs")
            assert repr(consumer) == (
                "<Consumer '' of queue 'jobs' has not started, 0 messages buffered>"
            )

    asyncio.run(main())
