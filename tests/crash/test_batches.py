"""Staged batches over SIGKILL: staged, committed and computed again until each is confirmed.

The broker is killed while batches are staged, around their commits and while they are released;
the publisher knows no more than that a commit was confirmed, and does all of a batch again.
"""

from __future__ import annotations

import json
import random
import secrets
import threading
import time
from pathlib import Path

import pytest

from leveret.client import BasicProperties, ClientError, blocking
from leveret.errors import AmqpError
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.store.data_dirs import read_numbers

BATCHES = 12
ROWS = 400
QUEUES = 2
KILLS = 8


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


def publish_batch(uri: str, batch: int, chance: random.Random) -> None:
    """Stage a batch, in another order each time, and commit it."""
    rows = list(range(batch * ROWS, (batch + 1) * ROWS))
    queues = []
    with blocking.connect(uri, recover=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for part in range(QUEUES):
            name = f"job.{batch}.{part}.{secrets.token_hex(4)}"
            arguments: dict[str, object] = {
                "x-staging-sink": "job", "x-staging-batch": batch, "x-expires": 600_000,
            }  # fmt: skip
            channel.queue_declare(name, durable=True, arguments=arguments)
            queues.append(name)
            mine = rows[part::QUEUES]
            chance.shuffle(mine)
            for row in mine:
                headers: dict[str, object] = {
                    "x-staged-exchange": "amq.fanout", "x-staged-routing-key": "",
                }  # fmt: skip
                properties = BasicProperties(headers=headers, delivery_mode=2)
                channel.publish_nowait(b"%d" % row, "", name, properties)
            channel.wait_for_confirms()
        commit = {"sink": "job", "batch": batch, "queues": queues}
        channel.publish(json.dumps(commit).encode(), "", "amq.leveret.commit", mandatory=True)


def test_each_batch_is_there_once_whole_and_in_turn(tmp_path: Path) -> None:
    chance = random.Random(11)
    kills = 0
    with BrokerProcess(tmp_path, settings={"journal_bytes_max": "256KiB"}) as broker:
        with blocking.connect(broker.uri, recover=False) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
            for queue in ("q", "s"):
                channel.queue_bind(queue, "amq.fanout")
        batch = 0
        began = time.monotonic()
        publish_batch(broker.uri, batch, chance)
        seconds = time.monotonic() - began
        batch = 1
        while batch < BATCHES:
            killer = threading.Timer(chance.uniform(0, 1.5 * seconds), broker.kill)
            if kills < KILLS:
                killer.start()
            try:
                publish_batch(broker.uri, batch, chance)
                batch += 1
            except (ClientError, AmqpError, OSError):
                pass
            killer.cancel()
            if killer.is_alive():
                killer.join()
            if not broker.is_running():
                kills += 1
                broker.start()
        total = BATCHES * ROWS
        for queue in ("q", "s"):
            found = read_numbers(broker.uri, queue, total)
            assert sorted(found) == list(range(total))
            # One batch after the other.
            assert [row // ROWS for row in found] == sorted(row // ROWS for row in found)
        assert kills >= KILLS // 2
        with blocking.connect(broker.uri, recover=False) as connection:
            assert connection.channel().queue_declare("q", passive=True).message_count == 0
