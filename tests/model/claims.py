"""Claiming what was heard: replies in their order, some of them only after a sync.

Invariant: a reply that did not come and may wait is claimed before the step ends.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from model.heard import At, Difference, Event, Heard, decoded, in_words, plain
from support.wire.raw import Method


class Claims:
    """What the peers heard in the step under way, and what is still to come."""

    #: How often something happened that is worth knowing it did, over all runs.
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        self.heard = Heard()
        #: Replies that wait for a sync.
        self.awaited: list[tuple[At, str, dict[str, Any]]] = []

    def saw(self, what: str) -> None:
        """Count what happened."""
        self.seen[what] += 1

    def answer(self, at: At, name: str, *, may_wait: bool = False, **fields: Any) -> None:
        """Claim a reply; one that may wait for a sync is claimed later if it is not there."""
        event = self.heard.reply(at)
        if event is None and may_wait:
            self.awaited.append((at, name, fields))
            return
        got = self.next_reply(at, name).claim()
        wrong = {key: got.fields[key] for key in fields if got.fields[key] != fields[key]}
        if wrong:
            raise Difference(f"{at}: {name} should have {fields}, has {wrong}")

    def answer_awaited(self) -> None:
        """Claim the replies that waited for a sync."""
        awaited, self.awaited = self.awaited, []
        for at, name, fields in awaited:
            self.answer(at, name, **fields)

    def next_reply(self, at: At, name: str) -> Event:
        event = self.heard.reply(at)
        if event is None:
            raise Difference(f"{at}: expected {name}, heard nothing; {self.heard.left()}")
        if event.method.name != name:
            raise Difference(f"{at}: expected {name}, heard {in_words(event.method)}")
        return event

    @staticmethod
    def same_content(got: Method, body: bytes, properties: dict[str, Any]) -> None:
        found = decoded(got)
        if got.body != body or found != plain(properties):
            text = f"expected {body[:12]!r} {plain(properties)}"
            raise Difference(f"{text}, heard {got.body[:12]!r} {found}")
