"""`leveret serve`: it says where it listens, ends in order, and is fast to its first confirm."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from broker_process import BrokerProcess, BrokerProcessError
from leveret.client.blocking import connect
from leveret.wire.buffer import COMPILED

#: What the start to the first confirm may take on a quiet machine, with room for a busy one.
FIRST_CONFIRM_SECONDS_MAX = 0.7 * 5


def test_it_says_where_it_listens_then_that_it_is_ready(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        lines = [line for line in broker.output.splitlines() if "[" not in line]
        assert lines == [f"listening on amqp://127.0.0.1:{broker.port}", "Server startup complete"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_when_it_is_told_to(tmp_path: Path, number: signal.Signals) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        os.kill(broker.pid, number)
        assert broker.wait(30) == 0


def test_settings_reach_the_broker(tmp_path: Path) -> None:
    settings = {"default_user": "ann", "default_pass": "pass word", "default_vhost": "v"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        connect(f"amqp://ann:pass%20word@127.0.0.1:{broker.port}/v").close()


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data"),
        pytest.raises(BrokerProcessError, match="did not start"),
    ):
        BrokerProcess(tmp_path / "data").start()


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "one") as broker:
        second = BrokerProcess(tmp_path / "two", flags=["--port", str(broker.port)])
        with pytest.raises(BrokerProcessError, match="did not start"):
            second.start()


@pytest.mark.skipif(not COMPILED, reason="the figure is the compiled build's")
def test_the_first_confirm_comes_soon_after_the_start(tmp_path: Path) -> None:
    began = time.monotonic()
    with BrokerProcess(tmp_path / "data") as broker, connect(broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("q", durable=True)
        channel.publish(b"x", "", "q")
        assert time.monotonic() - began < FIRST_CONFIRM_SECONDS_MAX
