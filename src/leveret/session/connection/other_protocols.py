"""Peers of other protocols, recognised by their first bytes, and the answers to them.

The answer is one of the peer's own protocol, so that its user learns that this port speaks AMQP:
a 400 to HTTP, an alert to TLS, a refusing CONNACK to MQTT.  All others get the protocol header of
AMQP 0-9-1 (section 4.2.2), as peers with another version of AMQP expect.
"""

from __future__ import annotations

from typing import Final, final

from leveret.wire.frames import PROTOCOL_HEADER

#: The beginnings of HTTP requests; PRI is HTTP/2.
_HTTP: Final = (
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"DELETE ",
    b"OPTIONS ",
    b"PATCH ",
    b"CONNECT ",
    b"TRACE ",
    b"PRI * ",
)

#: A record of TLS 1.0's layout with a fatal alert, handshake_failure (RFC 8446, section 6).
_TLS_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x28"

#: CONNACK of MQTT 3 and of MQTT 5: unacceptable protocol version.
_MQTT_REFUSED: Final = b"\x20\x02\x00\x01"
_MQTT5_REFUSED: Final = b"\x20\x03\x00\x84\x00"


@final
class SpokenProtocol:
    """The protocol of a peer; `protocol` is empty if it is unknown."""

    def __init__(self, protocol: str, start: bytes) -> None:
        self.protocol = protocol
        self._start = start

    def log_line(self, http_port: int, tls_port: int = 0) -> str:
        """Return the log line; a port is 0 if there is no such listener."""
        if not self.protocol:
            return f"the peer does not speak AMQP 0-9-1; it began with {self._start[:8]!r}"
        text = f"the peer speaks {self.protocol}, but this port speaks AMQP 0-9-1"
        if self.protocol == "HTTP":
            return f"{text}; {_http_place(http_port)}"
        return f"{text} without TLS; {_tls_place(tls_port)}" if self.protocol == "TLS" else text

    def answer(self, http_port: int) -> bytes:
        """Return the bytes to send before the connection is closed."""
        if self.protocol == "HTTP":
            return _bad_request(f"This port speaks AMQP 0-9-1; {_http_place(http_port)}.\n")
        if self.protocol == "TLS":
            return _TLS_ALERT
        if self.protocol == "MQTT":
            return _MQTT5_REFUSED if self._start[8:9] == b"\x05" else _MQTT_REFUSED
        return PROTOCOL_HEADER


def spoken_by(start: bytes) -> SpokenProtocol:
    """Return the protocol of a peer by its first bytes, at least eight."""
    protocol = ""
    if start.startswith(_HTTP):
        protocol = "HTTP"
    elif start[:2] == b"\x16\x03":
        protocol = "TLS"
    elif start[:1] == b"\x10" and (start[2:8] == b"\x00\x04MQTT" or start[4:8] == b"MQIs"):
        protocol = "MQTT"
    elif start[:5] == b"AMQP\x00" or start[:5] == b"AMQP\x03":
        protocol = "AMQP 1.0" if start[5:6] == b"\x01" else "another version of AMQP"
    elif start[:4] == b"AMQP":
        protocol = "another version of AMQP"
    return SpokenProtocol(protocol, start[:16])


def _http_place(http_port: int) -> str:
    if http_port == 0:
        return "there is no HTTP listener on TCP"
    return f"HTTP is on port {http_port}"


def _tls_place(tls_port: int) -> str:
    if tls_port == 0:
        return "there is no TLS listener: set tls_certificate, or have the client use amqp://"
    return f"TLS is on port {tls_port}"


def _bad_request(text: str) -> bytes:
    body = text.encode()
    head = (
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
