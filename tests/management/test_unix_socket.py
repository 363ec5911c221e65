"""The socket of the HTTP API: its owner's alone, and nobody else's file is lost for it."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from leveret.cli import exits
from leveret.management.unix_socket import (
    PATH_BYTES_MAX,
    ForeignSocket,
    check_listener,
    connect,
    listen,
)
from support.commands.command_process import run_leveret

#: A user that nobody is.
STRANGER = 4711


@pytest.fixture(params=["short", "long"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A path that fits the kernel's address, and one that does not."""
    if request.param == "short":
        return tmp_path / "s"
    directory = tmp_path / ("d" * PATH_BYTES_MAX)
    directory.mkdir()
    return directory / "s"


def test_only_the_owner_may_connect_from_the_start(path: Path) -> None:
    before = os.umask(0)
    try:
        with listen(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(before)


def test_what_connects_is_accepted(path: Path) -> None:
    with listen(path) as server, connect(path, 60.0) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"x")
            accepted.settimeout(60.0)
            assert accepted.recv(1) == b"x"


@pytest.mark.parametrize("size", [PATH_BYTES_MAX, PATH_BYTES_MAX + 1])
def test_a_path_holds_at_the_kernels_limit_and_one_past(tmp_path: Path, size: int) -> None:
    path = tmp_path / ("s" * (size - len(os.fsencode(tmp_path)) - 1))
    assert len(os.fsencode(path)) == size
    with listen(path), connect(path, 60.0):
        assert path.is_socket()


def test_a_dead_brokers_socket_is_replaced(path: Path) -> None:
    listen(path).close()
    assert path.is_socket()
    with listen(path), connect(path, 60.0):
        assert path.is_socket()


def test_a_living_brokers_socket_is_not(path: Path) -> None:
    with listen(path), pytest.raises(OSError, match="another broker"):
        listen(path)


def test_a_file_that_is_no_socket_stays(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("mine")
    with pytest.raises(FileExistsError):
        listen(path)
    assert path.read_text() == "mine"


def test_nobody_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        connect(tmp_path / "gone", 1.0)


def test_it_does_not_block(path: Path) -> None:
    with listen(path) as server, pytest.raises(BlockingIOError):
        server.accept()


@pytest.mark.parametrize(
    ("user", "me", "mode"),
    [(1000, 1000, 0o777), (0, 1000, 0o777), (0, 0, 0o777), (STRANGER, 0, 0o755), (None, 0, 0o777)],
)
def test_a_broker_is_root_s_one_s_own_or_the_directory_s(
    tmp_path: Path, user: int | None, me: int, mode: int
) -> None:
    """For root also any where nobody but the owner of the directory can have put the socket."""
    tmp_path.chmod(mode)
    owner = tmp_path.stat().st_uid if user is None else user
    check_listener(tmp_path / "s", owner, me)


@pytest.mark.parametrize(
    ("user", "me", "mode"),
    [
        (STRANGER, 1000, 0o700),
        (STRANGER, 0, 0o777),
        (STRANGER, 0, 0o1777),
        (STRANGER, 0, 0o770),
    ],
)
def test_nobody_else_is_a_broker(tmp_path: Path, user: int, me: int, mode: int) -> None:
    tmp_path.chmod(mode)
    with pytest.raises(ForeignSocket, match=rf"listens on this socket \(uid {user}\)"):
        check_listener(tmp_path / "s", user, me)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root listens as somebody else")
@pytest.mark.parametrize(
    "command", [["ctl", "add_user", "ann", "secret"], ["backup", "--to", "to"]]
)
def test_a_command_sends_nothing_to_another_users_socket(
    tmp_path: Path, command: list[str]
) -> None:
    """Who may write to the directory has put a socket there in the place of the broker's."""
    tmp_path.chmod(0o777)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
        stranger.bind(str(tmp_path / "management.sock"))
        os.seteuid(STRANGER)
        try:
            # The kernel shows to clients who listened.
            stranger.listen()
        finally:
            os.seteuid(0)
        done = run_leveret(*command, settings={"LEVERET_DATA_DIR": str(tmp_path)})
        assert done.returncode == exits.NO_PERMISSION
        assert f"listens on this socket (uid {STRANGER})".encode() in done.stderr
        connection, _ = stranger.accept()
        with connection:
            assert connection.recv(1) == b""
