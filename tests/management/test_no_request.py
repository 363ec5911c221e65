"""What is no request of HTTP is answered as any other mistake is, on TCP and the Unix socket."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from leveret.management import unix_socket
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import read_all
from support.http.http_streams import http_port


def answered(sock: socket.socket, data: bytes) -> tuple[bytes, Any]:
    """Return the head of an answer, and its JSON."""
    with sock:
        sock.sendall(data)
        head, _, body = read_all(sock).partition(b"\r\n\r\n")
    return head, json.loads(body)


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\nno header\r\n\r\n", b"no request\r\n\r\n"])
def test_it_is_answered_by_json(broker: BrokerProcess, data: bytes) -> None:
    operators = unix_socket.connect(broker.data_dir / "management.sock", 60)
    users = socket.create_connection(("127.0.0.1", http_port(broker)), 60)
    for head, body in [answered(sock, data) for sock in (operators, users)]:
        assert head.startswith(b"HTTP/1.0 400 ")
        lines = head.split(b"\r\n")
        assert b"Content-Type: application/json" in lines
        assert b"Server: Leveret" in lines
        assert body["error"] == "bad_request"
        assert body["reason"]
