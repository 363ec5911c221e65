"""What leaves for a terminal or a log has no control character of others, wherever it came from.

The commands are found, not listed, so that a new one is tried too.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
import typer.main

import leveret
from leveret.cli import app
from leveret.client import BasicProperties, blocking
from leveret.escaping import escaped, escaped_json
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import run_leveret
from support.http.http_api import Api
from support.http.http_streams import HttpUser, http_port
from support.wire import raw

#: A text that forges a line, clears a screen, rings, colours and turns what follows.
HOSTILE: Final = "a\n2026-01-01 forged \x1b[2J\x07\r\x7f\x85\x9b31m\u2028\u202eb\\"

#: The same as the name of a queue or an exchange, which holds no line ends.
NAME: Final = HOSTILE.replace("\n", "").replace("\r", "")


STREAM: Final = f"stream of {NAME}"
CONSUMED: Final = f"consumed of {NAME}"


def controls(text: str, kept: str = "\n") -> list[str]:
    """The control characters of a text, but for `kept`."""
    return [letter for letter in text if escaped(letter) != letter and letter not in kept]


# -- escaping --------------------------------------------------------------------------------------


def test_every_control_character_is_escaped_and_json_means_the_same() -> None:
    texts = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    kinds = {letter for letter in texts if escaped(letter) != letter}
    assert kinds >= set(map(chr, [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, 0x202E]))
    assert not kinds & set("a é\u00a0兎\\\U0001f407")
    for letter in kinds:
        told = escaped_json(json.dumps([letter], ensure_ascii=False))
        assert not controls(told, "")
        assert json.loads(told) == [letter]


# -- the log ---------------------------------------------------------------------------------------

#: Logs an event of each level with each kind of value, as whoever logs may.
_LOGS: Final = """
import json, sys
from leveret.server.log import make_log
form, hostile = sys.argv[1], json.loads(sys.argv[2])
class Odd:
    def __repr__(self):
        return hostile
log = make_log("debug", form, lambda time, level, text: None)
for level in ("debug", "info", "warning", "error", "critical"):
    tell = getattr(log, level)
    tell(hostile, text=hostile, number=5, none=None, flag=True, share=0.5, raw=hostile.encode(),
         rows=[hostile], table={hostile: hostile}, odd=Odd(), bug=ValueError(hostile))
    try:
        raise ValueError(hostile)
    except ValueError as bug:
        tell("fault", reason=hostile, exc_info=bug)
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_value_of_an_event_adds_a_line_or_a_control_character(form: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", _LOGS, form, json.dumps(HOSTILE)],
        capture_output=True, check=True, text=True, encoding="utf-8",
    ).stderr  # fmt: skip
    assert not controls(told)
    events = [line for line in told.split("\n") if line and not line.startswith("    ")]
    assert len(events) == 10
    if form == "json":
        found = [json.loads(line) for line in events]
        assert [event["event"] for event in found] == [HOSTILE, "fault"] * 5
        assert found[0]["text"] == found[1]["reason"] == HOSTILE
        assert found[0]["table"] == {HOSTILE: HOSTILE}
        assert (found[0]["number"], found[0]["none"], found[0]["flag"]) == (5, None, True)
    else:
        assert told.count("    ValueError: a\n    2026-01-01 forged \\x1b[2J") == 5
        assert "number=5" in events[0]


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_stranger_forges_no_line_of_the_log(tmp_path: Path, form: str) -> None:
    with BrokerProcess(tmp_path, settings={"log_format": form}) as broker:
        for login in (
            raw.Login(user=HOSTILE, password=HOSTILE),
            raw.Login(mechanism=HOSTILE),
            raw.Login(vhost=HOSTILE),
        ):
            with contextlib.suppress(raw.Closed, AssertionError, OSError, EOFError):
                raw.connect(broker.uri, login).close()
        # Names in a header of HTTP are any bytes, in base 64.
        with HttpUser(http_port(broker), HOSTILE, HOSTILE) as client:
            assert client.get("/api/streams/%2F")[0] == 401
        assert broker.terminate() == 0
        assert "forged" in broker.output
        assert not controls(broker.output)
        assert not [line for line in broker.output.split("\n") if line.startswith("2026-01-01")]


