"""`leveret ping`: a broker that answers, and all that does not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leveret.cli import exits
from leveret.cli.ping import ping
from leveret.management import unix_socket
from support.brokers.broker_process import BrokerProcess

#: So long is waited for what must come, and so long for what must not.
LONG, SHORT = 60.0, 0.05


@contextmanager
def who_answers(answer: bytes) -> Iterator[str]:
    """Give the URI of a peer that answers whatever comes with some bytes, and says no more."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(100)
                peer.sendall(answer)
                # Until the other side closes.
                peer.recv(100)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"amqp://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_broker_answers_who_does_not_log_in(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ping(LONG, f"amqp://nobody:wrong@127.0.0.1:{broker.port}/none") == exits.OK
    assert capsys.readouterr().out.startswith(f"127.0.0.1:{broker.port} answers after ")


def test_a_broker_is_asked_on_its_socket_where_its_directory_is_named(
    broker: BrokerProcess, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    socket_path = broker.data_dir / "management.sock"
    assert ping(LONG, data_dir=broker.data_dir) == exits.OK
    assert capsys.readouterr().out.startswith(f"{socket_path} answers after ")
    monkeypatch.setenv("LEVERET_DATA_DIR", str(broker.data_dir))
    assert ping(LONG) == exits.OK
    assert str(socket_path) in capsys.readouterr().out
    monkeypatch.delenv("LEVERET_DATA_DIR")
    monkeypatch.chdir(broker.data_dir.parent)
    Path("leveret-data").symlink_to(broker.data_dir)
    assert ping(LONG) == exits.OK
    assert "management.sock" in capsys.readouterr().out


def test_what_listens_at_the_socket_is_asked_whether_it_is_a_broker(tmp_path: Path) -> None:
    path = tmp_path / "management.sock"
    with unix_socket.listen(path) as server:
        server.setblocking(True)

        def serve() -> None:
            for answer in (b"", b"HTTP/1.1 404 Not Found\r\n"):
                peer, _ = server.accept()
                with peer:
                    peer.recv(100)
                    peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        for code, said in ((exits.UNAVAILABLE, "closed"), (exits.PROTOCOL, "not a broker")):
            with pytest.raises(exits.Failure, match=said) as failure:
                ping(LONG, data_dir=tmp_path)
            assert failure.value.code == code
        thread.join()


def test_nobody_who_listens_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(exits.Failure, match=r"does not answer: .*refused") as failure:
        ping(LONG, f"amqp://127.0.0.1:{port}")
    assert failure.value.code == exits.UNAVAILABLE


def test_a_peer_that_says_nothing_is_waited_for_so_long() -> None:
    with (
        who_answers(b"") as uri,
        pytest.raises(exits.Failure, match=r"within 0\.05 s") as failure,
    ):
        ping(SHORT, uri)
    assert failure.value.code == exits.UNAVAILABLE


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n", b"AMQP\x00\x01\x00\x00 1.0"])
def test_what_speaks_another_protocol_is_no_broker(answer: bytes) -> None:
    with (
        who_answers(answer) as uri,
        pytest.raises(exits.Failure, match="not an AMQP 0-9-1") as failure,
    ):
        ping(LONG, uri)
    assert failure.value.code == exits.PROTOCOL


@pytest.mark.parametrize("seconds", [0.0, -1.0, 1e40, float("inf"), float("nan")])
def test_a_time_that_cannot_be_waited_for_is_refused(seconds: float) -> None:
    with pytest.raises(exits.Failure, match="--timeout") as failure:
        ping(seconds, "amqp://127.0.0.1")
    assert failure.value.code == exits.USAGE
