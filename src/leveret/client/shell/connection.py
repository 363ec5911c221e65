"""What a connection of either shell is apart from its socket: a session, and where its events go.

Not here: bytes, time and waiting, in which the shells differ.
"""

from __future__ import annotations

import ssl as ssl_module
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from leveret.client.events import (
    Blocked,
    CameBack,
    Cancelled,
    ChannelEnded,
    Ended,
    FlowChanged,
    Opened,
    Replied,
    Settled,
    Unblocked,
)
from leveret.client.message import Message
from leveret.client.session.connection import Session
from leveret.client.session.states import ConnectionState
from leveret.client.uri import Parameters, parse_uri
from leveret.limits import (
    CLIENT_INPUT_BYTES_HIGH,
    CLIENT_INPUT_BYTES_MAX,
    CLIENT_OUTPUT_BYTES_MAX,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.client.events import Event


class ShellConnection(ABC):
    """A connection of a shell; `session` is its sans-IO state.

    `blocked_reason` is why the broker takes no publishes for now, else None.
    """

    def __init__(self, parameters: Parameters, properties: Mapping[str, object]) -> None:
        self.parameters = parameters
        self.session = Session(parameters, monotonic_ms(), properties)
        self.blocked_reason: str | None = None
        self._input_bytes = 0
        #: Of the message that came last.
        self._newest_bytes = 0
        #: See `leveret.limits` for what these bound and why; an application may lower them.
        self.input_bytes_high = CLIENT_INPUT_BYTES_HIGH
        self.input_bytes_max = CLIENT_INPUT_BYTES_MAX
        self.output_bytes_max = CLIENT_OUTPUT_BYTES_MAX

    @property
    def is_open(self) -> bool:
        """Whether the connection can be used, as far as was read."""
        return self.session.state is ConnectionState.OPEN

    @property
    def input_bytes(self) -> int:
        """About how many bytes of messages have come and wait for the application."""
        return self._input_bytes

    def hold(self, size: int) -> None:
        """Count bytes of messages that wait for the application (negative: no longer)."""
        self._input_bytes += size
        if size > 0:
            self._newest_bytes = size

    @property
    def _is_overfull(self) -> bool:
        """Whether too much waits; one message alone never does, however large it is."""
        waits = self._input_bytes
        return waits > self.input_bytes_max and waits > self._newest_bytes

    @property
    def error(self) -> Exception | None:
        """What ended the connection; None while it is open or when this side closed it."""
        return self.session.error

    @property
    def server_properties(self) -> dict[str, object]:
        """What the broker says of itself."""
        return self.session.server_properties

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.parameters} {self.session.state.value}>"

    @abstractmethod
    def _on_opened(self) -> None:
        """Take the end of the handshake."""

    @abstractmethod
    def _on_unblocked(self) -> None:
        """Take that the broker takes publishes again."""

    @abstractmethod
    def _on_ended(self, event: Ended) -> None:
        """Take the end of the connection."""

    def _handle(self, events: list[Event]) -> None:
        """Give each event to whom it concerns, in order."""
        for event in events:
            if isinstance(event, Message):
                event.owner.delivered(event)
            elif isinstance(event, Replied):
                event.token.replied(event)
            elif isinstance(event, Settled):
                event.channel.owner.settled(event)
            else:
                self._handle_rare(event)

    def _handle_rare(self, event: Event) -> None:
        """Give an event that does not come by the thousand to whom it concerns."""
        if isinstance(event, ChannelEnded):
            event.channel.owner.ended(event)
        elif isinstance(event, CameBack):
            event.channel.owner.came_back(event.message)
        elif isinstance(event, Cancelled):
            event.channel.owner.consumer_cancelled(event.consumer_tag)
        elif isinstance(event, FlowChanged):
            event.channel.owner.flow_changed(event.active)
        elif isinstance(event, Blocked):
            self.blocked_reason = event.reason
        elif isinstance(event, Unblocked):
            self.blocked_reason = None
            self._on_unblocked()
        elif isinstance(event, Opened):
            self._on_opened()
        elif isinstance(event, Ended):
            self._on_ended(event)


def prepare(
    uri: str | Parameters,
    ssl: ssl_module.SSLContext | None,
    connection_name: str,
    client_properties: Mapping[str, object] | None,
) -> tuple[Parameters, ssl_module.SSLContext | None, dict[str, object]]:
    """Return what both shells' `connect` need: parameters, TLS context and client properties.

    Raises: ValueError for the URI, or for a TLS context without `amqps://`.
    """
    parameters = parse_uri(uri) if isinstance(uri, str) else uri
    if ssl is not None and not parameters.tls:
        raise ValueError("an ssl context goes with amqps://")
    if ssl is None and parameters.tls:
        ssl = ssl_module.create_default_context()
    properties = dict(client_properties or {})
    if connection_name:
        properties["connection_name"] = connection_name
    return parameters, ssl, properties


def monotonic_ms() -> int:
    """Return the monotonic time in milliseconds."""
    return time.monotonic_ns() // 1_000_000
