"""`leveret status` and `leveret top`: what a broker is and does, once and again and again."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from leveret.cli import exits
from leveret.cli.watching.figures import per_second, size, span
from leveret.cli.watching.look import Snapshot, rate
from leveret.cli.watching.screen import screen_of
from leveret.cli.watching.top import PAUSES, Watch
from leveret.client import blocking
from leveret.wire.buffer import BUILD
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import Command, run_leveret
from support.commands.terminal import Terminal
from support.http.http_streams import http_port

pytestmark = pytest.mark.commands

#: Leaves the screen that was shown for the one before.
LEFT = b"\x1b[?1049l"


def said(command: Command, *arguments: str) -> dict[str, str]:
    """What `leveret status` says, by names."""
    done = command("status", *arguments)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    return {line[:14].strip(): line[14:] for line in lines if line[:14].strip()}


# -- status ----------------------------------------------------------------------------------------


def test_a_status_says_what_there_is(leveret: Command, broker: BrokerProcess, queue: str) -> None:
    leveret("publish", queue, "x")
    with blocking.connect(broker.uri) as connection:
        connection.channel().queue_declare(queue, passive=True)
        found = said(leveret)
    assert found["process"].startswith(f"{broker.pid}, up ")
    assert f"({BUILD}, Python " in found["broker"]
    assert found["alarms"] == "none"
    assert found["damage"] == "none"
    assert f"amqp 127.0.0.1:{broker.port}" in (found["listens on"] + str(found))
    assert found["objects"].startswith("1 connection, 1 channel, ")
    assert int(found["messages"].split(" ready")[0].replace(",", "")) >= 1
    assert re.match(r"\d+ syncs of \d+\.\d\d ms, ", found["journal"])


def test_a_status_for_programs_is_what_the_api_says(
    leveret: Command, broker: BrokerProcess
) -> None:
    found = json.loads(leveret("status", "--format", "json").stdout)
    assert found["overview"]["product_name"] == "Leveret"
    assert found["node"]["os_pid"] == str(broker.pid)


def test_a_status_tells_of_an_alarm(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path, settings={"disk_free_bytes_min": "900TB"}) as process:
        assert said(Command(process))["alarms"] == "disk"
        screen = run_leveret("top", "-i", "0.1", "--data-dir", tmp_path).stdout.decode()
    assert "ALARM: disk; publishers are blocked" in screen.splitlines()[0]


def test_who_may_not_see_the_node_sees_the_rest(leveret: Command, broker: BrokerProcess) -> None:
    assert leveret("ctl", "add_user", "seer", "secret").returncode == 0
    assert leveret("ctl", "set_user_tags", "seer", "management").returncode == 0
    assert leveret("ctl", "set_permissions", "seer", "^$", "^$", "^$").returncode == 0
    api = f"http://seer:secret@127.0.0.1:{http_port(broker)}"
    done = run_leveret("status", "--api", api)
    assert done.returncode == 0, done.stderr
    assert b"hidden without the tag monitoring" in done.stdout
    assert b"objects" in done.stdout
    screen = run_leveret("top", "-i", "0.1", "--api", api)
    assert b"memory and journal: hidden" in screen.stdout
    refused = run_leveret("status", "--api", api.replace("secret", "wrong"))
    assert refused.returncode == exits.NO_PERMISSION


@pytest.mark.parametrize("command", ["status", "top"])
def test_no_broker_is_unavailable(tmp_path: Path, command: str) -> None:
    refused = run_leveret(command, "--data-dir", tmp_path)
    assert refused.returncode == exits.UNAVAILABLE
    assert b"no broker answers at" in refused.stderr


def test_what_answers_and_is_no_api_is_told(broker: BrokerProcess) -> None:
    # Prometheus's port: it answers, and has nothing of the API.
    line = broker.expect_line("listening for Prometheus")
    found = re.search(r"http://127\.0\.0\.1:\d+", line)
    assert found is not None
    refused = run_leveret("status", "--api", found[0])
    assert refused.returncode in {exits.REFUSED, exits.PROTOCOL}
    assert b"Traceback" not in refused.stderr


# -- top -------------------------------------------------------------------------------------------


def test_into_a_pipe_top_prints_one_screen(leveret: Command, queue: str) -> None:
    leveret("publish", queue, "x")
    done = leveret("top", "--interval", "0.1", "--sort", "name")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.decode().splitlines()
    (row,) = [line.split() for line in lines if queue in line]
    assert row[:6] == ["/", queue, "classic", "1", "0", "0"]
    assert any(re.match(r"journal: .* syncs/s of ", line) for line in lines)
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize("wrong", ["0", "nan", "inf", "1e9", "soon"])
def test_an_interval_is_a_number_of_seconds(leveret: Command, wrong: str) -> None:
    refused = leveret("top", "-i", wrong)
    assert refused.returncode == exits.USAGE
    assert b"interval" in refused.stderr


def test_a_vhost_that_is_not_there_is_told(leveret: Command) -> None:
    refused = leveret("top", "-p", "nowhere")
    assert refused.returncode == exits.REFUSED
    assert b"no vhost 'nowhere'" in refused.stderr


@contextmanager
def on_a_terminal(broker: BrokerProcess) -> Iterator[Terminal]:
    """`leveret top` on a terminal of its own."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    command = [sys.executable, "-m", "leveret", "top", "-i", "0.1"]
    where = ["--data-dir", str(broker.data_dir)]
    with Terminal([*command, *where], kept) as terminal:
        yield terminal


