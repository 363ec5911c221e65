"""`leveret backup` and `restore`: a copy made under load holds all that was confirmed before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leveret.cli.backup.hold import BackupHold
from leveret.client.blocking import connect
from leveret.store.listing import FOLDERS
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import run_leveret
from support.store.backup_load import Load
from support.store.data_dirs import (
    SMALL,
    Filled,
    body,
    copy_of,
    definitions_of,
    fill,
    flip,
    publish,
    read_stream,
    started,
    take_all,
)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A directory that a broker filled before it was killed."""
    return fill(tmp_path_factory.mktemp("filled") / "data")


@pytest.fixture(scope="module")
def whole_backup(filled: Filled, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A backup of the filled directory, made while a broker ran on it."""
    place = tmp_path_factory.mktemp("backup")
    data = copy_of(filled, place / "data")
    with BrokerProcess(data):
        done = run_leveret("backup", "--data-dir", data, "--to", place / "backup")
    assert done.returncode == 0, done.stderr
    return place / "backup"


def test_all_that_was_confirmed_before_is_in_a_backup_made_under_load(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, settings=SMALL) as broker:
        loads = [Load(broker.uri, f"q{number}") for number in range(2)]
        before: list[list[list[bytes]]] = []
        with loads[0].running(), loads[1].running():
            for number in range(2):
                before.append([list(load.confirmed) for load in loads])
                options = ["--link"] if number == 1 else []
                to = tmp_path / f"backup{number}"
                done = run_leveret("backup", "--data-dir", data, "--to", to, *options)
                assert done.returncode == 0, done.stderr
        # Checkpoints ran, so there was something to hold: one for each 64 KiB of the journal.
        assert broker.output.count("checkpoint") >= 2
        for load, confirmed in zip(loads, before[-1], strict=True):
            assert len(load.confirmed) > len(confirmed)
        broker.kill()
    for number in range(2):
        again = tmp_path / f"again{number}"
        done = run_leveret("restore", tmp_path / f"backup{number}", "--data-dir", again)
        assert done.returncode == 0, done.stderr
        assert run_leveret("store", "check", again).returncode == 0
        with started(again) as (_, channel):
            first = channel.get("q0")
            assert first is not None
            assert first.redelivered
            first.reject(requeue=True)
            for load, confirmed in zip(loads, before[number], strict=True):
                taken = take_all(channel, load.queue)
                assert taken[: len(confirmed)] == confirmed
                rest = taken[len(confirmed) :]
                assert rest == [body(load.queue, len(confirmed) + n) for n in range(len(rest))]


def test_a_restored_broker_has_everything(
    filled: Filled, whole_backup: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    assert run_leveret("restore", whole_backup, "--data-dir", data).returncode == 0
    assert {path.stat().st_mode & 0o777 for path in data.rglob("*") if path.is_file()} == {0o600}
    assert data.stat().st_mode & 0o777 == 0o700
    with started(data) as (_, channel):
        assert definitions_of(data) == filled.definitions
        for queue in ("deep", "late"):
            assert take_all(channel, queue) == filled.bodies[queue]
        log = filled.bodies["log"]
        assert read_stream(channel, "log", len(log)) == log


def test_a_stopped_broker_is_backed_up_too(filled: Filled, tmp_path: Path) -> None:
    data = copy_of(filled, tmp_path / "data")
    done = run_leveret("backup", "--data-dir", data, "--to", tmp_path / "backup")
    assert done.returncode == 0, done.stderr
    assert run_leveret("restore", tmp_path / "backup", "--data-dir", tmp_path / "b").returncode == 0
    with started(tmp_path / "b") as (_, channel):
        assert take_all(channel, "deep") == filled.bodies["deep"]


def test_a_broker_that_does_not_answer_is_not_copied(filled: Filled, tmp_path: Path) -> None:
    data = copy_of(filled, tmp_path / "data")
    elsewhere = {"management_socket": str(tmp_path / "sock")}
    with BrokerProcess(data, settings=elsewhere):
        done = run_leveret("backup", "--data-dir", data, "--to", tmp_path / "backup")
    assert done.returncode == 2
    assert b"no broker listens" in done.stderr


def test_nothing_is_written_over(filled: Filled, whole_backup: Path) -> None:
    data = filled.path
    assert run_leveret("backup", "--data-dir", data, "--to", whole_backup).returncode == 64
    assert run_leveret("restore", whole_backup, "--data-dir", data).returncode == 64


@pytest.mark.parametrize("place", ["format", *FOLDERS])
def test_a_damaged_backup_is_refused_unless_forced(
    filled: Filled, whole_backup: Path, tmp_path: Path, place: str
) -> None:
    backup = copy_of(Filled(whole_backup, {}, None), tmp_path / "backup")
    target = backup / place
    hit = target if target.is_file() else max(target.iterdir())
    flip(hit, hit.stat().st_size // 2)
    name = str(hit.relative_to(backup))
    done = run_leveret("restore", backup, "--data-dir", tmp_path / "data")
    assert done.returncode == 2
    assert f"{name} does not match its checksum" in done.stderr.decode()
    assert list((tmp_path / "data").iterdir()) == []
    done = run_leveret("restore", backup, "--data-dir", tmp_path / "data", "--force")
    assert (done.returncode, f"damaged: {name}" in done.stdout.decode()) == (1, True)
    with started(tmp_path / "data") as (_, channel):
        taken = take_all(channel, "deep")
        assert taken == [each for each in filled.bodies["deep"] if each in set(taken)]


def test_a_missing_file_or_manifest_is_told(whole_backup: Path, tmp_path: Path) -> None:
    backup = copy_of(Filled(whole_backup, {}, None), tmp_path / "backup")
    min((backup / "segments").iterdir()).unlink()
    done = run_leveret("restore", backup, "--data-dir", tmp_path / "data")
    assert (done.returncode, b"is missing" in done.stderr) == (2, True)
    manifest = json.loads((backup / "manifest.json").read_text())
    manifest["files"].pop()
    (backup / "manifest.json").write_text(json.dumps(manifest))
    done = run_leveret("restore", backup, "--data-dir", tmp_path / "data")
    assert (done.returncode, b"is damaged" in done.stderr) == (2, True)
    (backup / "manifest.json").unlink()
    assert run_leveret("restore", backup, "--data-dir", tmp_path / "data").returncode == 2
    done = run_leveret("restore", backup, "--data-dir", tmp_path / "data", "--force")
    assert done.returncode == 1


# -- the hold --------------------------------------------------------------------------------------


def files_of(data: Path) -> set[str]:
    """The names of all files of the store, but for what has no name yet or goes by itself."""
    found = [path for folder in FOLDERS for path in (data / folder).iterdir()]
    return {
        f"{path.parent.name}/{path.name}" for path in found if path.suffix not in (".new", ".tmp")
    }


def test_no_file_is_removed_while_it_is_held(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data, settings=SMALL) as broker, connect(broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("q", durable=True)

        def turn_over() -> set[str]:
            """Publish and consume so much that everything is written anew."""
            for first in range(0, 600, 100):
                publish(channel, "q", first, 100)
                take_all(channel, "q")
            return files_of(data)

        def until_gone(held: set[str]) -> None:
            """Turn over until none of some files is left: checkpoints end when they end."""
            for _ in range(30):
                if not held & turn_over():
                    return
            raise AssertionError(f"still there: {held & files_of(data)}")

        turn_over()
        with BackupHold(data / "management.sock") as hold:
            held = files_of(data)
            assert held <= turn_over()
            hold.beat()
            assert held <= turn_over()
            hold.end()
        until_gone(held)

        # It ends with the client that does not end it.
        with BackupHold(data / "management.sock"):
            held = files_of(data)
            assert held <= turn_over()
        until_gone(held)
