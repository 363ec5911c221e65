"""The HTML page about a run of the archive job: the messages of each stream, and the speed."""

from __future__ import annotations

from datetime import timedelta

from leveret.pipelines.archive.result import ArchiveResult, Measured
from leveret.pipelines.pages.document import job_page
from leveret.pipelines.pages.origin import PageOrigin, milliseconds
from leveret.pipelines.pages.rows import table


def archive_page(result: ArchiveResult, command: str = "") -> str:
    """Return the page; `command` is the command that archived the streams."""
    steps = result.steps
    first = steps[0].began if steps else None
    last = steps[-1].began + timedelta(seconds=steps[-1].seconds) if steps else None
    offsets = [
        (name, result.first_offsets.get(name), end, result.lag.get(name))
        for name, end in sorted(result.next_offsets.items())
    ]
    return job_page(
        "archive",
        f"The archive {result.path}",
        {
            "origin": PageOrigin(
                f"stream {result.stream}", command, first, last, "Ran"
            ).described(),
            "path": result.path,
            "records": result.records,
            "batches": result.batches,
            "body_bytes": result.body_bytes,
            "lag": sum(result.lag.values()) if result.lag else None,
            "measured": None if result.measured is None else _measures(result.measured),
            "streams": table("stream first next lag", offsets, len(offsets)),
            "steps": table(
                "number began seconds records",
                ((s.number, milliseconds(s.began), s.seconds, s.records) for s in steps),
                result.batches,
            ),
        },
    )


def _measures(measured: Measured) -> dict[str, int | None]:
    return {
        "files": measured.size.files,
        "bytes": measured.size.bytes,
        "files_added": measured.added.files,
        "bytes_added": measured.added.bytes,
        "oldest": milliseconds(measured.oldest_unarchived),
    }
