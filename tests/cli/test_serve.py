"""`leveret serve`: it says where it listens, ends in order, and is fast to its first confirm."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.client.blocking import connect
from leveret.wire.buffer import COMPILED
from support.brokers.broker_process import BrokerProcess, BrokerProcessError

#: What the start to the first confirm may take of a processor: on a quiet machine it takes half a
#: second, and on a busy one caches are cold.
FIRST_CONFIRM_PROCESSOR_SECONDS_MAX = 2.0


def test_it_says_where_it_listens_then_that_it_is_ready(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", fresh=True) as broker:
        lines = [line for line in broker.output.splitlines() if "[" not in line]
        assert lines == [f"listening on amqp://127.0.0.1:{broker.port}", "Server startup complete"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order_when_it_is_told_to(tmp_path: Path, number: signal.Signals) -> None:
    with BrokerProcess(tmp_path / "data", fresh=True) as broker:
        os.kill(broker.pid, number)
        assert broker.wait(120) == 0


def test_settings_reach_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("pass word\n")
    settings = {
        "default_user": "ann", "default_pass_file": str(tmp_path / "secret"), "default_vhost": "v",
    }  # fmt: skip
    monkeypatch.setenv("RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1")
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        connect(f"amqp://ann:pass%20word@127.0.0.1:{broker.port}/v").close()
        told = "RABBITMQ_NODE_IP_ADDRESS has no effect on this broker: set LEVERET_HOST"
        assert [line for line in broker.output.splitlines() if told in line and "warning" in line]


def test_a_second_broker_on_the_same_data_is_refused(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data"),
        pytest.raises(BrokerProcessError, match="did not start"),
    ):
        BrokerProcess(tmp_path / "data").start()


def test_a_start_that_is_refused_is_no_crash(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(tmp_path / "other") as other:
        taken, missing = str(other.port), str(tmp_path / "missing")
        for flag, value in (
            ("--port", taken),
            ("--haremq-port", taken),
            ("--load-definitions", missing),
            ("--tls-certificate", missing),
        ):
            refused = BrokerProcess(data, flags=[flag, value])
            with pytest.raises(BrokerProcessError, match="the broker cannot start") as caught:
                refused.start()
            # What the next one says of the one before it.
            assert "a crash or a kill" not in str(caught.value)
    with BrokerProcess(data) as good:
        assert "in order" in good.expect_line("recovered")


@pytest.mark.skipif(not COMPILED, reason="the figure is the compiled build's")
def test_the_first_confirm_comes_soon_after_the_start(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", fresh=True) as broker,
        connect(broker.uri) as connection,
    ):
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("q", durable=True)
        channel.publish(b"x", "", "q")
        found = broker.processor_seconds
    # A slow machine is slow in loading what the broker needs, too.
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import aiohttp"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    loading = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert 0 < found < max(FIRST_CONFIRM_PROCESSOR_SECONDS_MAX, 8 * loading)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "cannot read"),
        ("{", "the definitions are not JSON"),
        (
            '{"queues": [{"vhost": "shop", "name": "q"}]}',
            "queues[0] 'q': vhost 'shop' does not exist",
        ),
    ],
)
def test_definitions_that_cannot_be_loaded_end_the_start(
    tmp_path: Path, data: str | None, reason: str
) -> None:
    path = tmp_path / "definitions.json"
    if data is not None:
        path.write_text(data)
    broker = BrokerProcess(tmp_path / "data", flags=["--load-definitions", str(path)])
    found = subprocess.run(broker.command, capture_output=True, text=True, timeout=120)
    assert found.returncode == 1
    assert f"load_definitions: {path}: {reason}" in found.stderr or f"{reason} {path}" in (
        found.stderr
    )
    # Nothing of that start is left behind: the next one begins with the default user and vhost.
    path.write_text('{"queues": [{"vhost": "/", "name": "q"}]}')
    with BrokerProcess(tmp_path / "data", flags=broker.flags) as good:
        with connect(good.uri) as connection:
            assert connection.channel().queue_declare("q", passive=True).message_count == 0
        assert good.restart().terminate() == 0


def test_a_start_imports_nothing_that_a_broker_has_no_use_for(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    command = [
        sys.executable,
        "-X",
        "importtime",
        "-m",
        "leveret",
        "serve",
        "--data-dir",
        str(file),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    names = {line.rpartition("|")[2].strip() for line in run.stderr.splitlines()}
    assert run.returncode != 0, "a file is no directory for data"
    assert "structlog.dev" in names
    assert not {"rich.console", "rich.traceback", "pygments", "attr"} & names
