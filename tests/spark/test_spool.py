"""The spool by itself: numbers, files, cuts, takes, commits, and what a new writer finds."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from leveret.spark.queue.spool import (
    IDENTITY,
    POSITION,
    Segment,
    Spool,
    SpoolError,
    check_sight,
    parse_name,
    read_segment,
)


def opened(place: Path) -> Spool:
    return Spool(str(place), "orders", "/", lock_seconds=0.0)


def batch(start: int, end: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": list(range(start, end))})


def append(spool: Spool, count: int, *, lent: bool = True) -> None:
    spool.append(batch(spool.end, spool.end + count), count * 10, lent=lent)


def numbers(spool: Spool) -> list[int]:
    return [
        n
        for segment in spool.segments
        for n in read_segment(spool.directory, segment).column("n").to_pylist()
    ]


def spans(spool: Spool) -> list[tuple[int, int, bool]]:
    return [(s.start, s.end, s.lent) for s in spool.segments]


def files(place: Path) -> set[str]:
    return {path.name for path in place.iterdir()}


def test_what_was_appended_is_there_for_the_next_writer(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    assert (spool.next, spool.end) == (0, 0)
    append(spool, 3)
    append(spool, 4, lent=False)
    spool.close()
    again = opened(tmp_path)
    assert again.id == spool.id
    assert spans(again) == [(0, 3, True), (3, 7, False)]
    assert numbers(again) == list(range(7))
    assert (again.next, again.end) == (0, 7)
    again.close()


def test_a_name_says_what_a_segment_is() -> None:
    segment = Segment(3, 2**63 - 1, 10**12, "0123456789abcdef", lent=True)
    assert parse_name(segment.name) == segment
    assert parse_name(segment.name + ".tmp") is None
    assert parse_name(IDENTITY) is None


@pytest.mark.parametrize(
    ("number", "left"),
    [
        (0, []),
        (2, [(0, 2, True)]),
        (3, [(0, 3, True)]),
        (5, [(0, 3, True), (3, 5, True)]),
        (7, [(0, 3, True), (3, 7, True)]),
        (9, [(0, 3, True), (3, 7, True)]),
    ],
)
def test_a_cut_drops_what_is_lent(
    tmp_path: Path, number: int, left: list[tuple[int, int, bool]]
) -> None:
    spool = opened(tmp_path)
    append(spool, 3)
    append(spool, 4)
    assert spool.cut(number) == 7 - min(7, number)
    assert spans(spool) == left
    assert numbers(spool) == list(range(min(7, number)))
    append(spool, 2)
    spool.close()
    again = opened(tmp_path)
    assert numbers(again) == list(range(min(7, number) + 2))
    again.close()


def test_a_cut_keeps_what_was_taken_and_what_is_committed(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    append(spool, 3)
    append(spool, 3, lent=False)
    append(spool, 3)
    assert spool.cut(0) == 3
    assert spans(spool) == [(0, 3, True), (3, 6, False)]
    append(spool, 3)
    spool.commit(8)
    assert spool.cut(0) == 1
    assert spool.end == 8
    spool.close()


def test_what_is_taken_stays(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    append(spool, 3)
    append(spool, 3)
    spool.take()
    spool.take()
    assert spool.cut(0) == 0
    spool.close()
    again = opened(tmp_path)
    assert spans(again) == [(0, 3, False), (3, 6, False)]
    again.close()


def test_a_batch_goes_when_the_next_is_committed(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for _ in range(4):
        append(spool, 5)
    spool.commit(10)
    assert spool.end - spool.segments[0].start == 20
    spool.commit(12)
    spool.commit(12)
    assert spans(spool) == [(10, 15, True), (15, 20, True)]
    assert spool.next == 12
    spool.close()
    again = opened(tmp_path)
    assert (again.committed, again.next, again.end) == (12, 12, 20)
    again.commit(20)
    again.commit(21)  # a number that its query knows, and it does not
    assert (again.end, again.segments) == (21, ())
    again.close()


def test_limits_of_a_batch(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    for count in (5, 5, 10):  # of ten bytes each
        append(spool, count)
    assert spool.limit(0, None, None) == 20
    assert spool.limit(3, 4, None) == 7
    assert spool.limit(3, 400, None) == 20
    assert [spool.limit(0, None, size) for size in (1, 50, 99, 100, 199, 200)] == [
        5, 5, 5, 10, 10, 20,
    ]  # fmt: skip
    assert spool.limit(5, None, 1) == 10
    assert spool.limit(20, None, 1) == 20
    assert spool.limit(0, 7, 1000) == 7
    spool.close()


def test_what_was_never_finished_is_removed(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    append(spool, 3)
    spool.close()
    (tmp_path / (Segment(3, 5, 1, "0" * 16, lent=True).name + ".tmp")).write_bytes(b"half")
    again = opened(tmp_path)
    assert numbers(again) == [0, 1, 2]
    assert not any(name.endswith(".tmp") for name in files(tmp_path))
    again.close()


def test_it_counts_on_from_a_number(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    append(spool, 3)
    spool.restart(100)
    append(spool, 2)
    assert spans(spool) == [(100, 102, True)]
    spool.close()


def test_only_one_writes(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    with pytest.raises(SpoolError, match="in use by another query"):
        opened(tmp_path)
    spool.close()
    opened(tmp_path).close()


def test_it_is_one_queues(tmp_path: Path) -> None:
    opened(tmp_path).close()
    for queue, vhost in (("other", "/"), ("orders", "v")):
        with pytest.raises(SpoolError, match="is the spool of queue 'orders' in vhost '/'"):
            Spool(str(tmp_path), queue, vhost)
    opened(tmp_path).close()


def test_a_directory_of_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    with pytest.raises(SpoolError, match="contains other files"):
        opened(tmp_path)
    assert files(tmp_path) - {"lock"} == {"precious"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": 99, "id": "x"}'])
def test_a_spoiled_identity_is_told(tmp_path: Path, text: str) -> None:
    opened(tmp_path).close()
    (tmp_path / IDENTITY).write_text(text)
    with pytest.raises(SpoolError):
        opened(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", '{"committed": "x"}'])
def test_a_spoiled_position_is_told(tmp_path: Path, text: str) -> None:
    opened(tmp_path).close()
    (tmp_path / POSITION).write_text(text)
    with pytest.raises(SpoolError, match="is damaged"):
        opened(tmp_path)


def test_every_flipped_byte_of_a_segment_is_told(tmp_path: Path) -> None:
    spool = opened(tmp_path)
    append(spool, 3)
    (segment,) = spool.segments
    path = tmp_path / segment.name
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        with pytest.raises(SpoolError, match="is damaged"):
            read_segment(tmp_path, segment)
    path.write_bytes(b"")
    with pytest.raises(SpoolError, match="is damaged"):
        read_segment(tmp_path, segment)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_segment(tmp_path, segment)
    spool.close()


def test_a_task_tells_what_it_sees(tmp_path: Path) -> None:
    spool = opened(tmp_path / "spool")
    check_sight(spool.directory, spool.id, "here")
    with pytest.raises(SpoolError, match=r"cannot be read on here \(No such file"):
        check_sight(tmp_path / "nowhere", spool.id, "here")
    with pytest.raises(SpoolError, match="is another spool"):
        check_sight(spool.directory, "0" * 16, "here")
    spool.close()
