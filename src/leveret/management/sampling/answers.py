"""Recent answers, shared by all pages that make the same request.

The broker's page is often open on several screens and in several tabs, and each makes the same
requests every other second.  An answer to one of them is reused for the others for a moment, and
compressed only once.

Invariants: only answers that are the same for all permitted users are kept here; there are never
more answers than the limit says.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from typing import Final

from leveret.limits import SHARED_ANSWER_MS_MAX, SHARED_ANSWERS_MAX

#: Fast compression, because a page waits; higher levels gain little on text with many numbers.
_LEVEL: Final = 1


class Answer:
    """One answer in JSON, and its time (ms)."""

    def __init__(self, body: bytes, made_ms: int) -> None:
        self.body: Final = body
        self.made_ms: Final = made_ms
        self._compressed: bytes | None = None

    @property
    def compressed(self) -> bytes:
        """The answer as gzip."""
        if self._compressed is None:
            self._compressed = gzip.compress(self.body, _LEVEL, mtime=0)
        return self._compressed


class SharedAnswers:
    """The shared answers of a broker; `now_ms` returns the wall time."""

    def __init__(self, now_ms: Callable[[], int], most: int = SHARED_ANSWERS_MAX) -> None:
        self._now_ms = now_ms
        self._most = most
        #: By path with query, the oldest first.
        self._by_path: dict[str, Answer] = {}

    def __len__(self) -> int:
        return len(self._by_path)

    def find(self, path: str) -> Answer | None:
        """Return the answer to a path with its query; None if it is missing or too old."""
        found = self._by_path.get(path)
        if found is None or self._is_old(found):
            return None
        return found

    def keep(self, path: str, body: bytes) -> Answer:
        """Keep an answer for later requests, and return it."""
        for old in [key for key, one in self._by_path.items() if self._is_old(one)]:
            del self._by_path[old]
        self._by_path.pop(path, None)
        if len(self._by_path) >= self._most:
            del self._by_path[next(iter(self._by_path))]
        answer = Answer(body, self._now_ms())
        self._by_path[path] = answer
        return answer

    def _is_old(self, answer: Answer) -> bool:
        # The wall clock may have been set back.
        return not 0 <= self._now_ms() - answer.made_ms < SHARED_ANSWER_MS_MAX
