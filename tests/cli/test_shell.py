"""`leveret shell`: lines from a pipe, and a person at a terminal, on a real broker."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from leveret.cli import exits
from leveret.client import blocking
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import Command
from support.commands.terminal import Terminal

pytestmark = pytest.mark.commands


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A running broker: the queues of other tests are not listed, and complete no word."""
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


# -- lines from a pipe -----------------------------------------------------------------------------


def test_each_command_does_what_it_says(leveret: Command) -> None:
    lines = b"""
    # Comments and empty lines are passed over.

    declare queue pets --type quorum --argument x-max-length=10
    declare exchange animals --type topic
    bind animals pets --key "#"
    publish cat.black 'hello there' --exchange animals --header n=1
    publish pets two
    browse pets
    list queues name messages_ready --format tsv
    get pets --requeue
    consume pets --count 1
    get pets
    publish pets left
    purge pets
    unbind animals pets --key=#
    publish cat nowhere --exchange animals --optional
    delete exchange animals --if-unused
    delete queue pets --if-empty
    declare queue kept --argument x-retain-acked=1D
    publish kept once
    get kept
    rewind kept 2020-01-01T00:00:00Z
    get kept
    declare stream log --max-bytes 10MB
    publish log entry
    consume log --offset first --count 1
    delete queue log
    delete queue kept
    """
    done = leveret("shell", stdin=lines)
    assert done.returncode == 0, done.stderr
    said = done.stdout.decode().splitlines()
    listed = said.index("pets\t2")
    assert said[:listed] == ["pets", "animals", "animals -> pets", "hello there", "two", said[5]]
    assert said[listed + 1 :] == [
        *["hello there", "hello there", "two"],
        *["kept", "once", "1 message put back", "once", "log", "entry"],
    ]


def test_the_first_line_that_fails_ends_the_shell(leveret: Command, queue: str) -> None:
    done = leveret("shell", stdin=f"get nope\npublish '{queue}' late\n".encode())
    assert done.returncode == exits.REFUSED
    told = "leveret: line 1: 404 NOT_FOUND - no queue 'nope' in vhost '/'\n"
    assert done.stderr.decode() == told
    assert leveret("get", queue).returncode == exits.NOTHING


def test_it_can_be_told_to_go_on(leveret: Command, queue: str) -> None:
    lines = f"get nope\nnonsense\npublish '{queue}' late\n".encode()
    done = leveret("shell", "--keep-going", stdin=lines)
    assert done.returncode == exits.REFUSED
    assert leveret("get", queue).stdout == b"late\n"


def test_the_code_is_that_of_the_last_line(leveret: Command, queue: str) -> None:
    assert leveret("shell", stdin=f"get '{queue}'\n".encode()).returncode == exits.NOTHING
    assert leveret("shell", stdin=f"get '{queue}'\nhelp\n".encode()).returncode == exits.OK
    assert leveret("shell", stdin=b"exit\nnonsense\n").returncode == exits.OK


HOSTILE = (
    b"secret",
    b"\xff",
    b"'",
    b"\\",
    b'"a\\',
    b"\0",
    b"--",
    b"-- get",
    b"--help",
    b"get",
    b"get --count",
    b"get a b",
    b"get a --count -1",
    b"get a --count " + b"9" * 5000,
    b"get a --nope",
    b"get a --requeue=1",
    b"get a --count 1 --count 2",
    b"get a --format xml",
    b"consume a --timeout nan",
    b"consume a --timeout 1e308",
    b"consume a --offset 0001-01-01",
    b"declare",
    b"declare cow x",
    b"declare queue " + b"x" * 300,
    b"declare queue ''  --argument a",
    b"declare queue x --argument a=[" + b"[" * 20_000,
    b'declare queue x --argument x-max-length={"a":1e999}',
    b'declare queue x --argument x="\\ud800"',
    b"declare queue '\x1b[2J\xe2\x80\xae'",
    b"declare stream x --max-bytes much",
    b"declare exchange e --type cow",
    b"publish a",
    b"publish a b --property headers=1",
    b"publish a b --header c",
    b"publish '\x1b]0;owned\x07' b",
    b"bind '[red]a[/red]' b",
    b"rewind a 9999999999999999999",
    b"list cows",
    b"list queues '\x1b[2Jname'",
    b"help '\x1b[2J'",
    b"publish a 'b' \\",
    b"x" * (1024 * 1024 + 5),
)


