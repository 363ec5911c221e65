"""The parts of the demo: what becomes of lines, and that its checks notice what they are for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from leveret.cli.demo.checks import Checks
from leveret.cli.demo.lake import Archived, DemoLake, check_lake
from leveret.cli.demo.lines import (
    LINES_MAX,
    DemoMessage,
    read_input,
    severity,
    source_name,
    split_lines,
)
from leveret.cli.demo.topology import WorkQueue, expected, work_queues
from leveret.cli.exits import Failure
from leveret.pipelines.report.result import Report, TrafficRow
from leveret.routing.topic import TopicTrie

# -- lines -----------------------------------------------------------------------------------------


@given(st.binary(min_size=1))
def test_lines_put_together_are_the_file_again(data: bytes) -> None:
    lines = split_lines(data)
    assert b"\n".join(lines) == data.removesuffix(b"\n")
    assert not any(b"\n" in line for line in lines)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (b"081109 203615 148 INFO dfs.DataNode: terminating", "info"),
        (b"[Sun Dec 04 04:47:44 2005] [error] mod_jk child", "error"),
        (b"[Sun Dec 04 04:47:44 2005] [notice] workerEnv.init() ok", "notice"),
        (b"2016-09-28 04:30:30, Info                  CBS    Loaded", "info"),
        (b"03-17 16:13:38.811  1702  2395 D WindowManager: ERROR in text", "debug"),
        (b"2015-07-29 17:41:44,747 - WARN  [QuorumPeer] - x", "warning"),
        (b"R02-M1-N0-C:J12-U11 RAS KERNEL FATAL data storage interrupt", "fatal"),
        (b"Jun 14 15:16:01 combo sshd[19939]: an error occurred", "unknown"),
        (b"x" * 150 + b" ERROR", "unknown"),
        (b"INFORMATION", "unknown"),
        (b"", "unknown"),
        (b"\xff\xfe ERROR \xff", "error"),
    ],
)
def test_a_severity_is_what_the_line_carries(line: bytes, found: str) -> None:
    assert severity(line) == found


@pytest.mark.parametrize(
    ("name", "word"), [("Apache.log", "apache"), ("a.b c.log", "a-b-c"), ("_.log", "log")]
)
def test_a_source_is_one_word_of_a_routing_key(name: str, word: str) -> None:
    assert source_name(Path(name)) == word


def test_text_files_are_read_and_others_left(tmp_path: Path) -> None:
    (tmp_path / "A.log").write_bytes(b"one\r\n\xff\n\n")
    (tmp_path / "a.txt").write_bytes(b"two ERROR")
    (tmp_path / "binary").write_bytes(b"\0\1\2")
    (tmp_path / "empty").write_bytes(b"")
    found = read_input(tmp_path)
    assert found.sources == ("a", "a-2")
    assert [(line.message_id, line.routing_key, line.body) for line in found.lines] == [
        ("a-1", "a.unknown", b"one\r"),
        ("a-2", "a.unknown", b"\xff"),
        ("a-3", "a.unknown", b""),
        ("a-2-1", "a-2.error", b"two ERROR"),
    ]


@pytest.mark.parametrize("count", [LINES_MAX, LINES_MAX + 1])
def test_lines_hold_at_their_limit_and_one_past(tmp_path: Path, count: int) -> None:
    (tmp_path / "a").write_bytes(b"x\n" * count)
    found = read_input(tmp_path)
    assert len(found.lines) == LINES_MAX
    assert ("the first" in found.origin) is (count > LINES_MAX)


def test_a_directory_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="no text files"):
        read_input(tmp_path)


def test_the_shipped_lines_are_for_every_queue() -> None:
    found = read_input(None)
    for queue in work_queues(found.sources):
        assert len(expected(queue, found.lines)) > 100, queue.name
    severities = {line.routing_key.partition(".")[2] for line in found.lines}
    assert severities == {"error", "fatal", "info", "notice", "unknown", "warning"}


# -- topology --------------------------------------------------------------------------------------


@given(st.sampled_from(["a", "b", "c-d"]), st.sampled_from(["error", "warning", "unknown", "x"]))
def test_what_a_queue_is_to_get_agrees_with_the_brokers_matcher(source: str, level: str) -> None:
    queues = work_queues(("a", "b"))
    trie = TopicTrie()
    for queue in queues:
        for key in queue.binding_keys:
            trie.insert(key, queue)
    key = f"{source}.{level}"
    assert set(trie.match(key)) == {queue for queue in queues if queue.takes(key)}


def test_a_queue_expects_the_lines_of_its_keys() -> None:
    lines = (DemoMessage("a-1", "a", "a.error", b"1"), DemoMessage("b-1", "b", "b.info", b"2"))
    assert expected(WorkQueue("q", ("*.error",)), lines) == {"a-1": lines[0]}


# -- checks ----------------------------------------------------------------------------------------

LINES = tuple(DemoMessage(f"a-{n}", "a", "a.info", b"x%d" % n) for n in range(3))
ROWS = tuple(Archived(n, line.message_id, "a.info", line.body) for n, line in enumerate(LINES))


def lake(rows: tuple[Archived, ...]) -> DemoLake:
    """Return a lake of some rows with a report that is right."""
    size = sum(len(row.body) for row in rows)
    key = TrafficRow(None, "logs", "a.info", len(rows), size, 2, 2)
    report = Report("archive", 1, len(rows), size, (key,), 1, (key,), 1, (), 1)
    return DemoLake(rows, 1, report)


def holds(rows: tuple[Archived, ...], sent_again: set[str] | None = None) -> bool:
    """Tell whether all checks of a lake hold."""
    checks = Checks()
    check_lake(lake(rows), LINES, sent_again or set(), checks)
    return checks.hold


def test_a_right_lake_holds() -> None:
    assert holds(ROWS)


@pytest.mark.parametrize(
    "rows",
    [
        ROWS[:2],
        (*ROWS[:2], replace(ROWS[2], body=b"altered")),
        (*ROWS[:2], replace(ROWS[2], routing_key="b.info")),
        (*ROWS, Archived(3, "invented", "a.info", b"x")),
        (*ROWS, replace(ROWS[2], offset=3)),
        (*ROWS[:2], replace(ROWS[2], offset=3)),
        (*ROWS, ROWS[2]),
    ],
    ids=["lost", "altered", "misrouted", "invented", "repeated", "gap", "read twice"],
)
def test_a_wrong_lake_does_not_hold(rows: tuple[Archived, ...]) -> None:
    assert not holds(rows)


def test_a_repeat_holds_only_where_it_was_sent_again() -> None:
    rows = (*ROWS, replace(ROWS[2], offset=3))
    assert holds(rows, {"a-2"})
    assert not holds(rows, {"a-1"})


def test_a_wrong_report_does_not_hold() -> None:
    right = lake(ROWS)
    for wrong in (
        replace(right.report, messages=4),
        replace(right.report, bytes=0),
        replace(right.report, keys_total=2),
        replace(right.report, keys=(replace(right.report.keys[0], messages=2),)),
    ):
        checks = Checks()
        check_lake(DemoLake(ROWS, 1, wrong), LINES, set(), checks)
        assert not checks.hold


def test_no_checks_are_no_proof() -> None:
    assert not Checks().hold


def test_a_failed_check_is_shown() -> None:
    checks = Checks()
    checks.equal("lines", 3, 3)
    checks.equal("other lines", 2, 3)
    console = Console(width=100, force_terminal=False)
    with console.capture() as capture:
        checks.print(console)
    assert "2, not 3" in capture.get()
    assert "1 of 2 checks FAILED" in capture.get()
