"""The HTML page about a run of a replay: the messages, source, destination and speed."""

from __future__ import annotations

from leveret.pipelines.pages.document import job_page
from leveret.pipelines.pages.origin import PageOrigin, milliseconds
from leveret.pipelines.pages.rows import table
from leveret.pipelines.replay.sending import Sent

_STEP = "source start end messages known unroutable began ended"


def replay_page(sent: Sent, source: str, destination: str, command: str = "") -> str:
    """Return the page; `destination` is a description, and `command` the equivalent command."""
    steps = sent.steps
    first, last = (steps[0].began, steps[-1].ended) if steps else (None, None)
    return job_page(
        "replay",
        f"Replay of {source}",
        {
            "origin": PageOrigin(source, command, first, last, "Ran").described(),
            "destination": destination,
            "name": sent.name,
            "messages": sent.messages,
            "known": sent.known,
            "unroutable": sent.unroutable,
            "published": sent.published,
            "sources": table(
                "source next", sorted(sent.next_offsets.items()), len(sent.next_offsets)
            ),
            "steps": table(
                _STEP,
                (
                    (s.source, s.start, s.end, s.messages, s.known, s.unroutable,
                     milliseconds(s.began), milliseconds(s.ended))
                    for s in steps
                ),
                sent.steps_total,
            ),
        },
    )  # fmt: skip