def test_no_line_ends_it_by_a_fault_of_its_own(leveret: Command) -> None:
    done = leveret("shell", "--keep-going", stdin=b"\n".join(HOSTILE) + b"\nhelp exit\n")
    told = done.stderr.decode()
    assert "Traceback" not in told
    assert "bug in leveret" not in told
    # Each of them fails in a line of its own, and what follows is still run.
    for number, line in enumerate(HOSTILE, 1):
        if not line.startswith(b"declare queue x"):
            assert f"leveret: line {number}: " in told, line[:40]
    assert done.stdout.decode().endswith("exit\n  end the shell (also Ctrl-D)\n")
    assert b"\x1b" not in done.stdout + done.stderr
    assert done.returncode == exits.USAGE


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"delete queue nope", "no queue 'nope' in vhost '/'"),
        (b"delete exchange nope", "no exchange 'nope' in vhost '/'"),
    ],
)
def test_what_is_not_there_cannot_be_deleted(leveret: Command, line: bytes, told: str) -> None:
    """A broker says nothing of it: deleting is done when the thing is not there."""
    done = leveret("shell", stdin=line + b"\n")
    assert done.returncode == exits.REFUSED
    assert told in done.stderr.decode()
    assert done.stdout == b""


def test_names_and_bodies_reach_a_terminal_escaped(leveret: Command, tmp_path: Path) -> None:
    with blocking.connect(leveret.broker.uri) as connection:
        channel = connection.channel()
        name = channel.queue_declare("[bold]pets[/bold]").queue
        channel.confirm_select()
        channel.publish(b"\x1b[2Jbody\r\nnext", routing_key=name)
    with prompt(leveret.broker, tmp_path) as terminal:
        run(terminal, f"browse '{name}'", "\\x1b[2Jbody\\r\\nnext")
        run(terminal, "list queues name", "[bold]pets[/bold]")
        run(terminal, f"delete queue '{name}'", "1 message deleted")
        end(terminal)
        assert b"\x1b[2Jbody" not in terminal.raw


