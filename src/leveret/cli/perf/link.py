"""A connection of a load: it performs the handshake; then the load uses the socket directly.

It does not use the client library, which would add its own cost: a load writes frames that were
encoded beforehand, and only counts the answers.  Only channel 1 is open.

Source: AMQP 0-9-1 section 2.2.4 (the handshake).
"""

from __future__ import annotations

import socket
import ssl
from typing import Final, TypeVar

from leveret.cli import exits
from leveret.cli.connecting import no_tls
from leveret.cli.contexts.trust import amqp_tls
from leveret.client.uri import Parameters
from leveret.errors import AmqpError, SyntaxFault, error_for
from leveret.wire.buffer import BytesWriter
from leveret.wire.frames import FRAME_METHOD, PROTOCOL_HEADER, FrameReader, write_method
from leveret.wire.method import Method
from leveret.wire.methods.channel import ChannelClose, ChannelOpen, ChannelOpenOk
from leveret.wire.methods.connection import (
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)
from leveret.wire.methods.decode import decode_method

#: The time limit for each reply in the handshake, to a declaration and to the close.
REPLY_SECONDS_MAX: Final = 30.0

#: The size of one read; by default, the kernel returns less at once.
READ_BYTES: Final = 262_144

#: The channel that a load uses.
CHANNEL: Final = 1

M = TypeVar("M", bound=Method)


def frames_of(*methods: Method, channel: int = CHANNEL) -> bytes:
    """Return the frames of methods."""
    writer = BytesWriter()
    for method in methods:
        write_method(writer, channel, method)
    return writer.getvalue()


def error_in(method: Method) -> AmqpError | None:
    """Return the error in a close method, or None for any other method."""
    if isinstance(method, (ConnectionClose, ChannelClose)):
        soft = isinstance(method, ChannelClose)
        return error_for(method.reply_code, method.reply_text, soft)
    return None


def _secured(sock: socket.socket, parameters: Parameters) -> ssl.SSLSocket:
    """Return the socket after the TLS handshake, with a verified certificate.  Raises: Failure."""
    try:
        context = amqp_tls(parameters)
        assert context is not None
        return context.wrap_socket(sock, server_hostname=parameters.host)
    except ssl.SSLError as error:
        raise no_tls(error, parameters) from None
    except OSError as error:
        text = f"no TLS with {parameters.host}:{parameters.port}: {error}"
        raise exits.Failure(text, exits.UNAVAILABLE) from None


class PerfConnection:
    """A connection with an open channel; after the handshake the caller uses `sock`.

    Only one thread may use it, because a TLS socket requires this.
    """

    def __init__(self, parameters: Parameters) -> None:
        """Connect and log in.  Raises: Failure."""
        self.sock = self._connect(parameters)
        self._reader = FrameReader()
        self.server_properties: dict[str, object] = {}
        self.frame_max = 0
        try:
            self._handshake(parameters)
            self.call(ChannelOpen(), ChannelOpenOk)
        except BaseException:
            self.sock.close()
            raise

    def _connect(self, parameters: Parameters) -> socket.socket:
        where = (parameters.host, parameters.port)
        try:
            sock = socket.create_connection(where, parameters.connection_timeout_ms / 1000)
        except OSError as error:
            text = f"cannot connect to {parameters.host}:{parameters.port}: "
            text += exits.reason_of(error)
            hint = "is a broker running there? -U names another one"
            raise exits.Failure(text, exits.UNAVAILABLE, hint=hint) from None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if parameters.tls:
                sock = _secured(sock, parameters)
            sock.settimeout(REPLY_SECONDS_MAX)
        except BaseException:
            sock.close()
            raise
        return sock

    def _handshake(self, parameters: Parameters) -> None:
        self.send(PROTOCOL_HEADER)
        start = self._receive(ConnectionStart)
        self.server_properties = start.server_properties
        secret = f"\0{parameters.username}\0{parameters.password}".encode()
        login = ConnectionStartOk(
            client_properties={"product": "leveret perf"},
            mechanism="PLAIN",
            response=secret,
            locale="en_US",
        )
        self.send(frames_of(login, channel=0))
        tune = self._receive(ConnectionTune)
        self.frame_max = tune.frame_max
        self._reader.frame_max = tune.frame_max
        # Without heartbeats: a load does not send them, and notices a dead broker anyway.
        agreed = ConnectionTuneOk(channel_max=tune.channel_max, frame_max=tune.frame_max)
        opening = ConnectionOpen(virtual_host=parameters.vhost)
        self.send(frames_of(agreed, opening, channel=0))
        self._receive(ConnectionOpenOk)

    def call(self, method: Method, reply: type[M]) -> M:
        """Send a method and return its reply.  Raises: Failure."""
        self.send(frames_of(method))
        return self._receive(reply)

    def send(self, data: bytes) -> None:
        """Send bytes.  Raises: Failure."""
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise exits.Failure(f"the connection failed: {error}", exits.UNAVAILABLE) from None

    def _receive(self, kind: type[M]) -> M:
        """Return the next method, which must be of `kind`.  Raises: Failure."""
        try:
            while not self._reader.next():
                piece = self.sock.recv(READ_BYTES)
                if not piece:
                    raise exits.Failure("the broker closed the socket", exits.UNAVAILABLE)
                self._reader.feed(piece)
            reader = self._reader
            if reader.kind != FRAME_METHOD:
                return self._receive(kind)
            method = decode_method(reader.data, reader.start, reader.end)
        except OSError as error:
            raise exits.Failure(f"no answer: {error}", exits.UNAVAILABLE) from None
        except AmqpError as error:
            raise exits.Failure(f"not an AMQP broker: {error}", exits.PROTOCOL) from None
        if isinstance(method, kind):
            return method
        raise exits.refused(error_in(method) or SyntaxFault(f"unexpected {method.NAME}"))

    def close(self) -> None:
        """Close the connection and the socket.  Raises: Failure."""
        try:
            self.send(frames_of(ConnectionClose(reply_code=200, reply_text="bye"), channel=0))
            self._receive(ConnectionCloseOk)
        finally:
            self.sock.close()
