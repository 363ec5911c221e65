"""The step of an opening in which a proxy names the peer of the connection.

From then on, the peer named by the header counts: for logs and listings, for the limits on
addresses, and for users who may only log in from the broker's machine.  Only a proxy on the
broker's machine may name a loopback address: otherwise anyone who can reach the port could log in
as guest.
"""

from __future__ import annotations

import asyncio

from leveret.limits import PROXY_HEADER_BYTES_MAX
from leveret.server.closing.lingering import LingeringTransport
from leveret.server.opening.opening import Open, Opening, Openings
from leveret.server.opening.peer_address import is_loopback
from leveret.server.opening.proxy_header import BadHeader, ProxyHeader, read_header
from leveret.session.admission import Admission, Slot, network_of


class ProxyConnection(Opening):
    """A connection whose peer is a proxy until its header has named another one."""

    step = "send the header of the PROXY protocol"

    def __init__(
        self,
        openings: Openings,
        after: Open | None,
        upper: asyncio.Protocol,
        slot: Slot,
        admission: Admission,
    ) -> None:
        """`after` is the next step, if there is one."""
        super().__init__(openings, upper, slot, admission)
        self._after = after
        self._data = b""

    def data_received(self, data: bytes) -> None:
        """Collect input until the header is complete."""
        if self.is_gone:
            return
        self._data += data
        try:
            header = read_header(self._data[:PROXY_HEADER_BYTES_MAX])
            if header is not None:
                self._go_on(header)
        except BadHeader as bad:
            self.is_gone = True
            self.refuse(f"{bad} (proxy_protocol)")

    def _go_on(self, header: ProxyHeader) -> None:
        """Pass the connection on to the next step.  Raises: BadHeader."""
        raw = self.raw
        assert isinstance(raw, LingeringTransport)
        if header.host:
            proxy = (raw.get_extra_info("peername") or ("",))[0]
            if is_loopback(header.host) and not is_loopback(str(proxy)):
                raise BadHeader("it claims that its peer is on the broker's machine")
            raw.name_peer(header.host, header.port)
            self.admission.relocate(self.slot, network_of(header.host))
        self.opened()
        following = self.upper
        if self._after is not None:
            following = self._after(self.upper, self.slot, self.admission)
        self.upper = following
        rest, self._data = self._data[header.size :], b""
        raw.set_protocol(following)
        following.connection_made(raw)
        if rest and not raw.is_closing():
            following.data_received(rest)
