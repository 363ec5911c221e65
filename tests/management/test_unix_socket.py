"""The socket of the HTTP API: its owner's alone, and nobody else's file is lost for it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from leveret.management.listening.unix_socket import PATH_BYTES_MAX, connect, listen


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
    with listen(path) as server, connect(path, 1.0) as client:
        accepted, _ = server.accept()
        with accepted:
            client.sendall(b"x")
            accepted.settimeout(1.0)
            assert accepted.recv(1) == b"x"


@pytest.mark.parametrize("size", [PATH_BYTES_MAX, PATH_BYTES_MAX + 1])
def test_a_path_holds_at_the_kernels_limit_and_one_past(tmp_path: Path, size: int) -> None:
    path = tmp_path / ("s" * (size - len(os.fsencode(tmp_path)) - 1))
    assert len(os.fsencode(path)) == size
    with listen(path), connect(path, 1.0):
        assert path.is_socket()


def test_a_dead_brokers_socket_is_replaced(path: Path) -> None:
    listen(path).close()
    assert path.is_socket()
    with listen(path), connect(path, 1.0):
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
