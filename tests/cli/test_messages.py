"""declare, publish, get and consume against a running broker, as a script uses them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.cli import exits
from leveret.client import BasicProperties, blocking
from support.commands.command_process import Command

pytestmark = pytest.mark.commands


def test_what_is_published_is_got(leveret: Command, queue: str) -> None:
    published = leveret("publish", queue, "hello")
    assert (published.returncode, published.stderr) == (0, b"1 message confirmed\n")
    assert leveret("get", queue).stdout == b"hello\n"
    empty = leveret("get", queue)
    assert (empty.returncode, empty.stdout) == (exits.NOTHING, b"")
    assert empty.stderr == f"queue {queue!r} has no ready messages\n".encode()


def test_requeued_messages_stay_in_their_order(leveret: Command, queue: str) -> None:
    leveret("publish", queue, "--lines", stdin=b"a\nb\nc\n")
    assert leveret("get", queue, "--requeue", "--count", "9").stdout == b"a\nb\nc\n"
    assert leveret("get", queue, "--count", "9").stdout == b"a\nb\nc\n"


def test_a_message_is_shown_with_all_there_is_of_it(leveret: Command, queue: str) -> None:
    options = ["--header", "n=1", "--header", 't={"a": [true, "x"]}', "--property", "priority=3"]
    leveret("publish", queue, *options, "--property", "type=1", stdin=b"\xff\x00")
    shown = json.loads(leveret("get", queue, "--format", "json").stdout)
    assert shown == {
        "exchange": "",
        "routing_key": queue,
        "redelivered": False,
        "properties": {
            "headers": {"n": 1, "t": {"a": [True, "x"]}},
            "delivery_mode": 2,
            "priority": 3,
            "type": "1",
        },
        "payload_bytes": 2,
        "payload": "/wA=",
        "payload_encoding": "base64",
    }


def test_lines_of_a_file_pass_unaltered_but_for_their_ends(
    leveret: Command, queue: str, tmp_path: Path
) -> None:
    file = tmp_path / "input"
    file.write_bytes(b"one\r\n\n\xfftwo\nlast")
    assert leveret("publish", queue, "--lines", "--file", file).stderr == b"4 messages confirmed\n"
    got = leveret("consume", queue, "--count", "4")
    assert (got.returncode, got.stdout) == (0, b"one\n\n\xfftwo\nlast\n")


def test_consume_ends_when_nothing_comes(leveret: Command, queue: str) -> None:
    leveret("publish", queue, "only")
    assert leveret("consume", queue, "--timeout", "0.3").stdout == b"only\n"
    assert leveret("get", queue).returncode == exits.NOTHING


def test_consume_takes_no_more_than_it_prints(leveret: Command, queue: str) -> None:
    leveret("publish", queue, "--lines", stdin=b"1\n2\n3\n")
    assert leveret("consume", queue, "--count", "2").stdout == b"1\n2\n"
    assert leveret("get", queue).stdout == b"3\n"


def test_a_part_of_a_stream_is_read(leveret: Command) -> None:
    assert leveret("declare", "stream", "picked").returncode == 0
    for body, value in (("1", "red"), ("2", "blue"), ("3", "red")):
        label = f"x-stream-filter-value={value}"
        assert leveret("publish", "picked", body, "--header", label).returncode == 0

    def read(*options: str) -> bytes:
        done = leveret("consume", "picked", "--timeout", "0.3", *options)
        assert done.returncode == 0, done.stderr
        return bytes(done.stdout)

    assert read("--offset", "-2") == b"2\n3\n"
    assert read("--offset", "1h", "--filter", "blue") == b"2\n"
    assert read("-o", "2020-01-31T12:00:00Z", "-f", "blue", "-f", "red") == b"1\n2\n3\n"
    assert read("-o", "2020-01-31", "-k", "other") == b""
    assert read("-o", "first", "-k", "picked") == b"1\n2\n3\n"
    assert read("-o", "first", "--name", "app", "--count", "2") == b"1\n2\n"
    assert read("--name", "app") == b"3\n"
    assert read("--name", "app") == b""
    assert leveret("consume", "picked", "-o", "never").returncode == exits.USAGE


def test_a_stream_is_read_from_an_offset_and_again(leveret: Command) -> None:
    assert leveret("declare", "stream", "s", "--max-age", "7D").stdout == b"s\n"
    whole = leveret("declare", "super-stream", "parts", "-p", "2", "--max-age", "7D")
    assert whole.stdout == b"parts\n"
    again = leveret("declare", "stream", "parts-1", "--max-age", "7D")
    assert again.stdout == b"parts-1\n"
    assert leveret("declare", "super-stream", "parts", "-p", "3").returncode == exits.REFUSED
    leveret("publish", "s", "--lines", stdin=b"a\nb\nc\n")
    assert leveret("consume", "s", "--offset", "first", "--count", "3").stdout == b"a\nb\nc\n"
    assert leveret("consume", "s", "--offset", "1", "--count", "2").stdout == b"b\nc\n"


def test_an_exchange_routes_by_its_bindings(leveret: Command, queue: str) -> None:
    assert leveret("declare", "exchange", "inner", "--type", "topic").returncode == 0
    assert leveret("declare", "exchange", "outer", "--type", "fanout").returncode == 0
    assert leveret("declare", "binding", "outer", "inner", "--to-exchange").returncode == 0
    bound = leveret("declare", "binding", "inner", queue, "--key", "a.#")
    assert bound.stdout == f"inner -> {queue}\n".encode()
    assert leveret("publish", "a.b", "in", "--exchange", "outer").returncode == 0
    assert leveret("get", queue).stdout == b"in\n"
    unroutable = leveret("publish", "b", "lost", "--exchange", "outer")
    assert unroutable.returncode == exits.REFUSED
    assert unroutable.stderr == (
        b"leveret: no queue is bound to exchange 'outer' for the key 'b'; the message was returned "
        b"(--optional accepts this)\n"
    )
    many = leveret("publish", "nowhere", "--lines", stdin=b"a\nb\n").stderr
    assert b"there is no queue 'nowhere'; 2 messages were returned" in many
    assert leveret("publish", "b", "lost", "--exchange", "outer", "--optional").returncode == 0


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        (
            "get nowhere",
            exits.REFUSED,
            (
                b"leveret: 404 NOT_FOUND - no queue 'nowhere' in vhost '/'\n"
                b"leveret: hint: leveret list queues lists the queues, "
                b"leveret declare queue creates one\n"
            ),
        ),
        ("publish nowhere x", exits.REFUSED, b"leveret declare queue creates one"),
        ("declare queue amq.own", exits.NO_PERMISSION, b"403 ACCESS_REFUSED"),
        ("declare exchange x -t odd", exits.REFUSED, b"406 PRECONDITION_FAILED"),
        ("publish q --file /nowhere", exits.NO_INPUT, b"cannot read /nowhere"),
        ("publish q x --exchange nowhere", exits.REFUSED, b"404 NOT_FOUND"),
    ],
)
def test_failures_have_codes_and_no_traceback(
    leveret: Command, line: str, code: int, said: bytes
) -> None:
    result = leveret(*line.split())
    assert said in result.stderr
    assert result.returncode == code
    assert b"Traceback" not in result.stderr


def test_an_argument_that_no_queue_takes_is_named(leveret: Command) -> None:
    told = leveret("declare", "queue", "typed", "-a", "x-mesage-ttl=1", "-a", "x-own=1")
    assert told.returncode == 0
    assert told.stderr == b"leveret: unknown argument 'x-mesage-ttl'; did you mean x-message-ttl?\n"


def test_a_broker_without_tls_is_no_missing_broker(leveret: Command) -> None:
    uri = leveret.broker.uri.replace("amqp://", "amqps://")
    refused = leveret("get", "q", "--uri", uri)
    assert refused.returncode == exits.PROTOCOL
    assert b"no TLS with 127.0.0.1:" in refused.stderr
    assert b"amqp:// is without TLS" in refused.stderr


def test_a_queue_that_differs_is_refused(leveret: Command, queue: str) -> None:
    assert leveret("declare", "queue", queue).returncode == 0
    refused = leveret("declare", "queue", queue, "--transient")
    assert refused.returncode == exits.REFUSED
    assert b"406 PRECONDITION_FAILED - inequivalent arg 'durable'" in refused.stderr


def test_a_wrong_login_is_refused(leveret: Command, queue: str) -> None:
    refused = leveret("get", queue, "--uri", "amqp://127.0.0.1:1")
    assert refused.returncode == exits.UNAVAILABLE


@pytest.mark.parametrize("reader", ["head -n 3", "sed 3q"])
@pytest.mark.parametrize("taker", ["consume", "get --count 200"])
def test_what_the_reader_of_a_pipe_did_not_take_stays(
    leveret: Command, queue: str, reader: str, taker: str
) -> None:
    leveret("publish", queue, "--lines", stdin=b"".join(b"%d\n" % n for n in range(200)))
    command = f"{sys.executable} -m leveret {taker} {shlex.quote(queue)} | {reader}"
    ran = subprocess.run(
        ["sh", "-c", command],
        env=os.environ | {"LEVERET_URI": leveret.broker.uri},
        capture_output=True,
        timeout=60,
    )
    assert (ran.stdout, ran.stderr) == (b"0\n1\n2\n", b"")
    left = leveret("get", queue, "--count", "500").stdout.split()
    assert left == [b"%d" % n for n in range(3, 200)]


def test_a_number_that_json_has_not_is_null(leveret: Command, queue: str) -> None:
    numbers = {"a": float("nan"), "b": float("inf"), "c": [float("-inf"), 1.5]}
    with blocking.connect(leveret.broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        properties = BasicProperties(headers=dict(numbers))
        for _ in range(2):
            channel.publish(b"", routing_key=queue, properties=properties)
    browsed = leveret("ctl", "browse_queue", queue, "--count", "1").stdout
    got = leveret("get", queue, "--format", "json").stdout
    consumed = leveret("consume", queue, "--count", "1", "--format", "json").stdout
    for shown in (browsed, got, consumed):
        headers = json.loads(shown, parse_constant=pytest.fail)["properties"]["headers"]
        assert headers == {"a": None, "b": None, "c": [None, 1.5]}


def test_the_command_and_the_client_make_the_same_queues_durable(leveret: Command) -> None:
    for name, kind in (("a", "queue"), ("b", "exchange")):
        assert leveret("declare", kind, f"default-{name}").returncode == 0
    with blocking.connect(leveret.broker.uri) as connection:
        channel = connection.channel()
        # What is there already and differs would be refused (406).
        channel.queue_declare("default-a")
        channel.exchange_declare("default-b")
        channel.queue_declare("default-exclusive", exclusive=True)
        listed = leveret("list", "queues", "name", "durable", "--format", "json")
    durable = {row["name"]: row["durable"] for row in json.loads(listed.stdout)}
    assert durable["default-a"] is True
    assert durable["default-exclusive"] is False


@pytest.mark.parametrize(("size", "bytes_kept"), [("5kB", 5000), ("2 MiB", 2**21), ("17", 17)])
def test_sizes_have_units(leveret: Command, size: str, bytes_kept: int) -> None:
    name = f"sized-{bytes_kept}"
    assert leveret("declare", "stream", name, "--max-bytes", size).returncode == 0
    columns = leveret("list", "queues", "name", "arguments", "--format", "json")
    arguments = {row["name"]: row["arguments"] for row in json.loads(columns.stdout)}
    assert arguments[name]["x-max-length-bytes"] == bytes_kept


@pytest.mark.parametrize("size", ["much", "-1", "5 parsecs", ""])
def test_a_size_that_is_none_is_refused(leveret: Command, size: str) -> None:
    refused = leveret("declare", "stream", "sized", "--max-bytes", size)
    assert refused.returncode == 64
    assert b"a size must be a number of bytes, or have a unit such as 512MiB" in refused.stderr
