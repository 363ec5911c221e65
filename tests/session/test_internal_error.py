"""A bug ends one connection, with 541, and not the broker (AMQP 0-9-1 section 1.2)."""

from __future__ import annotations

from core import Node
from leveret.session.settings import Tokens
from raw_codec import method, publish


class BrokenTokens(Tokens):
    """Stands for any bug below the session."""

    def token(self) -> str:
        raise ZeroDivisionError("no tokens left")


def test_a_bug_ends_one_connection(node: Node) -> None:
    peer, neighbour = node.connect(), node.connect()
    peer.call(1, "queue.declare", queue="q")
    peer.send(publish(1, "", "q", b"kept"))
    peer.call_get("q")
    peer.connection.tokens = BrokenTokens()
    peer.send(method(1, "queue.declare", queue=""), publish(1, "", "q", b"dropped"))
    closed = peer.expect(0, "connection.close")
    assert closed.code == 541
    # The client is told nothing of the inside; the log is.
    assert closed.text == "INTERNAL_ERROR - the broker's log says more"
    assert ("error", "internal error: ZeroDivisionError('no tokens left')") in peer.connection.log
    assert neighbour.call_get("q").body == b"kept"
