"""The jobs' pages for tests: each with data, and each of a job that found nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from leveret.pipelines.archive.page import archive_page
from leveret.pipelines.archive.result import ArchiveResult
from leveret.pipelines.deadletter.page import deadletter_page
from leveret.pipelines.deadletter.result import DeadLetters
from leveret.pipelines.lifecycle.page import lifecycle_page
from leveret.pipelines.lifecycle.result import Lifecycle
from leveret.pipelines.pages.origin import command_line
from leveret.pipelines.replay.page import replay_page
from leveret.pipelines.replay.sending import Sent
from leveret.pipelines.report.page import report_page
from leveret.pipelines.report.result import Report
from leveret.pipelines.route.page import route_page
from leveret.pipelines.route.result import Routes
from support.pages.job_samples import (
    archive_sample,
    deadletter_sample,
    lifecycle_sample,
    replay_sample,
    report_sample,
    route_sample,
)

if TYPE_CHECKING:
    from playwright.sync_api import Page

COMMAND: Final = command_line(
    "report", stream=f"orders {'long ' * 40}", uri="amqp://me:secret@localhost:5672/%2F"
)

PAGES: Final[dict[str, Callable[[], str]]] = {
    "report": lambda: report_page(report_sample(), COMMAND),
    "route": lambda: route_page(route_sample(), COMMAND),
    "deadletter": lambda: deadletter_page(deadletter_sample(), COMMAND),
    "lifecycle": lambda: lifecycle_page(lifecycle_sample(), "10 minutes", COMMAND),
    "archive": lambda: archive_page(archive_sample(), COMMAND),
    "replay": lambda: replay_page(replay_sample(), "orders", "queue again", COMMAND),
}

EMPTY: Final[dict[str, Callable[[], str]]] = {
    "report": lambda: report_page(Report("stream s", 60, 0, 0, (), 0, (), 0, (), 60)),
    "route": lambda: route_page(
        Routes("stream s", "plan.json", None, 0, 0, 0, (), (), (), 0, 0, (), 0, 0)
    ),
    "deadletter": lambda: deadletter_page(DeadLetters("stream s", 0, 0, 0, (), 0, (), (), 60)),
    "lifecycle": lambda: lifecycle_page(
        Lifecycle("stream s", 0, 0, 0, 0, (), 0, 0, (), 0, None, None), "1 minute"
    ),
    "archive": lambda: archive_page(ArchiveResult("/data", "orders", 0, 0, None, {})),
    "replay": lambda: replay_page(Sent("replay-1", 0, {}), "orders", "queue again"),
}

SIZES: Final = {"wide": (1280, 800), "narrow": (390, 844)}


def shown(visitor: Any, text: str, place: Path, size: str = "wide", **options: object) -> Page:
    """Open a page from a file; return it when it is drawn."""
    file = place / "page.html"
    file.write_text(text, encoding="utf-8")
    page: Page = visitor.open(SIZES[size], None, **options)
    page.goto(file.as_uri())
    page.locator("main .table").first.wait_for()
    return page


def some(jobs: Iterable[str], kept: str) -> list[Any]:
    """Return the jobs for `parametrize`: one for `make check`, all for `make pages`.

    One is enough for `make check`, because all pages are made of the same parts.
    """
    more = pytest.mark.pages_more
    return [job if job == kept else pytest.param(job, marks=more) for job in jobs]
