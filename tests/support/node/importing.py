"""A running import of definitions, for tests that inspect it before its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from leveret.broker.broker import Broker
from leveret.broker.definitions.imports import ImportReport, add_definitions
from leveret.errors import AmqpError


class Import:
    """A started import; `report` or `error` is its result."""

    def __init__(
        self, broker: Broker, definitions: Mapping[str, object], vhost: str | None = None
    ) -> None:
        self.report = ImportReport()
        self.error: AmqpError | None = None
        self.task = broker.core.scheduler.start(self._run(broker, definitions, vhost))

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.task.over

    def _run(
        self, broker: Broker, definitions: Mapping[str, object], vhost: str | None
    ) -> Iterator[int]:
        try:
            self.report = yield from add_definitions(broker, definitions, b"salt", vhost)
        except AmqpError as error:
            self.error = error.with_traceback(None)
