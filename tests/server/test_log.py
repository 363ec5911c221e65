"""The log: a line an event, whatever a client sent, and harmless when it cannot be written."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import socket
import struct
import subprocess
from contextlib import closing, suppress
from pathlib import Path

import pytest

import leveret
from leveret.client.blocking import connect
from leveret.config import MANAGEMENT_SOCKET
from leveret.escaping import escaped
from leveret.management.unix_socket import connect as connect_unix
from leveret.wire.buffer import BUILD
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import run_leveret
from support.http.http_api import Api
from support.wire import raw


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 兎", "plain é 兎"),
        ("two\nlines\r", "two\\nlines\\r"),
        ("\x1b[2Jred", "\\x1b[2Jred"),
        ("\x00\x7f\x9b", "\\x00\\x7f\\x9b"),
        ("a\u202eb\u2028c\ufeff", "a\\u202eb\\u2028c\\ufeff"),
        ("\ud800", "\\ud800"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert escaped(text) == shown


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_clients_names_add_no_line_to_the_log(tmp_path: Path, form: str) -> None:
    forged = "\n2026-01-01 [critical ] forged \x1b[2J"
    with BrokerProcess(tmp_path, settings={"log_format": form}) as broker:
        with connect(broker.uri) as connection, pytest.raises(Exception, match="404"):
            connection.channel().queue_declare(forged, passive=True)
        assert broker.terminate() == 0
        assert "forged" in broker.output
        assert "\x1b" not in broker.output
        assert not [line for line in broker.output.splitlines() if line.startswith("2026-01-01")]


def test_a_broker_runs_on_without_its_log_and_its_output(tmp_path: Path) -> None:
    """Both streams are pipes whose reader is gone from the start: each line of them fails."""
    reading, writing = os.pipe()
    broker = BrokerProcess(tmp_path)
    process = subprocess.Popen(
        broker.command, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing
    )
    try:
        os.close(writing)
        lines = os.fdopen(reading, "rb")
        port = next(int(line.split(b":")[-1]) for line in lines if b"on amqp://" in line)
        # From here on every line of the log meets a pipe that nobody reads.
        lines.close()
        for _ in range(3):
            with connect(f"amqp://127.0.0.1:{port}") as connection:
                connection.channel().queue_declare("q")
        process.terminate()
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("redirection", [">&- 2>&-", ">/dev/full 2>/dev/full"])
def test_a_broker_starts_without_streams(tmp_path: Path, redirection: str) -> None:
    broker = BrokerProcess(tmp_path)
    command = f'exec "$@" {redirection}'
    process = subprocess.Popen(["/bin/sh", "-c", command, "sh", *broker.command])
    try:
        asked = {"LEVERET_DATA_DIR": str(tmp_path)}
        while run_leveret("list", "queues", settings=asked).returncode != 0:
            assert process.poll() is None
        process.terminate()
        assert process.wait(120) == 0
    finally:
        process.kill()
        process.wait()


def test_the_log_tells_a_life_from_start_to_stop(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        started = broker.expect_line("starting")
        assert f"version={leveret.__version__}" in started
        assert f"build={BUILD}" in started
        assert "memory=" in broker.expect_line("limits of the process")
        assert str(tmp_path / "data") in started
        assert "new data directory" in broker.output
        assert "recovered" not in broker.output
        assert broker.terminate() == 0
        assert "stopped" in broker.output.splitlines()[-1]
        broker.start()
        assert "in order" in broker.expect_line("recovered")
        broker.crash()
        assert "a crash or a kill" in broker.expect_line("recovered")


def test_a_directory_in_use_is_named_with_its_process(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        found = run_leveret("serve", "--port", "0", "--data-dir", tmp_path)
        assert found.returncode == 1
        told = found.stderr.decode()
        assert f"the data directory {tmp_path} is in use by process {broker.pid}" in told


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "one") as broker:
        found = run_leveret("serve", "--port", str(broker.port), "--data-dir", tmp_path / "two")
        assert found.returncode == 1
        told = found.stderr.decode()
        assert f"cannot listen for AMQP on 127.0.0.1:{broker.port}: Address already in use" in told


def policies_made_in_haste(broker: BrokerProcess, port: int, login: str) -> set[str]:
    """Put policies over TCP and hang up, at once or as the answer comes; return those made.

    It goes on until the broker has seen somebody go before the answer.
    """
    body = b'{"pattern": "^x", "definition": {"max-length": 1}}'
    number = 0
    while "did not wait for the answer" not in broker.output:
        number += 1
        with socket.create_connection(("127.0.0.1", port), 60) as hasty:
            head = f"PUT /api/policies/%2F/p{number % 60} HTTP/1.1\r\nHost: localhost\r\n"
            head += f"Authorization: {login}\r\nContent-Length: {len(body)}\r\n\r\n"
            hasty.sendall(head.encode() + body)
            if number % 2:
                hasty.recv(1)
            hasty.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    with closing(Api(broker.data_dir / MANAGEMENT_SOCKET)) as api:
        found = api.ask("GET", "/api/policies")[1]
    assert isinstance(found, list)
    return {policy["name"] for policy in found}


def test_every_administrative_change_is_logged_with_who_made_it(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        asked = {"LEVERET_DATA_DIR": str(tmp_path)}

        def ctl(*arguments: str) -> None:
            assert run_leveret("ctl", *arguments, settings=asked).returncode == 0

        ctl("add_user", "ann ", "s3cret-word")
        line = broker.expect_line("administrative change: PUT /api/users/ann%20")
        assert f"(uid {os.getuid()}, process " in line
        assert "at the management socket" in line
        ctl("list_users")
        port = int(broker.expect_line("listening on http://").split(":")[-1])
        with connect(broker.uri) as connection:
            connection.channel().queue_declare(
                "s", durable=True, arguments={"x-queue-type": "stream"}
            )
        asking = http.client.HTTPConnection("127.0.0.1", port)
        basic = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
        path = "/api/streams/%2F/s/consumers/app"
        asking.request("PUT", path, json.dumps({"offset": 0}), basic)
        assert asking.getresponse().status < 300
        own = asking.sock.getsockname()[1]
        assert f"by user 'guest' from 127.0.0.1:{own}" in broker.expect_line(f"change: PUT {path}")
        asking.close()
        made = policies_made_in_haste(broker, port, basic["Authorization"])
        assert broker.terminate() == 0
        told = re.findall(
            r"change: PUT /api/policies/%2F/(\w+) by user 'guest' from 127\.0\.0\.1", broker.output
        )
        assert made
        assert made <= set(told)
        assert "GET" not in broker.output
        assert "s3cret-word" not in broker.output
        assert "argon2" not in broker.output


def test_who_hangs_up_after_a_change_stops_nothing_and_is_named(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        place, number = tmp_path / MANAGEMENT_SOCKET, 0
        while number < 20 or "PUT /api/vhosts/v" not in broker.output:
            number += 1
            # There may be no place left in the listener's queue.
            with suppress(BlockingIOError), connect_unix(place, 120) as hasty:
                head = f"PUT /api/vhosts/v{number} HTTP/1.1\r\nHost: x\r\n"
                hasty.sendall(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
        asked = {"LEVERET_DATA_DIR": str(tmp_path)}
        assert run_leveret("ctl", "add_vhost", "last", settings=asked).returncode == 0
        broker.expect_line("administrative change: PUT /api/vhosts/last")
        assert broker.terminate() == 0
        told = [line for line in broker.output.splitlines() if "administrative change" in line]
        assert all(f"(uid {os.getuid()}, process {os.getpid()})" in line for line in told[:-1])
        assert len(told) > 1


def test_what_is_no_http_is_one_line_of_the_log(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        port = int(broker.expect_line("listening on http://").split(":")[-1])
        for stranger in (b"\x16\x03\x01\r\n\r\n", b"GET http://[::1 HTTP/1.1\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", port), 120) as dialled:
                dialled.sendall(stranger)
                dialled.shutdown(socket.SHUT_WR)
                while dialled.recv(4096):
                    pass
        broker.expect_line("HTTP: Error handling request from 127.0.0.1: the target")
        assert broker.terminate() == 0
        assert "Traceback" not in broker.output


def test_a_start_with_more_definitions_than_may_be_says_so(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            connection.declare(1, "q", durable=True)
        broker.terminate()
        assert "use more memory than definition_bytes_max" not in broker.output
    with BrokerProcess(tmp_path, settings={"DEFINITION_BYTES_MAX": "1000"}) as broker:
        line = broker.expect_line("the definitions use more memory than definition_bytes_max")
        assert "definition_bytes_max=1000" in line
        with raw.connect(broker.uri) as connection:
            connection.open_channel(1)
            connection.declare(1, "q", durable=True, passive=True)
            connection.send(raw.method(1, "queue.declare", queue="r"))
            assert connection.expect(1, "channel.close").code == 406
