"""Every command under hostile arguments: a failure is a line with a code, never a traceback.

The commands and their parameters are found, not listed, so that a new one is tried too.
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from typer.testing import CliRunner

from leveret.cli import app, exits
from leveret.cli.root import Root
from leveret.client.blocking import connect
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import COMMAND_SECONDS_MAX, Command, run_leveret

pytestmark = pytest.mark.commands

#: What a bad-tempered user types, or a script makes of a wrong variable.
VALUES = (
    "\udcff",
    "",
    "-1",
    "9" * 400,
    "1e308",
    "nan",
    "0001-01-01",
    "0001-01-01T00:00:00+14:00",
    "/proc/foo/bar",
    "/etc",
    "[" * 20_000,
    '{"a":',
    '{"a": 1e999}',
    '"\\ud800"',
    "\x1b[2J\n\u202e",
    "((((",
    "amqp://h:99999",
    "amqp://127.0.0.1:1/%FF",
    "x" * 300,
)

#: What makes a command end that otherwise runs on; and where that would be long, its parameters.
ENDING = {"consume": ["--timeout", "0.1"], "perf": ["-z", "0.05", "-r", "100"]}
ENDLESS = {("consume", "timeout"), ("perf", "time"), ("perf", "producers"), ("perf", "consumers")}

#: These start brokers or Spark when their arguments are right; they have tests of their own below.
APART = {"serve", "demo", "pipeline"}


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with its path."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name in inner:
        yield from commands(inner[name], (*path, name))


#: Made once: an app makes all its commands anew for each call.
ROOT = typer.main.get_command(app)
ALL = dict(commands(ROOT))


@pytest.fixture(scope="module")
def prey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker whose users, vhosts and queues nobody else needs."""
    with BrokerProcess(tmp_path_factory.mktemp("prey")) as process:
        yield process


def run(arguments: list[str]) -> tuple[int, str]:
    """Run a command in this process; return its code and what it printed, faults included."""
    given, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(b"secret\n"), "utf-8")
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace") as output:
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                try:
                    ROOT.main(arguments, "leveret")
                except SystemExit as ended:
                    code = int(ended.code or 0)
        finally:
            sys.stdin = given
        output.seek(0)
        return code, output.read()


def line(command: Any, chosen: Any, value: str) -> list[str]:
    """Return arguments for a command: the value for one parameter, `x` for others it needs."""
    options: list[str] = []
    arguments: list[str] = []
    for parameter in command.params:
        if parameter is not chosen and not parameter.required:
            continue
        given = value if parameter is chosen else "x"
        if parameter.param_type_name == "argument":
            arguments.append(given)
        else:
            options += [parameter.opts[0], given]
    return [*options, "--", *arguments]


def takes_value(parameter: Any) -> bool:
    """Tell whether a parameter is no flag."""
    return parameter.name != "help" and "bool" not in str(parameter.type_descriptor.annotation)


def takes_bytes(parameter: Any) -> bool:
    """Tell whether a parameter is a path or a body, which may be no text."""
    return bool(parameter.type_descriptor.is_path or parameter.name == "body")