def test_on_a_terminal_it_goes_on_until_q(broker: BrokerProcess, queue: str) -> None:
    with on_a_terminal(broker) as terminal:
        terminal.expect(queue)
        terminal.expect("q ends")
        terminal.type("n")
        terminal.expect(queue)
        # What comes new is shown.
        with blocking.connect(broker.uri) as connection:
            connection.channel().queue_declare(f"{queue}-new")
        terminal.expect(f"{queue}-new")
        terminal.type("q")
        assert terminal.wait() == 0
        assert LEFT in terminal.raw


def test_ctrl_c_and_sigterm_end_it_and_leave_the_screen(broker: BrokerProcess) -> None:
    with on_a_terminal(broker) as terminal:
        terminal.expect("q ends")
        terminal.type("\x03")
        assert terminal.wait() == exits.INTERRUPTED
        assert LEFT in terminal.raw
    with on_a_terminal(broker) as terminal:
        terminal.expect("q ends")
        terminal.terminate()
        assert terminal.wait() == 143
        assert LEFT in terminal.raw


def test_it_waits_for_a_broker_that_went_away(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as process, on_a_terminal(process) as terminal:
        terminal.expect("q ends")
        process.kill()
        terminal.expect("no broker answers at")
        process.start()
        terminal.expect("q ends")
        terminal.type("q")
        assert terminal.wait() == 0


# -- what is computed ------------------------------------------------------------------------------


def test_a_rate_is_the_brokers_or_what_counts_grew() -> None:
    before = {"message_stats": {"publish": 10, "publish_details": {"rate": 0.0}}}
    now = {"message_stats": {"publish": 30, "publish_details": {"rate": 0.0}}}
    sampled = {"message_stats": {"publish": 30, "publish_details": {"rate": 7.5}}}
    name = "message_stats.publish"
    assert rate(now, before, name, 2.0) == 10.0
    assert rate(now, None, name, 0.0) == 0.0
    assert rate(sampled, before, name, 2.0) == 7.5
    # A broker that began anew has counted less.
    assert rate(before, now, name, 2.0) == 0.0
    assert rate({"message_stats": "x"}, before, name, 2.0) == 0.0


def test_a_look_that_took_long_is_followed_by_a_long_pause() -> None:
    watch = Watch(Path("nowhere"), "", "messages", 2.0)
    assert watch.pause == 2.0
    watch.look = Snapshot(0.0, {}, None, (), 0.1)
    assert watch.pause == 2.0
    watch.look = Snapshot(0.0, {}, None, (), 3.0)
    assert watch.pause == 3.0 * PAUSES


def test_a_screen_shows_what_grew_and_escapes_names() -> None:
    def look(at: float, syncs: int, published: int) -> Snapshot:
        queue = {
            "vhost": "/", "name": "a\x1b[2J[red]b", "type": "classic", "messages_ready": 1234,
            "message_stats": {"publish": published},
        }  # fmt: skip
        return Snapshot(at, {}, {"io_sync_count": syncs, "mem_alarm": True}, (queue,))

    out = io.StringIO()
    console = Console(file=out, width=200)
    console.print(screen_of(look(12.0, 300, 50), look(10.0, 100, 10), "publish", "no\x07te"))
    told = out.getvalue()
    assert "journal: 100 syncs/s of " in told
    assert "\x1b" not in told
    assert re.search(r"/ +a\\x1b\[2J\[red\]b +classic +1,234 +0 +0 +20 +0 +0", told)
    assert "ALARM: memory" in told
    assert "no\\x07te" in told


def test_figures_are_read_by_people() -> None:
    assert [size(value) for value in (0, 1023, 1024, 1536, 5 * 1024**4, 2 * 1024**5)] == [
        "0 B", "1,023 B", "1.0 KiB", "1.5 KiB", "5.0 TiB", "2,048.0 TiB",
    ]  # fmt: skip
    assert [span(ms) for ms in (0, 59_999, 61_000, 3_600_000, 90_061_000)] == [
        "0 s", "59 s", "1 min 1 s", "1 h 0 min", "1 d 1 h",
    ]  # fmt: skip
    assert [per_second(value) for value in (0, 0.25, 9.99, 12.4, 12345.6)] == [
        "0", "0.2", "10.0", "12", "12,346",
    ]  # fmt: skip
