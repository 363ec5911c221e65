"""`leveret store`: check tells what is wrong, salvage saves the rest, dump prints what there is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leveret.client.blocking import Channel, connect
from leveret.store.disk import DiskLocked, ReadDisk, RealDisk
from leveret.store.survey.survey import Survey
from leveret.wire.properties import BasicProperties
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import run_leveret
from support.store.data_dirs import (
    SMALL,
    Filled,
    body,
    bytes_of,
    copy_of,
    definitions_of,
    fill,
    flip,
    publish,
    read_stream,
    started,
    take_all,
)

pytestmark = pytest.mark.commands


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A directory that a broker filled before it was killed."""
    return fill(tmp_path_factory.mktemp("filled") / "data")


@pytest.fixture
def data(filled: Filled, tmp_path: Path) -> Path:
    """A copy of the filled directory, to be damaged."""
    return copy_of(filled, tmp_path / "data")


def check(data: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Check a directory; return the exit code and what was said."""
    before = bytes_of(data)
    done = run_leveret("store", "check", data, "--json", *options)
    assert "--running" in options or bytes_of(data) == before
    return done.returncode, json.loads(done.stdout)


def counts(found: dict[str, Any]) -> dict[str, int]:
    """The live messages of each queue that has a name."""
    return {row["name"]: row["messages"] for row in found["queues"]}


def salvage(data: Path, new: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Salvage a directory; return the exit code and what was said."""
    before = bytes_of(data)
    done = run_leveret("store", "salvage", data, "--to", new, "--json", *options)
    assert bytes_of(data) == before
    return done.returncode, json.loads(done.stdout)


def assert_whole(data: Path) -> None:
    """Assert that a check finds no fault."""
    code, found = check(data)
    assert (code, found["damages"], found["lost"]) == (0, [], 0)


def newest(folder: Path) -> Path:
    """The newest file of a folder."""
    return max(folder.iterdir())


def newest_segment(data: Path) -> Path:
    """The newest file of chunks that the journal names: a kill may leave one that it does not."""
    named = [str(row["file"]) for row in check(data)[1]["files"] if row["live"]]
    return data / max(path for path in named if path.startswith("segments/"))


# -- check -----------------------------------------------------------------------------------------


def test_a_whole_directory_is_told_as_it_is(filled: Filled, data: Path) -> None:
    code, found = check(data)
    assert (code, found["whole"], found["damages"], found["lost"]) == (0, True, [], 0)
    expected = {queue: len(bodies) for queue, bodies in filled.bodies.items()}
    assert {name: number for name, number in counts(found).items() if number} == expected
    assert found["messages"] == sum(expected.values())
    sizes = sum(len(each) for bodies in filled.bodies.values() for each in bodies)
    assert found["message_bytes"] > sizes
    assert len(found["uuid"]) == 32
    types = {row["name"]: row["type"] for row in found["queues"]}
    assert (types["deep"], types["log"]) == ("classic", "stream")
    assert any(row["dead"] for row in found["files"])
    live = sum(row["live"] for row in found["files"])
    assert live == found["messages"]


def test_a_clean_stop_is_told(data: Path) -> None:
    with BrokerProcess(data) as broker:
        assert broker.terminate() == 0
    code, found = check(data)
    assert (code, found["clean_stop"]) == (0, True)


def test_it_prints_for_people(data: Path) -> None:
    done = run_leveret("store", "check", data)
    assert done.returncode == 0
    lines = done.stdout.decode().splitlines()
    assert lines[-1] == "whole"
    assert any(line.split()[:2] == ["/", "deep"] for line in lines)
    flip(newest_segment(data), 3)
    done = run_leveret("store", "check", data)
    assert done.returncode == 1
    assert b"damaged: segments/" in done.stdout


def places_found(data: Path) -> tuple[list[str], list[str]]:
    """The damaged and the torn files, by a survey within this process."""
    survey = Survey(ReadDisk(str(data)))
    for _ in survey.run():
        pass
    return [found.path for found in survey.damages], [found.path for found in survey.torn]


def files_needed(data: Path) -> set[str]:
    """The files that the next start needs."""
    survey = Survey(ReadDisk(str(data)))
    for _ in survey.run():
        pass
    return {report.path for report in survey.files if report.needed}


@pytest.mark.parametrize("folder", ["state", "journal", "segments"])
def test_any_flipped_bit_is_found(data: Path, folder: str) -> None:
    needed = files_needed(data)
    for path in sorted((data / folder).iterdir()):
        size = path.stat().st_size
        if folder == "segments" and f"segments/{path.name}" not in needed:
            # The kill came before a snapshot or the journal named what it had written last.
            continue
        for position in (0, 60, size // 3, size // 2, size - 9):
            flip(path, position)
            damaged, torn = places_found(data)
            # The last group was never called durable: damage there looks like a crash.
            if folder == "journal" and path == newest(data / folder):
                damaged += torn
            assert f"{folder}/{path.name}" in damaged, (path, position)
            flip(path, position)
    assert_whole(data)


def test_a_missing_segment_is_told_with_its_messages(filled: Filled, data: Path) -> None:
    left = sum(len(bodies) for bodies in filled.bodies.values())
    for path in sorted((data / "segments").iterdir()):
        path.unlink()
        code, found = check(data)
        assert code == 1
        assert found["messages"] + found["lost"] == left
        if found["lost"] > 0:
            # What was in the files before that one is in the journal as well.
            break
    assert found["lost"] > 0
    assert all("the file is missing" in damage["what"] for damage in found["damages"])


def test_a_missing_journal_is_told(data: Path) -> None:
    for path in sorted((data / "journal").iterdir()):
        path.unlink()
    code, found = check(data)
    assert (code, found["damages"][0]["file"]) == (1, "journal")


def test_a_running_broker_is_not_disturbed(filled: Filled, data: Path) -> None:
    with BrokerProcess(data):
        done = run_leveret("store", "check", data)
        assert done.returncode == 2
        assert b"is in use by process" in done.stderr
        done = run_leveret("store", "check", data, "--running", "--json")
        assert done.returncode == 0
        assert counts(json.loads(done.stdout))["deep"] == len(filled.bodies["deep"])


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "not-there"):
        for command in ("check", "dump", "salvage"):
            options = ["--to", "x"] if command == "salvage" else []
            assert run_leveret("store", command, place, *options).returncode == 2
    (tmp_path / "format").write_bytes(b"x" * 4160)
    assert run_leveret("store", "check", tmp_path).returncode in (1, 2)
    assert list(tmp_path.iterdir()) == [tmp_path / "format"]


def test_a_broker_is_kept_away_meanwhile(data: Path) -> None:
    looking, also = ReadDisk(str(data)), ReadDisk(str(data))
    looking.lock("lock")
    also.lock("lock")
    with pytest.raises(DiskLocked):
        RealDisk(str(data)).lock("lock")
    looking.close()
    also.close()
    RealDisk(str(data)).lock("lock")


# -- salvage ---------------------------------------------------------------------------------------


def assert_all_there(filled: Filled, new: Path) -> None:
    """Start a broker and assert that everything of the filled directory is there."""
    with started(new) as (_, channel):
        assert definitions_of(new) == filled.definitions
        for queue in ("deep", "late"):
            first = channel.get(queue)
            assert first is not None
            assert first.redelivered
            first.reject(requeue=True)
            assert take_all(channel, queue) == filled.bodies[queue]
        log = filled.bodies["log"]
        assert read_stream(channel, "log", len(log)) == log


def test_a_salvaged_directory_holds_all_and_starts(
    filled: Filled, data: Path, tmp_path: Path
) -> None:
    code, found = salvage(data, tmp_path / "new")
    assert (code, found["orphans"]) == (0, [])
    assert found["saved"] == sum(len(bodies) for bodies in filled.bodies.values())
    assert_whole(tmp_path / "new")
    assert_all_there(filled, tmp_path / "new")


@pytest.mark.parametrize("missing", ["format", "state", "both"])
def test_nothing_is_lost_with_the_format_or_the_newest_snapshot(
    filled: Filled, data: Path, tmp_path: Path, missing: str
) -> None:
    if missing in ("format", "both"):
        (data / "format").unlink()
    if missing in ("state", "both"):
        newest(data / "state").unlink()
    code, _ = salvage(data, tmp_path / "new")
    assert code == 0
    assert_whole(tmp_path / "new")
    assert_all_there(filled, tmp_path / "new")


@pytest.mark.parametrize("places", [(20, 4096 + 40), (20, 4096 + 20), (17, 4096 + 17)])
def test_both_copies_of_the_format_may_be_damaged(
    filled: Filled, data: Path, tmp_path: Path, places: tuple[int, int]
) -> None:
    for place in places:
        flip(data / "format", place)
    code, found = salvage(data, tmp_path / "new")
    assert (code, [each["position"] for each in found["damages"]]) == (0, [0, 4096])
    assert_all_there(filled, tmp_path / "new")


def test_the_journal_alone_tells_the_seed(data: Path) -> None:
    uuid = check(data)[1]["uuid"]
    (data / "format").unlink()
    for path in (data / "state").iterdir():
        path.unlink()
    code, found = check(data)
    assert (code, found["uuid"]) == (1, uuid)
    assert found["seed_from"].startswith("journal/")
    min((data / "journal").iterdir()).unlink()
    assert check(data)[1]["uuid"] == uuid


def test_the_format_of_another_store_is_seen_through(
    filled: Filled, data: Path, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "other"):
        pass
    (data / "format").write_bytes((tmp_path / "other" / "format").read_bytes())
    code, found = salvage(data, tmp_path / "new")
    assert (code, found["damages"][0]["what"]) == (
        0,
        "copy 1 of 2 is of another store; nothing is lost",
    )
    assert_all_there(filled, tmp_path / "new")


def test_without_any_snapshot_everything_live_is_saved_and_orphans_are_named(
    filled: Filled, data: Path, tmp_path: Path
) -> None:
    for path in (data / "state").iterdir():
        path.unlink()
    code, found = salvage(data, tmp_path / "new")
    assert code == 1
    new = tmp_path / "new"
    assert_whole(new)
    with started(new) as (_, channel):
        saved: list[bytes] = []
        for row in check(new, "--running")[1]["queues"]:
            saved += take_all(channel, row["name"])
    expected = [each for bodies in filled.bodies.values() for each in bodies]
    assert set(expected) <= set(saved)
    assert any(name.startswith("leveret.recovered.") for name in found["orphans"])


def test_of_a_damaged_chunk_only_what_was_hit_is_lost(
    filled: Filled, data: Path, tmp_path: Path
) -> None:
    paths = sorted((data / "segments").iterdir())
    hit = next(path for path in paths if b"<deep.160>" in path.read_bytes())
    flip(hit, hit.read_bytes().index(b"<deep.160>") + 3)
    next(path for path in paths if path != hit and b"<log.200>" in path.read_bytes()).unlink()
    code, found = salvage(data, tmp_path / "new")
    assert code == 1
    assert found["saved"] + found["lost"] == sum(map(len, filled.bodies.values()))
    assert_whole(tmp_path / "new")
    with started(tmp_path / "new") as (_, channel):
        taken = take_all(channel, "deep")
        order = [each for each in filled.bodies["deep"] if each in set(taken)]
        assert taken == order
        log = filled.bodies["log"]
        left = found["queues"][[q["name"] for q in found["queues"]].index("log")]["messages"]
        read = read_stream(channel, "log", left)
        assert read == [each for each in log if each in set(read)]
        assert len(read) == left


def test_a_chunk_since_the_last_snapshot_but_one_is_filled_from_the_journal(
    filled: Filled, data: Path, tmp_path: Path
) -> None:
    flip(newest_segment(data), 3)
    code, found = salvage(data, tmp_path / "new")
    assert (code, found["lost"]) == (0, 0)
    assert "nothing is lost" in found["damages"][0]["what"]
    assert_all_there(filled, tmp_path / "new")


def test_a_torn_end_is_passed_by(filled: Filled, data: Path, tmp_path: Path) -> None:
    last = newest(data / "journal")
    with last.open("ab") as file:
        file.write(b"LVgroup2" + bytes(100))
    code, found = check(data)
    assert (code, len(found["torn"])) == (0, 1)
    assert salvage(data, tmp_path / "new")[0] == 0
    assert_all_there(filled, tmp_path / "new")


def test_a_directory_with_something_in_it_is_not_written_to(data: Path) -> None:
    assert run_leveret("store", "salvage", data, "--to", data).returncode == 64


# -- dump ------------------------------------------------------------------------------------------


def dump(data: Path, *options: str) -> list[dict[str, Any]]:
    """Dump a directory."""
    done = run_leveret("store", "dump", data, *options)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def test_a_dump_holds_every_record(data: Path) -> None:
    records = dump(data, "--bodies")
    kinds = {record["kind"] for record in records}
    assert {"snapshot", "counter", "define", "queue", "chunk", "end"} <= kinds
    assert {"publish", "ack", "message", "checkpoint", "delete"} <= kinds
    assert all(record["file"] and record["position"] >= 0 for record in records)
    lsns = [record["lsn"] for record in records if "lsn" in record]
    assert lsns == sorted(lsns)
    assert len({tuple(lsn) for lsn in lsns}) == len(lsns)
    times = [record["written_ms"] for record in records if "lsn" in record]
    assert times == sorted(times)
    assert times[0] > 0
    assert len(records) == len(dump(data))


def test_a_dump_is_filtered(filled: Filled, data: Path) -> None:
    published = dump(data, "--journal", "--kind", "publish", "--queue", "late", "--bodies")
    assert [record["body"].encode() for record in published] == filled.bodies["late"]
    assert published[0]["properties"] == {"headers": {"n": 1}, "delivery_mode": 2}
    assert dump(data, "--journal", "--kind", "publish", "--queue", "late")[0]["body_bytes"] > 0
    rows = dump(data, "--segments", "--queue", "deep", "--kind", "message", "--bodies")
    bodies = {record["body"].encode() for record in rows}
    assert bodies & set(filled.bodies["deep"])
    assert {record["queue"] for record in rows} == {rows[0]["queue"]}
    assert run_leveret("store", "dump", data, "--queue", "nobody").returncode == 65


def test_damage_is_dumped_as_such(data: Path) -> None:
    flip(data / "segments" / "0000000000000001.seg", 3)
    assert dump(data, "--segments")[0]["kind"] == "damage"


# -- queues of all kinds ---------------------------------------------------------------------------

KINDS: dict[str, dict[str, object]] = {
    "plain": {},
    "levels": {"x-max-priority": 5},
    "counted": {"x-queue-type": "quorum", "x-delivery-limit": 20},
    "kept": {"x-retain-acked": "1D"},
    "keyed": {"x-deduplication-header": "key"},
}


def publish_round(channel: Channel, first: int) -> None:
    """Publish to queues of all kinds, and to what makes checkpoints come."""
    for number in range(first, first + 6):
        for queue in KINDS:
            properties = BasicProperties(
                delivery_mode=2,
                priority=number % 4,
                expiration="7200000" if number % 2 else None,
                headers={"key": f"k{number}"},
            )
            channel.publish_nowait(body(queue, number), "", queue, properties)
        delayed = BasicProperties(delivery_mode=2, headers={"x-delay": 3_600_000 + number})
        channel.publish_nowait(body("delayed", number), "later", "plain", delayed)
    channel.wait_for_confirms()
    publish(channel, "filler", first, 200)
    take_all(channel, "filler")
    publish(channel, "filler", first, 200)


def fill_all_kinds(data: Path) -> None:
    """Let a broker fill queues of all kinds and kill it."""
    with BrokerProcess(data, settings=SMALL) as broker, connect(broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("filler", durable=True)
        for queue, arguments in KINDS.items():
            channel.queue_declare(queue, durable=True, arguments=arguments)
        delays = {"x-delayed-type": "direct"}
        channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=delays)
        channel.queue_bind("plain", "later", "plain")
        for first in (0, 100, 200):
            publish_round(channel, first)
            for queue in KINDS:
                taken = [channel.get(queue) for _ in range(3)]
                for message in taken[1:]:
                    assert message is not None
                    message.reject(requeue=True)
                assert taken[0] is not None
                taken[0].ack()
        publish(channel, "filler", 0, 1)
        broker.kill()


def drained(data: Path) -> dict[str, object]:
    """Return all that a broker on a directory gives."""
    found: dict[str, object] = {}
    with started(data) as (_, channel):
        listed = run_leveret("ctl", "--data-dir", data, "list_delayed", "later", "--format", "json")
        found["delayed"] = json.loads(listed.stdout)
        channel.confirm_select()
        # A checkpoint has the key: a salvage does not look for keys in the journal.
        again = BasicProperties(delivery_mode=2, headers={"key": "k0"})
        channel.publish(b"again", "", "keyed", again)
        for queue in ("filler", *KINDS):
            given: list[object] = []
            while (message := channel.get(queue)) is not None:
                fields = BasicProperties.FIELDS
                properties = [getattr(message.properties, name) for name in fields]
                given.append((message.body, properties, message.redelivered))
                message.ack()
            found[queue] = given
        rewound = run_leveret(
            "ctl", "--data-dir", data, "rewind_queue", "kept", "2020-01-01T00:00:00Z"
        )
        assert rewound.returncode == 0
        found["rewound"] = rewound.stdout
        found["definitions"] = definitions_of(data)
    return found


def test_a_salvage_gives_what_the_directory_itself_would_give(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill_all_kinds(data)
    assert_whole(data)
    code, found = salvage(data, tmp_path / "new")
    assert (code, found["orphans"]) == (0, [])
    assert_whole(tmp_path / "new")
    itself, salvaged = drained(data), drained(tmp_path / "new")
    for what, expected in itself.items():
        assert salvaged[what] == expected, what
    assert len(str(itself["delayed"])) > 1000
    assert itself["rewound"] != b"0 messages put back\n"


def test_priorities_of_messages_that_only_the_journal_has_are_saved(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with BrokerProcess(data) as broker, connect(broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("levels", durable=True, arguments={"x-max-priority": 5})
        for number in range(8):
            properties = BasicProperties(delivery_mode=2, priority=number)
            channel.publish(b"%d" % number, "", "levels", properties)
        broker.kill()
    assert not list((data / "segments").iterdir())
    salvage(data, tmp_path / "new")
    with started(tmp_path / "new") as (_, channel):
        given = take_all(channel, "levels")
    assert given == [b"5", b"6", b"7", b"4", b"3", b"2", b"1", b"0"]


# -- deep queues -----------------------------------------------------------------------------------

DEEP = {"queue_window_bytes": "262144", "ballast_bytes": "0"}


@pytest.fixture(scope="module")
def spilled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    """A directory whose journal says of most messages that they lie in chunks."""
    data = tmp_path_factory.mktemp("spilled") / "data"
    with BrokerProcess(data, settings=DEEP) as broker, connect(broker.uri) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("deep", durable=True)
        bodies = [b"<%d>" % number + bytes(66_000) for number in range(100)]
        for number, each in enumerate(bodies):
            # What is transient goes to files that no start reads.
            for mode in (1, 2):
                properties = BasicProperties(delivery_mode=mode)
                channel.publish_nowait(each, "", "deep", properties)
            if number % 20 == 19:
                channel.wait_for_confirms()
        for _ in range(80):
            taken = channel.get("deep")
            assert taken is not None
            taken.ack()
        channel.wait_for_confirms()
        channel.publish(b"last", "", "deep", BasicProperties(delivery_mode=2))
        broker.kill()
    return Filled(data, {"deep": [*bodies[40:], b"last"]}, None)


def test_spilled_messages_are_told_and_saved(spilled: Filled, tmp_path: Path) -> None:
    data = copy_of(spilled, tmp_path / "data")
    assert dump(data, "--journal", "--kind", "spill")
    code, found = check(data)
    assert (code, counts(found)) == (0, {"deep": len(spilled.bodies["deep"])})
    assert salvage(data, tmp_path / "new")[0] == 0
    assert_whole(tmp_path / "new")
    with started(tmp_path / "new") as (_, channel):
        assert take_all(channel, "deep") == spilled.bodies["deep"]


@pytest.mark.parametrize("harm", ["flip", "remove"])
def test_what_was_spilled_since_the_snapshot_is_still_in_the_journal(
    spilled: Filled, tmp_path: Path, harm: str
) -> None:
    data = copy_of(spilled, tmp_path / "data")
    for path in sorted((data / "segments").glob("*.seg")):
        if harm == "flip":
            flip(path, 3)
            flip(path, path.stat().st_size // 2)
        else:
            path.unlink()
    code, found = check(data)
    assert (code, found["lost"]) == (1, 0)
    assert counts(found) == {"deep": len(spilled.bodies["deep"])}
    assert salvage(data, tmp_path / "new")[0] == 0
    with started(tmp_path / "new") as (_, channel):
        assert take_all(channel, "deep") == spilled.bodies["deep"]
