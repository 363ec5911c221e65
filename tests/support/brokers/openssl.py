"""A TLS client with full control over its records, made with OpenSSL itself.

Python's `ssl` cannot send a KeyUpdate.
The client has no socket: `give` returns bytes to send, `take` takes received bytes.
"""

from __future__ import annotations

import ctypes
import socket
from collections.abc import Callable
from functools import cache
from typing import Any, Final

#: The bytes read from a BIO at once.
_BYTES: Final = 65_536

_POINTER: Final = ctypes.c_void_p


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    """Return the OpenSSL functions used here, by name."""
    number, text = ctypes.c_int, ctypes.c_char_p
    shapes: dict[str, tuple[Any, list[Any]]] = {
        "TLS_client_method": (_POINTER, []),
        "SSL_CTX_new": (_POINTER, [_POINTER]),
        "SSL_CTX_free": (None, [_POINTER]),
        "SSL_new": (_POINTER, [_POINTER]),
        "SSL_free": (None, [_POINTER]),
        "SSL_set_bio": (None, [_POINTER, _POINTER, _POINTER]),
        "SSL_set_connect_state": (None, [_POINTER]),
        "SSL_do_handshake": (number, [_POINTER]),
        "SSL_key_update": (number, [_POINTER, number]),
        "SSL_write": (number, [_POINTER, text, number]),
        "BIO_new": (_POINTER, [_POINTER]),
        "BIO_s_mem": (_POINTER, []),
        "BIO_read": (number, [_POINTER, text, number]),
        "BIO_write": (number, [_POINTER, text, number]),
    }
    libraries = {"SSL": ctypes.CDLL("libssl.so.3"), "TLS": ctypes.CDLL("libssl.so.3")}
    crypto = ctypes.CDLL("libcrypto.so.3")
    found = {}
    for name, (result, arguments) in shapes.items():
        found[name] = function = getattr(libraries.get(name[:3], crypto), name)
        function.restype, function.argtypes = result, arguments
    return found


def _call(name: str, *arguments: Any) -> Any:
    return _functions()[name](*arguments)


class TlsClient:
    """One TLS 1.3 connection that trusts every certificate."""

    def __init__(self) -> None:
        self._context = _call("SSL_CTX_new", _call("TLS_client_method"))
        self._ssl = _call("SSL_new", self._context)
        self._input = _call("BIO_new", _call("BIO_s_mem"))
        self._output = _call("BIO_new", _call("BIO_s_mem"))
        _call("SSL_set_bio", self._ssl, self._input, self._output)
        _call("SSL_set_connect_state", self._ssl)

    def close(self) -> None:
        """Free the memory of OpenSSL."""
        _call("SSL_free", self._ssl)
        _call("SSL_CTX_free", self._context)

    def take(self, data: bytes) -> None:
        """Take received bytes."""
        _call("BIO_write", self._input, data, len(data))

    def give(self) -> bytes:
        """Return the bytes to send."""
        parts = []
        buffer = ctypes.create_string_buffer(_BYTES)
        while (size := _call("BIO_read", self._output, buffer, _BYTES)) > 0:
            parts.append(buffer.raw[:size])
        return b"".join(parts)

    def shake_hands(self) -> bool:
        """Continue the handshake; return whether it is done."""
        return bool(_call("SSL_do_handshake", self._ssl) == 1)

    def updates(self, count: int, asks: bool = True) -> bytes:
        """Return `count` KeyUpdates, each of which requests one from the server."""
        for _ in range(count):
            _call("SSL_key_update", self._ssl, int(asks))
            _call("SSL_do_handshake", self._ssl)
        return self.give()

    def content(self, *parts: bytes) -> bytes:
        """Return a record for each of the parts."""
        for part in parts:
            assert _call("SSL_write", self._ssl, part, len(part)) == len(part)
        return self.give()

    def connect(self, port: int, seconds: float) -> socket.socket:
        """Return a socket to a port of this machine, after the handshake."""
        sock = socket.create_connection(("127.0.0.1", port), seconds)
        while not self.shake_hands():
            sock.sendall(self.give())
            self.take(sock.recv(_BYTES))
        sock.sendall(self.give())
        return sock
