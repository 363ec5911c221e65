"""What a broker warns of at its start: ports that others can reach, directories they can change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leveret.app.directories import other_writers
from support.brokers.broker_process import BrokerProcess

PLAIN = "a port without TLS can be reached from other machines"
GUEST = "the user guest has its default password"
METRICS = "metrics need no password"
WRITERS = "other users can write to a directory of the broker"

#: All addresses of this machine; nobody but the test knows the port.
EVERYWHERE = "0.0.0.0"  # noqa: S104


def warned(process: BrokerProcess) -> list[str]:
    """Return the warnings of exposure in what a started broker printed."""
    said = [line for line in process.output.splitlines() if "warning" in line.lower()]
    return [text for line in said for text in (PLAIN, GUEST, METRICS, WRITERS) if text in line]


@pytest.mark.parametrize(
    ("host", "settings", "warnings"),
    [
        ("127.0.0.1", {}, []),
        ("localhost", {}, []),
        (EVERYWHERE, {}, [PLAIN, GUEST]),
        ("127.0.0.1", {"http_host": EVERYWHERE}, [PLAIN, GUEST]),
        ("127.0.0.1", {"http_host": EVERYWHERE, "http": "false"}, []),
        ("127.0.0.1", {"metrics_host": EVERYWHERE}, [METRICS]),
        (EVERYWHERE, {"default_pass": "of-its-own"}, [PLAIN]),
    ],
)
def test_exposure_is_warned_of(
    tmp_path: Path, host: str, settings: dict[str, str], warnings: list[str]
) -> None:
    with BrokerProcess(tmp_path / "data", host=host, settings=settings) as process:
        assert sorted(set(warned(process))) == sorted(warnings)


def test_it_is_warned_of_at_each_start_until_the_password_is_another(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", host=EVERYWHERE) as process:
        assert GUEST in warned(process)
        process.kill()
        process.start()
        assert GUEST in warned(process)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (0o700, ""),
        (0o755, ""),
        (0o775, ""),
        (0o1777, ""),
        (0o702, "everybody"),
        (0o777, "everybody"),
    ],
)
def test_who_may_replace_files_of_a_directory_is_known(
    tmp_path: Path, mode: int, said: str
) -> None:
    tmp_path.chmod(mode)
    assert other_writers(tmp_path) == said
    assert other_writers(tmp_path / "nothing") == ""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives directories away")
def test_a_directory_of_another_user_or_group_is_told(tmp_path: Path) -> None:
    os.chown(tmp_path, 4711, 4712)
    tmp_path.chmod(0o770)
    assert other_writers(tmp_path) == "its owner (uid 4711), its group (gid 4712)"
    os.chown(tmp_path, 0, -1)
    tmp_path.chmod(0o750)
    assert other_writers(tmp_path) == ""


def test_directories_that_others_may_write_to_are_warned_of(tmp_path: Path) -> None:
    data, run = tmp_path / "data", tmp_path / "run"
    for directory in (data, run):
        directory.mkdir()
        directory.chmod(0o777)
    settings = {"management_socket": str(run / "management.sock")}
    with BrokerProcess(data, settings=settings) as process:
        assert warned(process) == [WRITERS, WRITERS]
        assert str(data) in process.expect_line(WRITERS)
