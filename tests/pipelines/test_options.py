"""The options of jobs: one object each, whose fields are the arguments of the job's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret import pipelines
from leveret.pipelines import Destination
from leveret.pipelines.deadletter.republish import RepublishOptions
from leveret.pipelines.refusals import JobError
from leveret.pipelines.replay.job import ReplayOptions

DOCS = Path(__file__).parents[2] / "docs/reference/pipelines"

JOBS = {
    "archive": (pipelines.archive, pipelines.start_archive),
    "deadletter": (pipelines.deadletter, pipelines.republish),
    "lifecycle": (pipelines.lifecycle,),
    "replay": (pipelines.replay,),
    "report": (pipelines.report,),
    "route": (pipelines.route,),
}

URI = "amqp://me:secret@localhost/v"


@pytest.mark.parametrize(("page", "job"), [(page, job) for page in JOBS for job in JOBS[page]])
def test_a_page_names_each_argument_of_its_job(page: str, job: Callable[..., object]) -> None:
    text = (DOCS / f"{page}.md").read_text(encoding="utf-8")
    session, *arguments = inspect.signature(job).parameters
    assert session == "spark"
    assert [name for name in arguments if f"`{name}`" not in text] == []


def test_a_job_keeps_its_name_from_release_to_release() -> None:
    """A broker knows what it took from a job by this name, and a checkpoint belongs to it."""
    since, until = "2026-01-01", "2026-02-01T00:00:00Z"
    one = ReplayOptions(
        Destination(URI, "e", "k"), uri=URI, stream="s", patterns=["b.#", "a.*"],
        headers={"h": "1", "g": None}, from_exchange="x", rate=5, since=since, until=until,
    )  # fmt: skip
    assert one.own_name == "replay-b46d546f963dcb41"
    archived = RepublishOptions(
        URI, path="/data/a", stream="s", queue="q", to_queue="t", since=since, until=until
    )
    assert archived.own_name == "deadletter-7fa58b0479197f28"
    assert RepublishOptions(URI, path="/data/a", name="mine").own_name == "mine"


def test_options_hide_the_password_and_do_not_change() -> None:
    options = RepublishOptions(URI, uri=URI, stream="s")
    assert "secret" not in repr(options)
    with pytest.raises(AttributeError):
        options.rate = 1  # type: ignore[misc]


@pytest.mark.parametrize("wrong", [{"rate": 0}, {"step": 0}])
def test_a_rate_and_a_step_are_refused_before_the_source_is_read(wrong: dict[str, int]) -> None:
    """The job has no session to read with, and the path does not exist."""
    word = next(iter(wrong))
    with pytest.raises(JobError, match=f"{word}: 0 is less than 1"):
        pipelines.replay(None, Destination(URI), path="/data/none", **wrong)  # type: ignore[arg-type]
    with pytest.raises(JobError, match=f"{word}: 0 is less than 1"):
        pipelines.republish(None, URI, path="/data/none", **wrong)  # type: ignore[arg-type]
