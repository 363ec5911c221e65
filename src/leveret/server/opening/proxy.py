r"""The PROXY protocol, versions 1 and 2: an opening step in which a proxy sends the peer's address.

The address in the header replaces that of the proxy: in logs and lists, for the limits on
addresses, and for users who can log in only from the broker's machine.  Only a proxy on the
broker's machine may send a loopback address.  Otherwise anyone who can reach the port could log in
as guest.

Source: haproxy's doc/proxy-protocol.txt.

    version 1:  PROXY TCP4 192.0.2.7 192.0.2.1 56324 5672\r\n        (107 bytes at most)
    version 2:  12 bytes of signature, version and command, family, length of the rest; addresses,
                ports, and further fields of type, length, value, which are ignored

Invariant: input that does not begin with a complete, valid header is refused.
"""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Final

from leveret.limits import PROXY_HEADER_BYTES_MAX
from leveret.server.closing.lingering import LingeringTransport
from leveret.server.opening.opening import Open, Openings, OpeningStep
from leveret.server.opening.peer_address import is_loopback
from leveret.session.admission import Admission, Slot, network_of

_LINE: Final = b"PROXY "
_LINE_BYTES_MAX: Final = 107

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_HEAD_BYTES: Final = 16

#: The bytes of an address by the family and transport of version 2 (TCP over IPv4 and over IPv6).
_ADDRESS_BYTES: Final = {0x11: 4, 0x21: 16}


class ProxyConnection(OpeningStep):
    """A connection from a proxy, until its header has been read."""

    step = "send the header of the PROXY protocol"

    def __init__(
        self,
        openings: Openings,
        after: Open | None,
        upper: asyncio.Protocol,
        slot: Slot,
        admission: Admission,
    ) -> None:
        """`after` creates the next step of the opening, if there is one."""
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


class BadHeader(Exception):
    """The input does not begin with a valid header; the text gives the reason."""


class ProxyHeader:
    """A header of `size` bytes; `host` is empty if the header has no address of a peer."""

    def __init__(self, size: int, host: str = "", port: int = 0) -> None:
        self.size = size
        self.host = host
        self.port = port


def read_header(data: bytes) -> ProxyHeader | None:
    """Return the header at the start of `data`, or None if incomplete.  Raises: BadHeader."""
    if data[: len(SIGNATURE)] == SIGNATURE[: len(data)]:
        return _read_binary(data) if len(data) >= _HEAD_BYTES else None
    if data[: len(_LINE)] == _LINE[: len(data)]:
        return _read_line(data)
    raise BadHeader("it does not begin with a header of the PROXY protocol")


def _read_line(data: bytes) -> ProxyHeader | None:
    end = data.find(b"\r\n", 0, _LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= _LINE_BYTES_MAX:
            raise BadHeader(f"its line is longer than {_LINE_BYTES_MAX} bytes")
        return None
    words = data[:end].split(b" ")
    if words[1] == b"UNKNOWN":
        return ProxyHeader(end + 2)
    families = {b"TCP4": ipaddress.IPv4Address, b"TCP6": ipaddress.IPv6Address}
    family = families.get(words[1])
    if family is None or len(words) != 6:
        raise BadHeader("its line is not: PROXY, TCP4 or TCP6, two addresses, two ports")
    try:
        if b"%" in data[:end]:
            # A scope after an IPv6 address could be any text, and would appear in lists and logs.
            raise ValueError("a scope")
        host, _ = (family(word.decode("ascii")) for word in words[2:4])
        port, _ = (_port(word) for word in words[4:])
    except ValueError:
        raise BadHeader("its line has an invalid address or port") from None
    return ProxyHeader(end + 2, str(host), port)


def _port(word: bytes) -> int:
    """Return a port.  Raises: ValueError."""
    if not word.isdigit() or len(word) > 5 or int(word) > 65_535:
        raise ValueError(word)
    return int(word)


def _read_binary(data: bytes) -> ProxyHeader | None:
    version, command = data[12] >> 4, data[12] & 0xF
    if version != 2 or command > 1:
        raise BadHeader("its version or command is not one of the PROXY protocol")
    size = _HEAD_BYTES + int.from_bytes(data[14:16], "big")
    if size > PROXY_HEADER_BYTES_MAX:
        raise BadHeader(f"it is longer than {PROXY_HEADER_BYTES_MAX} bytes")
    if len(data) < size:
        return None
    if command == 0:
        return ProxyHeader(size)
    if data[13] == 0:
        # The proxy does not know the peer; as in version 1, the proxy itself counts as the peer.
        return ProxyHeader(size)
    length = _ADDRESS_BYTES.get(data[13])
    if length is None:
        raise BadHeader("it is for a transport other than TCP")
    if size < _HEAD_BYTES + 2 * length + 4:
        raise BadHeader("it is too short for its addresses")
    host = ipaddress.ip_address(data[_HEAD_BYTES : _HEAD_BYTES + length])
    ports = _HEAD_BYTES + 2 * length
    return ProxyHeader(size, str(host), int.from_bytes(data[ports : ports + 2], "big"))
