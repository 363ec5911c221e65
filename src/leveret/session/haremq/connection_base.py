"""What a HareMQ connection is to its parts: its channels, its answers and its output.

`HareConnection` extends this class and puts the parts together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.core.accounts import HARE_PACKAGE_BYTES
from leveret.limits import HAREMQ_REFUSALS_LOGGED_MAX
from leveret.session.client_session import ClientSession
from leveret.session.haremq.answers import Answers
from leveret.session.haremq.channel import HareChannel, HareConsumer, HareDeliveries, HareOutput
from leveret.wire.haremq.frames import REQUESTS, Package

if TYPE_CHECKING:
    from leveret.broker.node.broker import Broker
    from leveret.session.settings import Peer, SessionSettings
    from leveret.wire.haremq.requests import HareCodec


@final
class HareShared:
    """What all connections that a listener accepts share."""

    def __init__(self, codec: HareCodec, user: str, vhost: str) -> None:
        self.codec = codec
        self.deliveries = HareDeliveries()
        self.user = user
        self.vhost = vhost


class HareConnectionBase(ClientSession):
    """A connection without the parts that `HareConnection` is composed of."""

    def __init__(
        self,
        broker: Broker,
        settings: SessionSettings,
        shared: HareShared,
        peer: Peer,
        now_ms: i64,
    ) -> None:
        super().__init__(broker, settings, peer, now_ms)
        self.shared = shared
        self.output = HareOutput()
        self.answers = Answers(self, self.output.writer)
        self.channels: dict[bytes, HareChannel] = {}
        #: Consumers whose answer is not written yet, with its number among the answers.
        self.starting: list[tuple[i64, HareConsumer]] = []
        self._refusals: i64 = 0

    def take_package(self, package: Package) -> None:
        """Answer with messages of the package that the client's first frame named."""
        if package is not self.output.package:
            self.output.package = self.answers.package = package
            self.account.book(HARE_PACKAGE_BYTES)

    def add_channel(self, cid: bytes) -> None:
        """Open a channel."""
        vhost = self.vhost
        assert vhost is not None
        self.turn.counts.channels_opened += 1
        channel = HareChannel(self, vhost, self.output, self.shared.deliveries, cid)
        self.channels[cid] = channel
        self.account.book(channel.memory())

    def forget_channel(self, channel: HareChannel) -> None:
        """Forget a channel, which ends."""
        del self.channels[channel.cid]
        self.account.book(-channel.memory())
        self.turn.counts.channels_closed += 1

    def refuse(self, identity: bytes, kind: i64, text: str) -> None:
        """Answer that a request was not done, and say why in the log."""
        self.refuse_named(identity, REQUESTS[int(kind)], text)

    def refuse_named(self, identity: bytes, name: str, text: str) -> None:
        """Do as `refuse` does for a request of any name."""
        self._refusals += 1
        if self._refusals <= HAREMQ_REFUSALS_LOGGED_MAX:
            more = "; the next ones are not logged"
            end = more if self._refusals == HAREMQ_REFUSALS_LOGGED_MAX else ""
            self.log.append(("warning", f"{name} refused: {text}{end}"))
        self.answers.answer(identity, False, 0)