# -- the commands ----------------------------------------------------------------------------------

ROOT: Final = typer.main.get_command(app)


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every command with its path."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name in inner:
        yield from commands(inner[name], (*path, name))


ALL: Final = dict(commands(ROOT))
LISTS: Final = [path for path in ALL if path[0] == "list" or path[-1].startswith("list_")]

#: These start brokers or Spark, load a broker, or write files; what they print they print by
#: `output`, as the source shows.
APART: Final = {"serve", "demo", "pipeline", "perf", "backup", "restore", "store"}

DEFINITIONS: Final[dict[str, Any]] = {
    "vhosts": [{"name": HOSTILE, "metadata": {"description": HOSTILE, "tags": [HOSTILE]},
                "limits": {"max-queues": 5000}}],
    "users": [{"name": HOSTILE, "password_hash": "", "tags": [HOSTILE],
               "limits": {"max-channels": 500}}],
    "permissions": [
        {"user": user, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
        for user, vhost in ((HOSTILE, HOSTILE), ("guest", HOSTILE))
    ],
    "topic_permissions": [
        {"user": HOSTILE, "vhost": HOSTILE, "exchange": NAME, "write": ".*", "read": ".*"}
    ],
    "policies": [{"vhost": HOSTILE, "name": HOSTILE, "pattern": "^none$",
                  "definition": {"dead-letter-routing-key": HOSTILE}}],
    "parameters": [
        {"vhost": HOSTILE, "component": HOSTILE, "name": HOSTILE, "value": HOSTILE},
        {"vhost": HOSTILE, "component": "operator_policy", "name": HOSTILE,
         "value": {"pattern": "^none$", "definition": {"max-length": 5}}},
    ],
    "global_parameters": [{"name": HOSTILE, "value": {HOSTILE: HOSTILE}}],
    "queues": [
        {"name": NAME, "vhost": HOSTILE, "durable": True, "arguments": {"x-hostile": HOSTILE}},
        {"name": CONSUMED, "vhost": HOSTILE, "durable": True},
        {"name": STREAM, "vhost": HOSTILE, "durable": True,
         "arguments": {"x-queue-type": "stream"}},
    ],
    "exchanges": [
        {"name": NAME, "vhost": HOSTILE, "type": "x-delayed-message", "durable": True,
         "arguments": {"x-delayed-type": "direct", "x-hostile": HOSTILE}},
    ],
    "bindings": [
        {"source": NAME, "vhost": HOSTILE, "destination": NAME, "destination_type": "queue",
         "routing_key": HOSTILE, "arguments": {"x-hostile": HOSTILE}},
    ],
}  # fmt: skip


def hostile_uri(process: BrokerProcess) -> str:
    """The URI of the vhost with the hostile name."""
    return process.uri.removesuffix("%2F") + quote(HOSTILE, safe="")


@contextlib.contextmanager
def filled(data: Path) -> Iterator[BrokerProcess]:
    """A broker full of hostile names, with a connection that has one, and messages."""
    with BrokerProcess(data) as process:
        api = Api(process.data_dir / "management.sock")
        status, answer = api.ask("POST", "/api/definitions", DEFINITIONS)
        assert status == 200, answer
        api.close()
        with blocking.connect(hostile_uri(process), connection_name=HOSTILE) as connection:
            channel = connection.channel()
            properties = BasicProperties(headers={HOSTILE: HOSTILE}, message_id="m")
            for _ in range(3):
                channel.publish(HOSTILE.encode(), "", NAME, properties=properties)
            delayed = BasicProperties(headers={"x-delay": 10**9})
            channel.publish(b"later", NAME, HOSTILE, properties=delayed)
            channel.queue_declare(NAME, passive=True)
            # A queue of its own, so that the messages stay where they are.
            channel.consume(CONSUMED, inactivity_timeout=0)
            yield process


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with filled(tmp_path_factory.mktemp("data")) as process:
        yield process


@pytest.fixture(scope="module")
def prey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """Another, of which commands may take away what they find."""
    with filled(tmp_path_factory.mktemp("prey")) as process:
        yield process


def _ask(process: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the commands of this process ask a broker."""
    monkeypatch.setenv("LEVERET_URI", hostile_uri(process))
    monkeypatch.setenv("LEVERET_DATA_DIR", str(process.data_dir))


@pytest.fixture
def environment(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    _ask(broker, monkeypatch)


def run(*arguments: str) -> tuple[int, str]:
    """Run a command in this process; return its code and what it printed, faults included."""
    given, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(b"secret\n"), "utf-8")
    code = -1
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace") as printed:
        try:
            with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
                try:
                    ROOT.main(list(arguments), "leveret")
                except SystemExit as ended:
                    code = int(ended.code or 0)
        finally:
            sys.stdin = given
        printed.seek(0)
        return code, printed.read()


#: What a listing is of, by its parameter.
WHERE: Final = {"user": HOSTILE, "exchange": NAME, "queue": NAME, "stream": STREAM}

#: Listings of what nothing but an earlier version makes with such a name: here they are empty.
NEW_ONES: Final = {"list_sinks", "list_publishers", "list_stream_consumers"}

#: Listings of what has no names.
NAMELESS: Final = {"memory"}


def _listing(path: tuple[str, ...], form: str) -> list[str]:
    """The command line of a listing of what is in the hostile vhost."""
    options, arguments = ["--format", form], []
    for parameter in ALL[path].params:
        if parameter.name == "vhost":
            options += [parameter.opts[0], HOSTILE]
        elif parameter.required:
            arguments.append(WHERE[parameter.name])
    return [*path, *options, "--", *arguments]


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("path", LISTS, ids=" ".join)
def test_a_listing_of_hostile_names_is_text_and_its_json_is_exact(path: tuple[str, ...]) -> None:
    code, exact = run(*_listing(path, "json"))
    assert code == 0, exact
    assert not controls(exact)
    assert exact.count("\n") == 1
    rows = json.loads(exact)
    if path[-1] not in NEW_ONES:
        assert rows
    if path[-1] not in NEW_ONES | NAMELESS:
        assert {HOSTILE, NAME, CONSUMED} & set(_texts(rows))
    for form in ("table", "tsv"):
        code, told = run(*_listing(path, form))
        assert code == 0, told
        assert not controls(told, "\n\t" if form == "tsv" else "\n"), path
        assert told.count("\n") == len(rows) + 1
        assert not [line for line in told.split("\n") if line.startswith("2026-01-01")]


@pytest.mark.parametrize("path", [p for p in ALL if p[0] not in APART], ids=" ".join)
def test_no_hostile_argument_comes_out_as_it_is(
    path: tuple[str, ...],
    prey: BrokerProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _ask(prey, monkeypatch)
    monkeypatch.chdir(tmp_path)
    # Into what is no terminal bodies go as they are.
    ending = ["--format", "json"] if path[0] in {"consume", "get"} else []
    ending += ["--timeout", "0.1"] if path[0] == "consume" else []
    chosen = [p for p in ALL[path].params if p.param_type_name == "argument"] or [None]
    for one in chosen:
        arguments = [
            HOSTILE if parameter is one else "x"
            for parameter in ALL[path].params
            if parameter.param_type_name == "argument" and (parameter.required or parameter is one)
        ]
        _, told = run(*path, *ending, "--", *arguments)
        kept = "\n\t" if path[-1] == "export_definitions" else "\n"
        assert not controls(told, kept), (path, told)
        assert not [line for line in told.split("\n") if line.startswith("2026-01-01")], told


@pytest.mark.usefixtures("environment")
@pytest.mark.parametrize("wrong", [["no"], ["list", "no"], ["--no"], ["get", "--count"]])
def test_a_wrong_command_line_is_quoted_escaped(wrong: list[str]) -> None:
    code, told = run(*wrong[:-1], wrong[-1] + HOSTILE)
    assert code == 64
    assert not controls(told)
    assert not [line for line in told.split("\n") if line.startswith("2026-01-01")]


@pytest.mark.usefixtures("environment")
def test_messages_and_definitions_are_printed_as_json_that_is_exact(broker: BrokerProcess) -> None:
    code, told = run("ctl", "browse_queue", "--vhost", HOSTILE, "--count", "1", "--", NAME)
    assert (code, controls(told), told.count("\n")) == (0, [], 1)
    assert json.loads(told)["payload"] == HOSTILE
    code, told = run("ctl", "export_definitions")
    assert (code, controls(told)) == (0, [])
    assert NAME in {queue["name"] for queue in json.loads(told)["queues"]}
    code, told = run("get", "--uri", hostile_uri(broker) + "%1B", "x")
    assert code != 0
    assert not controls(told)


def _get(broker: BrokerProcess, *options: str, output: int | None = None) -> bytes:
    """Print a message of the queue `body`, and give it back."""
    command = [sys.executable, "-m", "leveret", "get", "--requeue", *options, "body"]
    settings = {"LEVERET_URI": broker.uri, "LEVERET_DATA_DIR": str(broker.data_dir)}
    done = subprocess.run(
        command, stdout=subprocess.PIPE if output is None else output, check=True,
        env={**os.environ, **settings},
    )  # fmt: skip
    return done.stdout or b""


def test_a_body_is_a_line_on_a_terminal_and_its_bytes_in_a_pipe(broker: BrokerProcess) -> None:
    body = HOSTILE.encode() + b"\xff\x9b"
    with blocking.connect(broker.uri) as connection:
        channel = connection.channel()
        channel.queue_declare("body")
        channel.publish(body, "", "body")
        channel.queue_declare("body", passive=True)
    assert _get(broker) == body + b"\n"
    ours, theirs = pty.openpty()
    try:
        _get(broker, output=theirs)
        _get(broker, "--format", "json", output=theirs)
        shown = os.read(ours, 100_000).decode()
    finally:
        os.close(ours)
        os.close(theirs)
    plain, exact, end = shown.split("\r\n")
    assert not end
    assert plain == escaped(HOSTILE) + "\\xff\\x9b"
    assert not controls(plain + exact, "")


def test_a_data_directory_is_told_as_text(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as process:
        api = Api(process.data_dir / "management.sock")
        assert api.ask("POST", "/api/definitions", DEFINITIONS)[0] == 200
        api.close()
        assert process.terminate() == 0
    for command in (["check"], ["check", "--json"], ["dump"]):
        found = run_leveret("store", *command, data)
        told = found.stdout.decode() + found.stderr.decode()
        assert found.returncode == 0, told
        assert not controls(told)
    dumped = [json.loads(line) for line in told.splitlines()]
    assert {HOSTILE, NAME} <= set(_texts(dumped))


def test_commands_print_by_one_module_alone() -> None:
    """What prints is `output`; bodies go by `messages`, and rich is handed escaped texts."""
    cli = Path(leveret.__file__).parent / "cli"
    #: Prints the name of a file of the package to a script of Spark's.
    apart = {"printing/output.py", "pipeline/submit/__main__.py"}
    bodies = {"printing/messages.py"}
    for path in cli.rglob("*.py"):
        place = str(path.relative_to(cli))
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            if called in {"print", "typer.echo", "typer.secho", "typer.style"}:
                assert place in apart, f"{place}:{node.lineno}: say it by output.say"
            if called.startswith(("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer")):
                assert place in apart | bodies, f"{place}:{node.lineno}: say it by output.say"
            if called == "Text":
                first = node.args[0]
                is_ours = isinstance(first, ast.Constant | ast.JoinedStr)
                is_escaped = isinstance(first, ast.Call) and ast.unparse(first.func) == "escaped"
                assert is_ours or is_escaped, f"{place}:{node.lineno}: escape what others chose"
