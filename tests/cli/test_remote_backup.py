"""`leveret backup` of a broker on another machine: its files come over HTTPS, and come whole."""

from __future__ import annotations

import http.client
import http.server
import json
import re
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from urllib.parse import quote

import pytest

from leveret.cli import exits
from leveret.cli.backup.files import Copied, make_folders
from leveret.cli.backup.remote import RemoteBackup
from leveret.cli.contexts.remote import Remote
from leveret.client.blocking import connect
from leveret.limits import BACKUPS_MAX
from leveret.store.listing import FOLDERS
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import Pki, port_of
from support.commands.command_process import run_leveret
from support.http.http_streams import basic
from support.store.backup_load import Load
from support.store.data_dirs import (
    SMALL,
    Filled,
    body,
    copy_of,
    definitions_of,
    fill,
    publish,
    read_stream,
    started,
    take_all,
)
from support.wire.cut_proxy import CutProxy


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Certificates of a broker."""
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A directory that a broker filled before it was killed."""
    return fill(tmp_path_factory.mktemp("filled") / "data")


@pytest.fixture(scope="module")
def broker(
    pki: Pki, filled: Filled, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """A broker on a copy of it, which serves HTTPS."""
    data = copy_of(filled, tmp_path_factory.mktemp("broker") / "data")
    with pki.broker_process(data, ballast_bytes="0") as process:
        yield process


class Elsewhere:
    """Another machine: a user's home with a context for the broker."""

    def __init__(self, home: Path, pki: Pki) -> None:
        self.settings = {"XDG_CONFIG_HOME": str(home)}
        self._pki = pki

    def knows(self, port: int, *options: str, scheme: str = "https") -> None:
        """Give the context `there` an address."""
        trusted = ["--ca-file", str(self._pki.authority.certificate)]
        api = ["--api", f"{scheme}://localhost:{port}"]
        done = self.run("context", "set", "there", *api, *trusted, *options)
        assert done.returncode == 0, done.stderr

    def run(self, *words: str | Path) -> CompletedProcess[bytes]:
        """Run a command."""
        return run_leveret(*words, settings=self.settings)

    def backup(self, to: Path) -> CompletedProcess[bytes]:
        """Make a backup of the broker."""
        return self.run("backup", "--context", "there", "--to", to)

    def place(self, port: int) -> Remote:
        """The API as commands of this process ask it."""
        ca_file = str(self._pki.authority.certificate)
        return Remote("https", "localhost", port, "", "guest", "guest", ca_file)


@pytest.fixture
def elsewhere(tmp_path: Path, pki: Pki) -> Elsewhere:
    """Another machine."""
    return Elsewhere(tmp_path / "home", pki)


class Asking:
    """A user of a broker's API over HTTPS."""

    def __init__(self, pki: Pki, broker: BrokerProcess, user: str = "guest") -> None:
        port = port_of(broker, "https")
        self._http = http.client.HTTPSConnection(
            "localhost", port, context=pki.trusting(), timeout=120
        )
        self._headers = basic(user, user)

    def close(self) -> None:
        """Go away."""
        self._http.close()

    def __call__(self, method: str, path: str) -> tuple[int, bytes]:
        self._http.request(method, path, headers=self._headers)
        response = self._http.getresponse()
        return response.status, response.read()


@pytest.fixture
def ask(pki: Pki, broker: BrokerProcess) -> Iterator[Asking]:
    """The administrator."""
    with closing(Asking(pki, broker)) as asking:
        yield asking


def holds_all(backup: Path, filled: Filled, data: Path) -> None:
    """Restore a backup, and look whether all is there."""
    done = run_leveret("restore", backup, "--data-dir", data)
    assert done.returncode == 0, done.stderr
    assert run_leveret("store", "check", data).returncode == 0
    with started(data) as (_, channel):
        assert definitions_of(data) == filled.definitions
        for queue in ("deep", "late"):
            assert take_all(channel, queue) == filled.bodies[queue]
        log = filled.bodies["log"]
        assert read_stream(channel, "log", len(log)) == log


def test_a_backup_over_https_is_whole(
    broker: BrokerProcess, filled: Filled, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    elsewhere.knows(port_of(broker, "https"))
    done = elsewhere.backup(tmp_path / "backup")
    assert done.returncode == 0, done.stderr
    files = [path for path in (tmp_path / "backup").rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert {path.parent.name for path in files} >= set(FOLDERS)
    assert b"%d files" % (len(files) - 1) in done.stdout
    assert "administrative change: POST /api/backups by user 'guest'" in broker.output
    ended = broker.expect_line("backup ends: ended by user 'guest' from 127.0.0.1")
    found = re.search(r"(\d+) bytes sent of (\d+)", ended)
    assert found is not None
    assert found[1] == found[2]
    holds_all(tmp_path / "backup", filled, tmp_path / "data")


def test_all_that_was_confirmed_before_is_in_a_backup_made_under_load(
    pki: Pki, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    with pki.broker_process(tmp_path / "data", **SMALL) as broker:
        elsewhere.knows(port_of(broker, "https"))
        load = Load(broker.uri, "q")
        with load.running():
            confirmed = list(load.confirmed)
            done = elsewhere.backup(tmp_path / "backup")
            assert done.returncode == 0, done.stderr
        assert len(load.confirmed) > len(confirmed)
        broker.kill()
    done = run_leveret("restore", tmp_path / "backup", "--data-dir", tmp_path / "again")
    assert done.returncode == 0, done.stderr
    with started(tmp_path / "again") as (_, channel):
        taken = take_all(channel, "q")
    assert taken[: len(confirmed)] == confirmed
    rest = taken[len(confirmed) :]
    assert rest == [body("q", len(confirmed) + n) for n in range(len(rest))]


def test_a_connection_that_breaks_is_made_again(
    broker: BrokerProcess, filled: Filled, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    with CutProxy(port_of(broker, "https")) as proxy:
        proxy.cut_at = [100_000, 300_000]
        elsewhere.knows(proxy.port)
        done = elsewhere.backup(tmp_path / "backup")
        assert done.returncode == 0, done.stderr
        assert proxy.cut_at == []
    holds_all(tmp_path / "backup", filled, tmp_path / "data")


def test_a_connection_that_stays_broken_leaves_no_backup(
    broker: BrokerProcess, elsewhere: Elsewhere, tmp_path: Path, ask: Asking
) -> None:
    with CutProxy(port_of(broker, "https")) as proxy:
        # Whatever is made again breaks again, before a byte of the file.
        proxy.cut_at = [*range(100_000, 101_000)]
        elsewhere.knows(proxy.port)
        done = elsewhere.backup(tmp_path / "backup")
    assert done.returncode == exits.UNAVAILABLE
    assert b"does not send" in done.stderr
    assert not (tmp_path / "backup" / "manifest.json").exists()
    done = run_leveret("restore", tmp_path / "backup", "--data-dir", tmp_path / "data")
    assert done.returncode == exits.UNUSABLE
    assert b"is not a complete backup" in done.stderr
    # The broker could not be told; it lets go after a while, or when an administrator says so.
    rows = json.loads(ask("GET", "/api/backups")[1])
    assert [0 < row["sent"] < row["bytes"] for row in rows] == [True]
    assert ask("DELETE", f"/api/backups/{rows[0]['id']}")[0] == 204
    broker.expect_line(f"{rows[0]['sent']} bytes sent of {rows[0]['bytes']}")


def test_the_broker_removes_files_again_when_the_client_ended(
    pki: Pki, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    with pki.broker_process(data, **SMALL) as broker, connect(broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("q", durable=True)

        def turn_over() -> set[str]:
            """Publish and consume so much that everything is written anew."""
            for first in range(0, 600, 100):
                publish(channel, "q", first, 100)
                take_all(channel, "q")
            found = [path for folder in FOLDERS for path in (data / folder).iterdir()]
            return {f"{path.parent.name}/{path.name}" for path in found}

        turn_over()
        with RemoteBackup(elsewhere.place(port_of(broker, "https"))) as remote:
            held = {path for path, _ in remote.files if path != "format"}
            assert held <= turn_over()
        for _ in range(30):
            if not held & turn_over():
                return
        raise AssertionError("they are still there")


def test_what_arrived_otherwise_than_it_was_sent_is_refused(
    broker: BrokerProcess, elsewhere: Elsewhere, tmp_path: Path
) -> None:
    with RemoteBackup(elsewhere.place(port_of(broker, "https"))) as remote:
        make_folders(tmp_path / "backup")
        copied = remote.copy(tmp_path / "backup", lambda _: None)
        remote.check(copied)
        first = copied[0]
        copied[0] = Copied(first.path, first.bytes, "0" * 32)
        with pytest.raises(exits.Failure, match="was damaged on the way from the broker"):
            remote.check(copied)


# -- who may ---------------------------------------------------------------------------------------


def test_who_is_no_administrator_is_refused(
    pki: Pki, broker: BrokerProcess, elsewhere: Elsewhere, tmp_path: Path, ask: Asking
) -> None:
    for tag in ("", "management", "policymaker", "monitoring", "impersonator"):
        data = broker.data_dir
        run_leveret("ctl", "--data-dir", data, "delete_user", "eve")
        done = run_leveret("ctl", "--data-dir", data, "add_user", "eve", stdin=b"eve\n")
        assert done.returncode == 0, done.stderr
        if tag:
            done = run_leveret("ctl", "--data-dir", data, "set_user_tags", "eve", tag)
            assert done.returncode == 0, done.stderr
        with closing(Asking(pki, broker, "eve")) as eve:
            assert eve("POST", "/api/backups")[0] == 401
    elsewhere.knows(port_of(broker, "https"), "--user", "eve")
    elsewhere.settings["LEVERET_API_PASSWORD"] = "eve"
    done = elsewhere.backup(tmp_path / "backup")
    assert done.returncode == exits.NO_PERMISSION
    assert b"Not management user" in done.stderr
    assert not (tmp_path / "backup").exists()
    status, listed = ask("GET", "/api/backups")
    assert (status, json.loads(listed)) == (200, [])


PROXIED = b"PROXY TCP4 203.0.113.7 127.0.0.1 40000 15672\r\n"


@pytest.mark.parametrize(
    ("setting", "scheme", "status"),
    [
        ("secure", "http", 403),
        ("secure", "https", 201),
        ("any", "http", 201),
        ("off", "https", 403),
    ],
)
def test_the_setting_decides_over_which_connections(
    pki: Pki, tmp_path: Path, setting: str, scheme: str, status: int
) -> None:
    settings = {"http_backup": setting, "http_proxy_protocol": "true", "loopback_users": "[]"}
    with pki.broker_process(tmp_path / "data", **settings) as broker:
        port = port_of(broker, scheme)
        connection = http.client.HTTPConnection("localhost", port, timeout=120)
        connection.connect()
        connection.sock.sendall(PROXIED)
        if scheme == "https":
            connection.sock = pki.trusting().wrap_socket(
                connection.sock, server_hostname="localhost"
            )
        connection.request("POST", "/api/backups", headers=basic("guest", "guest"))
        response = connection.getresponse()
        answer = json.loads(response.read())
        assert response.status == status, answer
        if status == 403:
            assert "http_backup" in answer["reason"]
        connection.close()


# -- the routes ------------------------------------------------------------------------------------


def test_there_are_so_many_at_once_and_no_more(ask: Asking) -> None:
    made = [json.loads(ask("POST", "/api/backups")[1])["id"] for _ in range(BACKUPS_MAX)]
    status, answer = ask("POST", "/api/backups")
    assert (status, b"which is the limit" in answer) == (503, True)
    rows = json.loads(ask("GET", "/api/backups")[1])
    assert sorted(row["id"] for row in rows) == sorted(made)
    assert {row["who"] for row in rows} == {"by user 'guest' from 127.0.0.1"}
    for name in made:
        assert ask("DELETE", f"/api/backups/{name}")[0] == 204
        assert ask("DELETE", f"/api/backups/{name}")[0] == 404
        assert ask("GET", f"/api/backups/{name}/files/format")[0] == 404
    assert json.loads(ask("GET", "/api/backups")[1]) == []


def test_a_file_is_one_of_the_list_and_may_begin_anywhere(
    broker: BrokerProcess, ask: Asking
) -> None:
    answer = json.loads(ask("POST", "/api/backups")[1])
    base = f"/api/backups/{answer['id']}"
    (broker.data_dir / "secret").write_text("none of the store's")
    for path in ("secret", "lock", "../data/secret", "/etc/passwd", "journal", "journal/../lock"):
        assert ask("GET", f"{base}/files/{quote(path, safe='')}")[0] == 404
    whole = (broker.data_dir / "format").read_bytes()
    assert ask("GET", f"{base}/files/format") == (200, whole)
    assert ask("GET", f"{base}/files/format?offset=4000") == (200, whole[4000:])
    assert ask("GET", f"{base}/files/format?offset=9999999") == (200, b"")
    assert ask("GET", f"{base}/files/format?offset=-1")[0] == 400
    shown = json.loads(ask("GET", base)[1])
    assert {each["path"] for each in shown["files"] if each["xxh3"]} == {"format"}
    assert ask("DELETE", base)[0] == 204


# -- brokers that are none -------------------------------------------------------------------------


@contextmanager
def answering(answer: object) -> Iterator[Remote]:
    """Give the address of a server that answers every request with a text."""
    raw = json.dumps(answer).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(201)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Remote("http", "127.0.0.1", server.server_port, "", "guest", "guest")
        server.shutdown()


TOLD: dict[str, Any] = {
    "id": "0" * 32,
    "product_version": "1",
    "uuid": "1",
    "time_ms": 1,
    "durable_group": 1,
    "files": [{"path": "format", "bytes": 1, "xxh3": ""}],
}


@pytest.mark.parametrize(
    "change",
    [
        {"files": [{"path": "../../outside", "bytes": 1, "xxh3": ""}]},
        {"files": [{"path": "/etc/passwd", "bytes": 1, "xxh3": ""}]},
        {"files": [{"path": "format", "bytes": -1, "xxh3": ""}]},
        {"files": TOLD["files"] * 2},
        {"id": "../../api/users/guest"},
        {"uuid": 5},
    ],
)
def test_what_tells_of_files_that_no_backup_has_is_not_asked_for_them(
    change: dict[str, Any],
) -> None:
    with answering(TOLD | change) as place, pytest.raises(exits.Failure) as failure:
        RemoteBackup(place)
    assert failure.value.code == exits.PROTOCOL


def test_links_are_for_this_machine(elsewhere: Elsewhere, tmp_path: Path) -> None:
    elsewhere.knows(1)
    done = elsewhere.run("backup", "--context", "there", "--to", tmp_path / "b", "--link")
    assert done.returncode == exits.USAGE
