"""Harmed data directories: a share of what `make chaos` does, and the judge judged.

One specimen is made by a real broker; it is harmed in copies, booted and read to the end.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import flips, missing, refusals, tails
from chaos.board import Row
from chaos.forks import Boot
from chaos.harm import CUT, FLIP, Harm, is_boundary, may_cost
from chaos.harmed import try_all
from chaos.judging import Verdict, judge
from chaos.reading import Reading, messages_of
from chaos.specimen import Specimen, made

from support.brokers.brokers import need_own_broker


@pytest.fixture(scope="module")
def specimen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Specimen]:
    need_own_broker()
    with made(tmp_path_factory.mktemp("specimen"), 1) as found:
        yield found


@pytest.fixture(autouse=True)
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAOS_WORKERS", "1")


def row_of(specimen: Specimen, harms: list[Harm]) -> Row:
    """The row of harms that must all be borne; what was wrong is in the failure."""
    said: list[str] = []
    row = try_all(specimen, harms, said.append).row("harmed", specimen)
    assert row.holds, said
    return row


def test_a_bit_turned_anywhere_is_found_or_harmless(specimen: Specimen) -> None:
    row = row_of(specimen, flips.flips(specimen, random.Random(2), 40))
    assert row.runs == 40


@pytest.mark.parametrize("folder", ["journal", "segments"])
def test_a_tail_cut_anywhere_costs_what_was_cut(specimen: Specimen, folder: str) -> None:
    assert row_of(specimen, tails.cuts(specimen, folder, 20)).runs >= 20


def test_any_file_may_be_missing(specimen: Specimen) -> None:
    names = [
        path.relative_to(specimen.directory).as_posix()
        for path in sorted(specimen.directory.rglob("*"))
        if path.is_file() and path.name != "format"
    ]
    row_of(specimen, [Harm("missing", name) for name in names])
    assert missing._without_format(specimen).holds  # noqa: SLF001 (a row of its own)


@pytest.mark.parametrize("case", refusals.CASES)
def test_a_refusal_leaves_everything_as_it_was(specimen: Specimen, case: str) -> None:
    assert refusals.CASES[case](specimen) == ""


# -- the judge -------------------------------------------------------------------------------------


def judged(specimen: Specimen, queues: dict[str, bytes], said: str = "damage found") -> Verdict:
    """The verdict on a reading that differs from the unharmed one in some queues."""
    reading = Reading({**specimen.reading.queues, **queues})
    boot = Boot(1, specimen.definitions, lambda: said)
    return judge(specimen, boot, reading, said_all=True)


def deliveries(specimen: Specimen, queue: str) -> list[bytes]:
    """What was read of a queue, cut before each delivery; the replies come first."""
    data = specimen.reading.queues[queue]
    start = b"\x00\x3c\x00\x3c\x01r"
    places = []
    at = data.find(start)
    while at >= 0:
        places.append(at - 7)
        at = data.find(start, at + 1)
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def test_the_judge_finds_nothing_in_what_is_the_same(specimen: Specimen) -> None:
    verdict = judged(specimen, {}, "")
    assert verdict == Verdict(boots=True)


def test_the_judge_finds_what_is_lost_and_that_nobody_said_so(specimen: Specimen) -> None:
    parts = deliveries(specimen, "plain")
    lost = messages_of(b"".join(parts))[3].id
    verdict = judged(specimen, {"plain": b"".join(parts[:4] + parts[5:])}, "")
    assert verdict.lost == {("plain", lost)}
    assert verdict.problems == ["it changed and nothing was reported"]


def test_the_judge_finds_what_is_altered(specimen: Specimen) -> None:
    data = specimen.reading.queues["fan"]
    bodies = [message.content.body for message in messages_of(data)]
    at = data.index(max(bodies, key=len)) + 100
    broken = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
    verdict = judged(specimen, {"fan": broken})
    assert (verdict.altered, verdict.phantom, verdict.lost) == (1, 0, set())


def test_the_judge_finds_what_was_sent_elsewhere(specimen: Specimen) -> None:
    parts = deliveries(specimen, "plain")
    verdict = judged(specimen, {"holes": specimen.reading.queues["holes"] + parts[1]})
    assert verdict.phantom >= 1


def test_the_judge_finds_repeats_and_disorder(specimen: Specimen) -> None:
    parts = deliveries(specimen, "plain")
    twice = judged(specimen, {"plain": b"".join([*parts[:2], parts[1], *parts[2:]])})
    assert "plain: messages came twice" in twice.problems
    swapped = judged(specimen, {"plain": b"".join([parts[0], parts[2], parts[1], *parts[3:]])})
    assert "plain: the order changed" in swapped.problems


def test_the_judge_finds_definitions_that_changed(specimen: Specimen) -> None:
    boot = Boot(1, {**specimen.definitions, "bindings": []}, lambda: "")
    verdict = judge(specimen, boot, specimen.reading, said_all=True)
    assert verdict.problems == ["it changed and nothing was reported"]


def test_what_a_harm_may_cost_is_what_it_hits(specimen: Specimen) -> None:
    path = max((specimen.directory / "journal").iterdir())
    name, data = f"journal/{path.name}", path.read_bytes()
    word = b"<m" + data.rpartition(b"<m")[2].partition(b">")[0] + b">"
    first = data.index(word)
    id_ = word[1:-1].decode()
    for at in (first, first + 5, data.rindex(word) + 1):
        assert may_cost(specimen, Harm(FLIP, name, at), data) == ({id_}, 1)
    assert id_ in may_cost(specimen, Harm(CUT, name, data.rindex(word) + 2), data)[0]
    assert id_ not in may_cost(specimen, Harm(CUT, name, data.rindex(word) + len(word)), data)[0]
    assert is_boundary(Harm(CUT, name, data.rindex(b"LVgroup2")), data)
    assert not is_boundary(Harm(CUT, name, first), data)


def test_a_directory_is_read_as_it_was_made(specimen: Specimen, tmp_path: Path) -> None:
    """What the specimen expects of itself is what was sent and not taken."""
    expected = {
        (queue, id_)
        for id_, queues in specimen.places.items()
        for queue in queues
        if (queue, id_) not in specimen.gone
    }
    found = {
        (queue, message.id)
        for queue, data in specimen.reading.queues.items()
        for message in messages_of(data)
    }
    assert found == expected
