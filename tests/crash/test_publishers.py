"""Numbered messages over SIGKILL: sent again until they are confirmed, each is there once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from leveret.client import BasicProperties, ClientError, blocking, connect
from leveret.errors import AmqpError
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.commands.command_process import run_leveret
from support.store.data_dirs import read_numbers

#: Messages, kills while they are sent, and how many go out between two confirms.
MESSAGES = 3000
KILLS = 6
WINDOW = 100


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


def send(broker: BrokerProcess, numbers: range, kill_at: int) -> int:
    """Send messages, and kill the broker before that one; return the first that is not sure."""
    sure = numbers.start
    try:
        with blocking.connect(broker.uri, recover=False) as connection:
            channel = connection.channel()
            channel.confirm_select()
            for number in numbers:
                if number == kill_at:
                    broker.kill()
                headers: dict[str, object] = {"x-publisher": "p", "x-publishing-id": number}
                properties = BasicProperties(headers=headers)
                channel.publish_nowait(b"%d" % number, "amq.fanout", "", properties)
                if number % WINDOW == WINDOW - 1:
                    channel.wait_for_confirms()
                    sure = number + 1
            channel.wait_for_confirms()
            return numbers.stop
    except (ClientError, AmqpError, OSError):
        return sure


def test_each_is_there_once_and_in_order(tmp_path: Path) -> None:
    chance = random.Random(5)
    with BrokerProcess(tmp_path, settings={"journal_bytes_max": "64KiB"}) as broker:
        with blocking.connect(broker.uri, recover=False) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
            for queue in ("q", "s"):
                channel.queue_bind(queue, "amq.fanout")
        sure = 0
        for _ in range(KILLS):
            kill_at = sure + chance.randint(1, MESSAGES // KILLS)
            sure = send(broker, range(sure, MESSAGES), kill_at)
            assert sure <= kill_at
            broker.start()
        assert send(broker, range(sure, MESSAGES), -1) == MESSAGES
        for queue in ("q", "s"):
            assert read_numbers(broker.uri, queue, MESSAGES) == list(range(MESSAGES))
        with blocking.connect(broker.uri, recover=False) as connection:
            assert connection.channel().queue_declare("q", passive=True).message_count == 0


def test_what_is_published_by_default_survives(tmp_path: Path) -> None:
    """By every shell and the command; only what is said to be transient is lost."""
    text = BasicProperties(content_type="text/plain")
    transient = BasicProperties(delivery_mode=1)

    async def publish(uri: str) -> None:
        async with connect(uri) as connection, connection.channel() as channel:
            await channel.confirm_select()
            await channel.publish(b"asyncio", "", "q")
            channel.publish_nowait(b"asyncio, later", "", "q", text)
            channel.publish_nowait(b"lost", "", "q", persistent=False)
            await channel.wait_for_confirms()

    with BrokerProcess(tmp_path) as broker:
        with blocking.connect(broker.uri, recover=False) as connection:
            channel = connection.channel()
            channel.queue_declare("q")
            channel.confirm_select()
            channel.publish(b"blocking", "", "q")
            channel.publish_nowait(b"blocking, later", "", "q", text)
            channel.publish(b"lost", "", "q", persistent=False)
            channel.publish(b"lost", "", "q", transient)
            channel.publish_nowait(b"lost", "", "q", transient, persistent=True)
            channel.wait_for_confirms()
        asyncio.run(publish(broker.uri))
        assert run_leveret("publish", "q", "command", "--uri", broker.uri).returncode == 0
        broker.crash()
        with blocking.connect(broker.uri, recover=False) as connection:
            channel = connection.channel()
            left = [message.body for message in iter(lambda: channel.get("q"), None)]
    assert left == [
        b"blocking", b"blocking, later", b"asyncio", b"asyncio, later", b"command",
    ]  # fmt: skip