@pytest.mark.parametrize("path", [p for p in ALL if p[0] not in APART], ids=" ".join)
def test_no_argument_ends_a_command_by_a_fault_of_its_own(
    path: tuple[str, ...], prey: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERET_URI", prey.uri)
    monkeypatch.setenv("LEVERET_DATA_DIR", str(prey.data_dir))
    monkeypatch.chdir(tmp_path)
    command = ALL[path]
    for parameter in filter(takes_value, command.params):
        for value in VALUES:
            if (path[0], parameter.name) in ENDLESS and value not in {"\udcff", "", "-1", "nan"}:
                continue
            arguments = [*path, *ENDING.get(path[0], []), *line(command, parameter, value)]
            code, output = run(arguments)
            place = f"{' '.join(path)} {parameter.name} {value[:40]!a}: {output[:300]}"
            assert "Traceback" not in output, place
            assert code != exits.INTERNAL, place
            if code not in {exits.OK, exits.NOTHING}:
                assert output.strip(), place
            if value == "\udcff" and not takes_bytes(parameter):
                assert code != exits.OK, place


@pytest.mark.parametrize("path", [p for p in ALL if p[0] == "pipeline"], ids=" ".join)
def test_a_pipeline_takes_no_text_that_is_not_utf8(path: tuple[str, ...]) -> None:
    command = ALL[path]
    for parameter in filter(takes_value, command.params):
        if parameter.type_descriptor.is_path or parameter.name == "rate":
            continue
        result = CliRunner().invoke(app, [*path, *line(command, parameter, "\udcff")])
        assert result.exit_code == exits.USAGE, (parameter.name, result.output)
        assert "is not UTF-8: b'\\xff'" in result.stderr


def test_a_body_and_a_path_may_be_any_bytes(leveret: Command, queue: str, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.bin")
    (tmp_path / name).write_bytes(b"from the file")
    assert leveret("publish", queue, "\udcff").returncode == 0
    assert leveret("publish", queue, "--file", tmp_path / name).returncode == 0
    assert leveret("get", queue, "--count", "2").stdout == b"\xff\nfrom the file\n"
    assert leveret("ctl", "export_definitions", tmp_path / name).returncode == 0


def put(broker: BrokerProcess, queue: str, body: bytes) -> None:
    """Publish a message and wait for its confirm."""
    with connect(broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.publish(body, routing_key=queue, mandatory=True)


def taken(broker: BrokerProcess, queue: str) -> bytes:
    """Take the only message of a queue, and return its body."""
    with connect(broker.uri) as connection:
        got = connection.channel().get(queue, no_ack=True)
        assert got is not None
        assert got.message_count == 0
        return got.body


def redirected(
    broker: BrokerProcess, command: str, *arguments: str
) -> subprocess.CompletedProcess[bytes]:
    """Run a command with redirections, as a shell does it."""
    ours = {"LEVERET_URI": broker.uri, "LEVERET_DATA_DIR": str(broker.data_dir)}
    return subprocess.run(
        ["/bin/sh", "-c", command, "sh", sys.executable, *arguments],
        capture_output=True,
        timeout=COMMAND_SECONDS_MAX,
        env={k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")} | ours,
    )


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ('"$1" -m leveret list queues >/dev/full', exits.IO_FAILED, "No space left on device"),
        ('"$1" -m leveret list queues --format json >/dev/full', exits.IO_FAILED, "No space left"),
        ('"$1" -m leveret get "$2" >/dev/full', exits.IO_FAILED, "No space left on device"),
        ('"$1" -m leveret get "$2" >&-', exits.IO_FAILED, "cannot write to standard output"),
        ('"$1" -m leveret list queues >&-', exits.IO_FAILED, "cannot write to standard output"),
        ('"$1" -m leveret publish "$2" <&-', exits.NO_INPUT, "cannot read standard input"),
        ('"$1" -m leveret publish "$2" --file /', exits.NO_INPUT, "Is a directory"),
        ('"$1" -m leveret ctl import_definitions /', exits.NO_INPUT, "Is a directory"),
        ('"$1" -m leveret ctl import_definitions /dev/zero', exits.USAGE, "larger than"),
        ('"$1" -m leveret ctl export_definitions /', exits.CANNOT_CREATE, "cannot write /"),
        ('"$1" -m leveret ctl export_definitions /dev/full', exits.CANNOT_CREATE, "No space"),
    ],
)
def test_what_cannot_be_read_or_written_is_told(
    broker: BrokerProcess, queue: str, command: str, code: int, said: str
) -> None:
    put(broker, queue, b"kept")
    result = redirected(broker, command, queue)
    told = result.stderr.decode()
    assert said in told
    assert len(told.splitlines()) == 1
    assert result.returncode == code
    # What could not be printed was not taken.
    assert taken(broker, queue) == b"kept"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        # That nobody reads on is one of the ways to end it.
        (["consume", "QUEUE"], exits.OK),
        (["get", "QUEUE"], exits.OK),
        (["list", "queues"], exits.NOT_READ),
        (["list", "queues", "--format", "json"], exits.NOT_READ),
        (["ctl", "list_users"], exits.NOT_READ),
    ],
)
def test_a_reader_that_went_away_ends_a_command_in_silence(
    broker: BrokerProcess, queue: str, arguments: list[str], code: int
) -> None:
    put(broker, queue, b"kept")
    reading, writing = os.pipe()
    os.close(reading)
    ours = {"LEVERET_URI": broker.uri, "LEVERET_DATA_DIR": str(broker.data_dir)}
    command = [queue if argument == "QUEUE" else argument for argument in arguments]
    try:
        found = subprocess.run(
            [sys.executable, "-m", "leveret", *command],
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=COMMAND_SECONDS_MAX,
            env=os.environ | ours,
        )
    finally:
        os.close(writing)
    assert found.stderr == b""
    assert found.returncode == code
    assert taken(broker, queue) == b"kept"


def test_a_fault_is_a_line_and_shows_its_calls_when_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The fault is the test's own, in a command of the test's own."""

    def broken() -> None:
        raise RuntimeError("two\nlines")

    made = typer.Typer()
    made.command("broken")(broken)
    group = Root(name="leveret")
    group.commands["broken"] = typer.main.get_command(made)
    with pytest.raises(SystemExit) as ended:
        group.main(["broken"], "leveret")
    assert ended.value.code == exits.INTERNAL
    told = capsys.readouterr().err
    assert "a bug in leveret, please report it: RuntimeError: two (test_hostile.py:" in told
    assert len(told.splitlines()) == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--data-dir", "/proc/foo"],
        ["--data-dir", "/dev/null"],
        ["--data-dir", "/dev/null/x"],
        ["--data-dir", "x" * 300],
        ["--data-dir", os.fsdecode(b"/proc/\xff")],
        ["--host", "no.such.host.invalid"],
        ["--host", "\udcff"],
        ["--host", "300.1.1.1"],
        ["--port", "-1"],
        ["--port", "9" * 400],
        ["--port", "1e308"],
        ["--memory-bytes-max", "9" * 400],
        ["--memory-bytes-max", "9" * 400 + ".0GiB"],
        ["--config", "/"],
        ["--config", "/dev/zero"],
        ["--config", "/dev/null/x"],
        ["--load-definitions", "/"],
        ["--load-definitions", "/dev/zero"],
        ["--default-user", "x" * 300],
    ],
    ids=lambda flags: f"{flags[0]} {flags[1][:20]!a}",
)
def test_a_broker_that_cannot_start_says_why_in_a_line(flags: list[str], tmp_path: Path) -> None:
    base = {"LEVERET_PORT": "0", "LEVERET_HTTP_PORT": "0", "LEVERET_DATA_DIR": str(tmp_path / "d")}
    result = run_leveret("serve", *flags, settings=base)
    told = result.stderr.decode()
    assert result.returncode in {exits.NOTHING, exits.USAGE, exits.CONFIG}, told
    assert "Traceback" not in told
    assert told.strip()