def test_a_broker_that_is_not_there_is_told(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as gone:
        command = Command(gone)
        assert command("shell", stdin=b"help\n").returncode == 0
        gone.kill()
        uri = gone.uri
    ended = command("shell", "--uri", uri, stdin=b"help\n")
    assert ended.returncode == exits.UNAVAILABLE
    assert b"cannot connect to" in ended.stderr


# -- at a terminal ---------------------------------------------------------------------------------


def prompt(broker: BrokerProcess, home: Path, uri: str = "") -> Terminal:
    """Start a shell on a terminal, and wait for its prompt."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
    ours = {"LEVERET_URI": uri or broker.uri, "LEVERET_DATA_DIR": str(broker.data_dir)}
    environment = kept | ours | {"XDG_STATE_HOME": str(home)}
    terminal = Terminal([sys.executable, "-m", "leveret", "shell"], environment)
    terminal.expect("leveret />")
    return terminal


def run(terminal: Terminal, line: str, *expected: str) -> None:
    """Type a line, and wait for what it prints and for the next prompt."""
    terminal.type(f"{line}\r")
    for text in expected:
        terminal.expect(text)
    terminal.expect("leveret />")


def end(terminal: Terminal) -> None:
    """Type Ctrl-D, and check that the shell ends."""
    terminal.type("\x04")
    assert terminal.wait() == 0


@pytest.fixture
def terminal(broker: BrokerProcess, tmp_path: Path) -> Iterator[Terminal]:
    """A shell on a terminal."""
    with prompt(broker, tmp_path) as made:
        yield made


def test_ctrl_c_ends_a_consume_and_not_the_shell(terminal: Terminal, leveret: Command) -> None:
    run(terminal, "declare queue letters", "letters\r\n")
    terminal.type("consume letters\r")
    terminal.expect("Ctrl-C ends this")
    assert leveret("publish", "letters", "first").returncode == 0
    terminal.expect("first")
    terminal.type("\x03")
    terminal.expect("leveret />")
    # What was printed was acked, and the consumer is gone.
    assert leveret("get", "letters").returncode == exits.NOTHING
    terminal.type("half a line\x03")
    terminal.expect("leveret />")
    run(terminal, "publish letters second", "confirmed")
    run(terminal, "get letters", "second")
    run(terminal, "delete queue letters", "0 messages deleted")
    end(terminal)


def complete(terminal: Terminal, typed: str, rest: str) -> None:
    """Type the beginning of a word and Tab, and wait for the rest of it."""
    terminal.type(typed)
    terminal.expect(typed.rsplit(maxsplit=1)[-1])
    terminal.type("\t")
    terminal.expect(rest)


def test_commands_and_names_are_completed(terminal: Terminal, leveret: Command) -> None:
    assert leveret("declare", "queue", "zebra finches").returncode == 0
    complete(terminal, "decl", "are")
    complete(terminal, " qu", "eue")
    complete(terminal, " gnus --ty", "pe")
    complete(terminal, " quo", "rum")
    run(terminal, "", "gnus\r\n")
    complete(terminal, "publish gn", "us")
    run(terminal, " lion", "confirmed")
    complete(terminal, "purge 'zeb", "ra finches'")
    run(terminal, "", "0 messages purged")
    run(terminal, "get gnus", "lion")
    listed = leveret("list", "queues", "name", "type", "--format", "tsv").stdout.decode()
    assert "gnus\tquorum" in listed
    for name in ("gnus", "'zebra finches'"):
        run(terminal, f"delete queue {name}", "0 messages deleted")
    end(terminal)


def test_the_history_is_the_owners_and_holds_no_password(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    with prompt(broker, tmp_path) as terminal:
        run(terminal, "help exit", "end the shell")
        run(terminal, "help amqp://me:secret@host/", "unknown command")
        run(terminal, " help secret", "unknown command")
        end(terminal)
    path = tmp_path / "leveret" / "shell_history"
    assert path.read_text() == "help exit\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    with prompt(broker, tmp_path) as terminal:
        terminal.type("\x1b[A")
        terminal.expect("help exit")
        run(terminal, "", "end the shell")
        end(terminal)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_lost_connection_is_told_and_replaced(
    broker: BrokerProcess, leveret: Command, tmp_path: Path
) -> None:
    def add_user() -> None:
        assert leveret("ctl", "add_user", "passer", "by").returncode == 0
        assert leveret("ctl", "set_permissions", "passer", ".*", ".*", ".*").returncode == 0

    add_user()
    with prompt(broker, tmp_path, broker.uri_of("passer", "by")) as terminal:
        run(terminal, "declare queue survivors", "survivors\r\n")
        # The broker closes the connections of a user that is deleted.
        assert leveret("ctl", "delete_user", "passer").returncode == 0
        run(terminal, "publish survivors lost", "the connection was lost: ", "403 ACCESS_REFUSED")
        add_user()
        run(terminal, "publish survivors still", "confirmed")
        assert leveret("ctl", "delete_user", "passer").returncode == 0
        add_user()
        run(
            terminal,
            "delete queue survivors",
            "the connection was lost: ",
            "connected again to 127.0.0.1",
            "1 message deleted",
        )
        end(terminal)
