"""A lost connection of a client, and its next one, without a socket."""

from __future__ import annotations

from leveret.client import Recovery
from leveret.client.events import Lost
from leveret.client.numbering import PUBLISHER_PREFIX
from leveret.client.recovery.recoverer import Recoverer
from leveret.client.session.connection import ClientConnection
from leveret.client.uri import Parameters
from leveret.wire.method import Method
from leveret.wire.methods import (
    ChannelOpenOk,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionTune,
)
from support.wire.client_peer import Peer, Waiter, frame


class Twice:
    """A lost connection and the next one."""

    start = ConnectionStart()

    def __init__(self, bytewise: bool) -> None:
        self.peer = Peer(bytewise)
        self.recoverer = self.recoverer_of()
        #: The output up to the first open channel, and with each handshake since.
        self.sent: list[object] = []
        self.outcomes: list[Exception | None] = []
        #: The number of answers of the broker to the repeated methods.
        self.answers = 0
        self._take(self.recoverer.session(0, Parameters()))
        self.channel = self.peer.session.open_channel(self.peer.application, Waiter())
        self.peer.feed(frame(1, ChannelOpenOk()))
        self.sent += [part for _, part in self.peer.sent()]

    def recoverer_of(self) -> Recoverer:
        """Return the recoverer of the connection."""
        return Recoverer(Recovery(), [Parameters()], {}, f"{PUBLISHER_PREFIX}me")

    def _take(self, session: ClientConnection) -> None:
        self.peer.session = session
        self.feed(0, self.start, ConnectionTune(), ConnectionOpenOk())
        self.sent += [part for _, part in self.peer.sent()]

    def feed(self, channel: int, *methods: Method) -> list[object]:
        """Have the broker send methods; pass replies on."""
        events = self.peer.feed(*[frame(channel, method) for method in methods])
        for event in events:
            token = getattr(event, "token", None)
            if token is not None:
                token.replied(event)
        return list(events)

    def ask(self, method: Method, reply: Method) -> None:
        """Send a method and its reply."""
        self.channel.request(method, Waiter())
        self.feed(1, reply)
        self.peer.sent()

    def lose(self) -> None:
        """Lose the connection, and open another, up to the methods that are repeated."""
        events = self.peer.session.lost("the wire was cut")
        assert [type(event) for event in events] == [Lost]
        self.recoverer.lost(ConnectionError(), 0)
        assert self.recoverer.next_ms(ConnectionError(), 0) is not None
        self._take(self.recoverer.begin(0))
        self.recoverer.restore(self.peer.session, self.outcomes.append, self._count_answer)

    def _count_answer(self) -> None:
        self.answers += 1
