"""What sending keeps without Spark: a rate, names, and how far it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.pipelines.refusals import JobError
from leveret.pipelines.replay.checkpoint import ReplayProgress
from leveret.pipelines.replay.sending import (
    Destination,
    job_name,
    records_at_once,
    short_name,
)


def test_a_job_has_a_name_that_the_same_job_has_again() -> None:
    one = job_name("replay", source="s", since=None, patterns=["a.#"])
    assert one == job_name("replay", patterns=["a.#"], source="s", since=None)
    assert one != job_name("replay", source="s", since=None, patterns=["b.#"])
    assert one.startswith("replay-")


def test_long_names_are_cut_and_stay_apart() -> None:
    names = {short_name("é" * 100 + str(n)) for n in range(50)}
    assert len(names) == 50
    assert all(len(name.encode()) <= 128 for name in names)
    assert short_name("x" * 128) == "x" * 128


def test_rows_go_on_a_tenth_of_a_second_at_a_time() -> None:
    assert [records_at_once(rate) for rate in (1, 9, 10, 1000, 10_000_000)] == [
        1,
        1,
        1,
        100,
        10_000,
    ]


def test_a_checkpoint_is_replaced_whole_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "checkpoint"
    kept = ReplayProgress(path, "replay-1")
    assert kept.next_offset("s") == 0
    kept.advance("s", 70)
    kept.advance("t", 5)
    again = ReplayProgress(path, "replay-1")
    assert (again.next_offset("s"), again.next_offset("t"), again.next_offset("u")) == (70, 5, 0)
    assert [entry.name for entry in path.parent.iterdir()] == ["checkpoint"]


def test_without_a_file_it_is_kept_for_the_run_alone() -> None:
    kept = ReplayProgress(None, "replay-1")
    kept.advance("s", 7)
    assert kept.next_offset("s") == 7


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "n", "next_offsets": {"s": "x"}}'])
def test_what_is_no_checkpoint_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "c").write_text(text)
    with pytest.raises(JobError, match="not a checkpoint"):
        ReplayProgress(tmp_path / "c", "n")


def test_a_stream_that_was_declared_again_is_told(tmp_path: Path) -> None:
    """Its messages below the offset of the old one would be left out in silence."""
    path = tmp_path / "c"
    kept = ReplayProgress(path, "replay-1")
    kept.meet("s", "01")
    kept.meet("t", None)
    kept.advance("s", 70)
    again = ReplayProgress(path, "replay-1")
    again.meet("s", "01")
    again.meet("t", "07")
    with pytest.raises(JobError, match="'s' was deleted and declared again since: its id was 01"):
        again.meet("s", "02")


def test_a_checkpoint_of_an_older_release_adopts_the_ids(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_text('{"name": "replay-1", "next_offsets": {"s": 70}}')
    kept = ReplayProgress(path, "replay-1")
    kept.meet("s", "01")
    assert kept.next_offset("s") == 70
    kept.advance("s", 71)
    with pytest.raises(JobError):
        ReplayProgress(path, "replay-1").meet("s", "02")


def test_the_checkpoint_of_another_job_is_refused(tmp_path: Path) -> None:
    ReplayProgress(tmp_path / "c", "replay-1").advance("s", 1)
    with pytest.raises(JobError, match="belongs to the job replay-1, not to replay-2"):
        ReplayProgress(tmp_path / "c", "replay-2")


def test_the_options_of_a_sink() -> None:
    to = Destination("amqp://", exchange="e", routing_key="k", options={"maxInFlight": "5"})
    assert to.sink_options("p") == {
        "maxInFlight": "5",
        "uri": "amqp://",
        "unroutable": "fail",
        "exchange": "e",
        "routingKey": "k",
        "publisherName": "p",
    }
    plain = Destination("amqp://", queue="q", dedup=False, password_env="P")
    assert plain.sink_options("p") == {
        "uri": "amqp://",
        "unroutable": "fail",
        "queue": "q",
        "passwordEnv": "P",
        "dedup": "none",
    }
    assert "amqp" not in repr(to)
