"""Detects whether a request changes the broker, although others change it between its steps.

Nothing else runs while a request executes a step, from one await to the next.  `Steps` compares
the core's counts before and after each step, so changes by others do not count.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

from leveret.broker.core import Core

Answer = TypeVar("Answer")


class Steps(Generic[Answer]):
    """Awaits `work` once, step by step.

    `changed` is True once a step has begun a change, even if it only opened a channel.
    """

    def __init__(self, work: Awaitable[Answer], core: Core) -> None:
        self.changed = False
        self._work = work
        self._core = core

    def __await__(self) -> Generator[Any, Any, Answer]:
        """Run the work, step by step."""
        steps = self._work.__await__()
        value: Any = None
        thrown: BaseException | None = None
        while True:
            before = self._counts()
            try:
                waited = steps.send(value) if thrown is None else steps.throw(thrown)
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            finally:
                self.changed = self.changed or self._counts() != before
                # The traceback of an exception references this frame.  The cycle would keep the
                # request and its answer in memory until the next garbage collection.
                thrown = None
            try:
                value = yield waited
            except BaseException as error:  # noqa: BLE001 (thrown into the work)
                thrown = error

    def _counts(self) -> tuple[int, int, bool, int]:
        core = self._core
        journal = core.journal
        # A long operation that has begun will change something.
        return (
            int(core.scheduler.changes),
            int(journal.unsynced_bytes),
            journal.in_tx,
            len(core.scheduler.tasks),
        )
