"""Brokers on other machines: by an address, or by a context's name."""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import threading
from pathlib import Path
from typing import NoReturn

import pytest

from leveret.cli import exits
from leveret.cli.contexts.kept import Context, Contexts
from leveret.cli.contexts.remote import Remote
from leveret.cli.management_client import CLI_ANSWER_BYTES_MAX, read_body
from leveret.cli.place import BrokerOptions
from leveret.cli.root import app
from leveret.cli.shell.history import history_path
from support.brokers.broker_process import BrokerProcess
from support.http.http_streams import http_port

#: What stands in the environment of whoever runs the tests must not count.
VARIABLES = (
    "LEVERET_URI",
    "LEVERET_API",
    "LEVERET_API_PASSWORD",
    "LEVERET_CONTEXT",
    "LEVERET_DATA_DIR",
    "LEVERET_CONFIG_FILE",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's configuration directory, empty."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def run(*arguments: str) -> int:
    """Run a command in this process; return its exit code."""
    with pytest.raises(SystemExit) as end:
        app(list(arguments), prog_name="leveret")
    assert isinstance(end.value.code, int)
    return end.value.code


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


# -- the file --------------------------------------------------------------------------------------


def test_contexts_are_set_used_shown_and_deleted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("context", "show") == exits.NOTHING
    assert (
        run("context", "set", "prod", "--api", "https://ann:secret@b.example", "--user", "x") == 0
    )
    assert run("context", "set", "prod", "--uri", "amqps://ann:secret@b.example/v") == 0
    assert run("context", "set", "te st.\u00e9", "--api", "http://127.0.0.1:1") == 0
    assert run("context", "use", "prod") == 0
    assert run("context", "list") == 0
    shown = capsys.readouterr().out
    assert re.search(r"^\* +prod ", shown, flags=re.MULTILINE)
    assert run("context", "show") == 0
    shown += capsys.readouterr().out
    assert "uri = amqps://ann@b.example:5671/v" in shown
    assert "secret" not in shown
    kept = Contexts.load()
    assert kept.current == "prod"
    assert kept.get("te st.\u00e9") == Context(api="http://127.0.0.1:1")
    file = home / "leveret" / "contexts.toml"
    assert file.stat().st_mode & 0o777 == 0o600
    assert run("context", "delete", "prod") == 0
    assert (Contexts.load().current, list(Contexts.load().by_name)) == ("", ["te st.\u00e9"])
    assert [path.name for path in file.parent.iterdir()] == ["contexts.toml"]


def test_a_user_without_a_home_has_no_contexts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs as a user id without an account."""

    def no_account(_: int) -> NoReturn:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", no_account)
    monkeypatch.setattr("os.getuid", lambda: 12_345)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert Contexts.load().by_name == {}
    assert not history_path().exists()
    assert run("context", "list") == 0


def test_contexts_without_the_api_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("context", "set", "a", "--uri", "amqp://host") == 0
    assert run("context", "list") == 0
    heads, row = capsys.readouterr().out.splitlines()
    assert heads.split() == ["current", "name", "api", "uri", "user"]
    assert row.split()[0] == "a"


@pytest.mark.parametrize("name", ["LEVERET_URI", "LEVERET_API", "LEVERET_API_PASSWORD"])
def test_a_password_that_is_not_utf8_is_refused_and_not_shown(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEVERET_API", "http://127.0.0.1:1")
    scheme = {"LEVERET_URI": "amqp://u:", "LEVERET_API": "http://u:"}.get(name, "")
    monkeypatch.setenv(name, f"{scheme}hush\udcff{'@127.0.0.1:1' if scheme else ''}")
    words = ["get", "q"] if name == "LEVERET_URI" else ["ctl", "list_users"]
    assert run(*words) in {exits.USAGE, exits.CONFIG}
    error = capsys.readouterr().err
    assert "is not UTF-8" in error
    assert "hush" not in error


def test_a_password_is_read_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('pass "word"\\\n'))
    assert run("context", "set", "a", "--api", "http://127.0.0.1:1", "--ask-password") == 0
    assert Contexts.load().get("a").password == 'pass "word"\\'
    assert run("context", "show", "a") == 0
    assert "password = (set)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("current = 1", "Expected `str`, got `int` - at `$.current`"),
        ('current = "a"', "but [context.a] is missing"),
        ("context = 1", "Expected `object`, got `int` - at `$.context`"),
        ("[contexts.a]", "unknown field `contexts`"),
        ('[context.a]\nurl = "x"', "'url' is unknown"),
        ("[context.a]\napi = 1", "Expected `str`, got `int`"),
        ("[context.a", "Expected"),
        ("\udcff", "utf-8"),
        ("#" * 1_100_000, "bytes"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(home: Path, text: str, why: str) -> None:
    file = home / "contexts.toml"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    file.chmod(0o600)
    with pytest.raises(exits.Failure, match=re.escape(why)) as failure:
        Contexts.load(file)
    assert failure.value.code == exits.CONFIG


def test_a_file_that_others_may_read_is_refused(home: Path) -> None:
    file = home / "contexts.toml"
    file.write_text("")
    file.chmod(0o640)
    with pytest.raises(exits.Failure, match=re.escape(f"chmod 600 {file}")):
        Contexts.load(file)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--api", "ftp://host"],
        ["--api", "https://host:port"],
        ["--api", "host:15671"],
        ["--api", "https://host/?x"],
        ["--uri", "http://host"],
        ["--user", "a\nb"],
    ],
)
def test_what_no_context_can_be_is_refused_and_changes_nothing(
    home: Path, arguments: list[str]
) -> None:
    assert run("context", "set", "a", *arguments) == exits.USAGE
    assert not (home / "leveret" / "contexts.toml").exists()


@pytest.mark.parametrize("password", ["canary", "canary/2", "canary[", "canary?x", "canary\u2100"])
def test_an_address_that_cannot_be_read_is_not_quoted(
    home: Path, password: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for api in (f"https://ann:{password}", f"https://ann:{password}@host:x"):
        assert run("context", "set", "a", "--api", api) == exits.USAGE
    assert "canary" not in capsys.readouterr().err


def test_an_unknown_context_is_told_with_those_that_are_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("context", "set", "prod", "--api", "https://host")
    assert run("--context", "prd", "list", "queues") == exits.CONFIG
    assert "no context 'prd'" in (said := capsys.readouterr().err)
    assert "known: prod" in said


# -- which broker is meant -------------------------------------------------------------------------


def test_what_is_nearest_to_the_command_counts(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts = Contexts.load()
    contexts.by_name = {name: Context(api=f"https://{name}") for name in ("one", "two")}
    contexts.save()
    socket_of = Path("data/management.sock")
    assert BrokerOptions().find_api() == Path("leveret-data/management.sock")
    contexts.current = "one"
    contexts.save()
    assert str(BrokerOptions().find_api()) == "https://one:15671"
    monkeypatch.setenv("LEVERET_DATA_DIR", "data")
    assert BrokerOptions().find_api() == socket_of
    monkeypatch.setenv("LEVERET_CONTEXT", "two")
    monkeypatch.delenv("LEVERET_DATA_DIR")
    assert str(BrokerOptions().find_api()) == "https://two:15671"
    monkeypatch.setenv("LEVERET_API", "http://three/rabbit/")
    assert str(BrokerOptions().find_api()) == "http://three:15672/rabbit"
    assert str(BrokerOptions(context="one").find_api()) == "https://one:15671"
    assert str(BrokerOptions(api="https://[::1]:1").find_api()) == "https://[::1]:1"
    assert BrokerOptions(data_dir=Path("data")).find_api() == socket_of


def test_a_broker_of_this_machine_and_of_another_is_one_too_many() -> None:
    with pytest.raises(exits.Failure, match="names a broker on this machine and --api another one"):
        BrokerOptions(data_dir=Path("data"), api="https://host").find_api()


def test_an_option_before_the_command_comes_before_the_environment(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LEVERET_API", "https://elsewhere.invalid")
    assert run("--data-dir", str(home / "none"), "list", "queues") == exits.UNAVAILABLE
    assert str(home / "none") in capsys.readouterr().err


def test_the_password_is_that_of_the_nearest_place(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "password").write_text("from a file\nand no more")
    context = Context(api="https://host", user="ann", password_file=str(home / "password"))
    assert Remote.of(context).password == "from a file"
    monkeypatch.setenv("LEVERET_API_PASSWORD", "from outside")
    assert Remote.of(context).password == "from outside"
    in_address = Remote.of(Context(api="https://b%40b:p%3Aq@host", user="ann"))
    assert (in_address.user, in_address.password) == ("b@b", "p:q")
    assert "p:q" not in f"{in_address!r} {in_address}"


# -- asking ----------------------------------------------------------------------------------------


@pytest.fixture
def api(broker: BrokerProcess) -> str:
    """The address of a broker's API on TCP."""
    return f"http://127.0.0.1:{http_port(broker)}"


def test_a_broker_is_asked_over_tcp(api: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ctl", "--api", api, "list_sinks", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == []
    run("context", "set", "here", "--api", api)
    assert run("--context", "here", "ctl", "list_sinks", "--format", "json") == 0
    assert json.loads(capsys.readouterr().out) == []


def test_who_may_not_is_told_so(api: str, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = api.replace("//", "//guest:wrong@")
    assert run("ctl", "--api", wrong, "list_sinks") == exits.NO_PERMISSION
    said = capsys.readouterr().err
    assert "password" in said
    assert "wrong@" not in said


def test_nobody_there_is_told_with_the_address(capsys: pytest.CaptureFixture[str]) -> None:
    api = f"http://127.0.0.1:{free_port()}"
    assert run("ctl", "--api", api, "list_sinks") == exits.UNAVAILABLE
    assert api in capsys.readouterr().err


@pytest.mark.parametrize(
    ("length", "body", "code", "said"),
    [
        (CLI_ANSWER_BYTES_MAX + 1, b"[]", exits.UNAVAILABLE, "more than 536870912 bytes"),
        (3, b"[]", exits.UNAVAILABLE, "IncompleteRead"),
        (6, b"<html>", exits.PROTOCOL, "is not the API of a broker"),
        (99_999, b"[" * 99_999, exits.PROTOCOL, "is not the API of a broker"),
    ],
)
def test_an_answer_that_no_broker_gives_is_refused(
    capsys: pytest.CaptureFixture[str], length: int, body: bytes, code: int, said: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % length + body
        threading.Thread(target=_answer, args=(server, answer), daemon=True).start()
        api = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert run("ctl", "--api", api, "list_sinks") == code
    assert said in capsys.readouterr().err


def _answer(server: socket.socket, answer: bytes) -> None:
    """Answer one request, and close."""
    peer, _ = server.accept()
    with peer:
        while b"\r\n\r\n" not in peer.recv(4096):
            pass
        peer.sendall(answer)


@pytest.mark.parametrize("head", ["Transfer-Encoding: chunked", "Connection: close"])
def test_an_answer_without_a_length_ends_at_the_limit(head: str) -> None:
    """At the limit, and one past it."""
    chunked = "chunked" in head
    for size, fits in ((1000, True), (1001, False)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            body = b"%x\r\n" % size * chunked + bytes(size) + b"\r\n0\r\n\r\n" * chunked
            theirs.sendall(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode() + body)
            theirs.shutdown(socket.SHUT_WR)
            response = http.client.HTTPResponse(ours)
            response.begin()
            if fits:
                assert read_body(response, 1000) == bytes(size)
            else:
                with pytest.raises(http.client.HTTPException, match="more than 1000 bytes"):
                    read_body(response, 1000)
            response.close()


def test_plain_http_where_tls_is_wanted_is_told(
    api: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("ctl", "--api", api.replace("http", "https"), "list_sinks") == exits.PROTOCOL
    assert "no TLS with https://127.0.0.1" in capsys.readouterr().err


def test_a_context_leads_commands_that_speak_amqp(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    run("context", "set", "here", "--uri", broker.uri)
    assert run("--context", "here", "ping") == 0
    assert f":{broker.port} answers" in capsys.readouterr().out
    run("context", "use", "here")
    assert run("ping") == 0
    assert f":{broker.port} answers" in capsys.readouterr().out
