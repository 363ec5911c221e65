"""The embedded broker: its life, its data, several at once, and what is left of it: nothing."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aio_pika
import aiormq
import pika
import psutil
import pytest
import structlog
import uvloop

from leveret.app.embedded import EmbeddedParts, embedded_settings
from leveret.app.listeners import CannotListen
from leveret.app.node import RunningBroker
from leveret.config import ConfigError
from leveret.testing import Broker, NotRunning
from leveret.testing.thread import BrokerThread
from support.wire.hare import HareClient


def put(url: str, body: bytes, queue: str = "q") -> None:
    """Publish a persistent message to a durable queue, and wait for its confirm."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.confirm_delivery()
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))


def taken(url: str, queue: str = "q") -> bytes | None:
    """Take a message from a queue, None where it is empty."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        _, _, body = connection.channel().basic_get(queue, auto_ack=True)
        return body  # type: ignore[no-any-return]  # pika has no types


def left_over() -> list[object]:
    """Return what is left of brokers that were stopped."""
    gc.collect()
    return [
        each for each in gc.get_objects() if issubclass(type(each), RunningBroker | EmbeddedParts)
    ]


def refused(broker: Broker) -> bool:
    """Tell whether nobody listens where the broker did."""
    try:
        socket.create_connection((broker.host, broker.port)).close()
    except ConnectionRefusedError:
        return True
    return False


# -- life ------------------------------------------------------------------------------------------


def test_a_client_talks_to_it_on_its_own_port() -> None:
    with Broker() as broker:
        assert broker.is_running
        assert broker.host == "127.0.0.1"
        assert f"127.0.0.1:{broker.port}/%2F" in broker.url
        put(broker.url, b"hello")
        assert taken(broker.url) == b"hello"
    assert not broker.is_running


def test_it_starts_again_with_nothing_after_a_stop() -> None:
    broker = Broker()
    for _ in range(2):
        with broker:
            put(broker.url, b"one")
            assert taken(broker.url) == b"one"
            assert taken(broker.url) is None


def test_it_may_be_used_in_an_asyncio_program() -> None:
    async def use() -> bytes:
        async with Broker() as broker, await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), "q")
            message = await queue.get(no_ack=True)
            return message.body

    assert asyncio.run(use()) == b"hello"


def test_a_stop_tells_clients_of_the_same_loop_and_waits_for_none() -> None:
    """A client that is cut off would not know the reason."""

    async def use() -> BaseException | None:
        closed = asyncio.get_running_loop().create_future()
        async with Broker() as broker:
            connection = await aio_pika.connect(broker.url)
            connection.close_callbacks.add(lambda _, error: closed.set_result(error))
        error: BaseException | None = await closed
        return error

    error = asyncio.run(use())
    assert isinstance(error, aiormq.exceptions.ConnectionClosed)
    assert "shutdown" in str(error)


def test_settings_are_keyword_arguments_and_the_environment_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LEVERET_PORT", "1")
    monkeypatch.setenv("LEVERET_CONFIG_FILE", "/nowhere")
    with Broker(default_user="me", default_pass="p/w", default_vhost="a b") as broker:
        assert broker.url == f"amqp://me:p%2Fw@127.0.0.1:{broker.port}/a%20b"
        put(broker.url, b"hello")
    with pytest.raises(ConfigError, match=r"prot: unknown setting; did you mean port\?"):
        Broker(prot=1)
    with pytest.raises(ConfigError, match=r"port: .*less than or equal.*\(keyword argument\)"):
        Broker(port=65_536)


def test_http_has_a_port_of_its_own() -> None:
    with Broker(http=True) as broker:
        login = base64.b64encode(b"guest:guest").decode()
        asked = urllib.request.Request(  # noqa: S310 (it is http)
            f"{broker.http_url}/api/streams/%2F", headers={"Authorization": f"Basic {login}"}
        )
        with urllib.request.urlopen(asked) as answer:  # noqa: S310 (it is http)
            assert json.load(answer) == []
    assert left_over() == []
    with Broker() as quiet, pytest.raises(NotRunning, match=r"Broker\(http=True\)"):
        assert quiet.http_url


def test_its_text_says_where_it_is() -> None:
    broker = Broker()
    assert repr(broker) == "<Broker not running>"
    with broker:
        assert repr(broker) == f"<Broker at 127.0.0.1:{broker.port}>"


def test_a_port_that_is_taken_is_said_and_leaves_nothing() -> None:
    with Broker() as first:
        threads = threading.active_count()
        second = Broker(port=first.port)
        with pytest.raises(Exception, match=f"cannot listen for AMQP on 127.0.0.1:{first.port}"):
            second.start()
        assert threading.active_count() == threads
        assert not second.is_running


def test_an_address_that_is_not_this_machines_is_said_and_leaves_nothing() -> None:
    before = set(Path(tempfile.gettempdir()).glob("leveret-*"))
    broker = Broker(host="192.0.2.1", temporary_dir=True)
    with pytest.raises(CannotListen, match=r"cannot listen for AMQP on 192\.0\.2\.1: "):
        broker.start()
    assert set(Path(tempfile.gettempdir()).glob("leveret-*")) <= before
    assert not broker.is_running


def test_a_stop_that_fails_leaves_no_thread() -> None:
    before = threading.active_count()
    parts = EmbeddedParts(embedded_settings({}), in_memory=True)
    thread = BrokerThread(parts)
    thread.start()
    thread.ready.result()
    # No time that far away can be written down, so that the mark of the stop cannot be.
    parts.movable_clock.move(10**20)
    thread.request_end(kill=False)
    thread.join()
    assert thread.failure is not None
    assert threading.active_count() == before


def test_what_is_not_running_says_so() -> None:
    broker = Broker()
    for call in (broker.kill, broker.block, broker.drop_connections, lambda: broker.url):
        with pytest.raises(NotRunning, match=r"the broker (is not running|was not started)"):
            call()
    with broker:
        pass
    broker.stop()
    with pytest.raises(NotRunning):
        broker.unblock()


# -- data ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temporary_dir", [False, True])
def test_a_restart_and_a_kill_keep_what_was_confirmed(temporary_dir: bool) -> None:
    with Broker(temporary_dir=temporary_dir) as broker:
        port = broker.port
        put(broker.url, b"first")
        broker.restart()
        assert broker.port == port
        put(broker.url, b"second")
        broker.kill()
        assert refused(broker)
        broker.restart()
        assert broker.port == port
        assert [taken(broker.url), taken(broker.url)] == [b"first", b"second"]


def test_a_kill_ends_the_listener_for_haremq_too() -> None:
    with socket.socket() as place:
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(("127.0.0.1", 0))
        port = place.getsockname()[1]
        with Broker(haremq_port=port) as broker:
            for _ in range(2):
                with HareClient(port) as client:
                    assert client.open()
                broker.kill()
                with pytest.raises(ConnectionRefusedError):
                    HareClient(port)
                broker.restart()


def test_a_directory_stays_where_it_was_named(tmp_path: Path) -> None:
    for expected in (b"kept", None):
        with Broker(data_dir=tmp_path / "data") as broker:
            if expected is not None:
                put(broker.url, expected)
            else:
                assert taken(broker.url) == b"kept"


def test_a_temporary_directory_goes_with_the_broker() -> None:
    with Broker(temporary_dir=True) as broker:
        files = [Path(file.path) for file in psutil.Process().open_files()]
        parents = {parent for file in files for parent in file.parents}
        [folder] = [parent for parent in parents if parent.name.startswith("leveret-")]
        assert folder.exists()
        broker.restart()
        assert folder.exists()
    assert not folder.exists()


def test_memory_needs_no_file() -> None:
    before = set(psutil.Process().open_files())
    with Broker() as broker:
        put(broker.url, b"x" * 100_000)
        assert set(psutil.Process().open_files()) == before


# -- several, and what is left ---------------------------------------------------------------------


def test_eight_at_once_know_nothing_of_each_other() -> None:
    def use(number: int) -> tuple[int, bytes | None]:
        with Broker() as broker:
            put(broker.url, b"%d" % number)
            together.wait()
            return broker.port, taken(broker.url)

    together = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(use, range(8)))
    assert len({port for port, _ in found}) == 8
    assert [body for _, body in found] == [b"%d" % number for number in range(8)]


def process_wide() -> dict[str, object]:
    """Return what a broker could change in its process."""
    mask = os.umask(0o022)
    os.umask(mask)
    return {
        "gc": (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()),
        "switch interval": sys.getswitchinterval(),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "umask": mask,
        "policy": asyncio.get_event_loop_policy(),
        "environment": dict(os.environ),
        "streams": (sys.stdout, sys.stderr),
        "structlog": structlog.is_configured(),
        "limit of descriptors": resource.getrlimit(resource.RLIMIT_NOFILE),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "root log": (logging.root.level, list(logging.root.handlers)),
    }


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    """No object that the collector passes over; what it passed over before, it does again.

    Such objects die one after the other too, and would change their number.
    """
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_nothing_of_the_process_is_changed() -> None:
    Broker().start().stop()
    before = process_wide()
    with Broker() as broker:
        put(broker.url, b"hello")
        assert process_wide() == before
    assert process_wide() == before


def test_fifty_starts_and_stops_leave_no_thread_no_descriptor_and_no_megabyte() -> None:
    def life() -> None:
        with Broker() as broker:
            put(broker.url, b"x" * 1000)

    process = psutil.Process()
    for _ in range(5):
        life()
    gc.collect()
    threads, descriptors, size = process.num_threads(), process.num_fds(), process.memory_info().rss
    for _ in range(50):
        life()
    gc.collect()
    # The system may still be ending some that Python has joined; one left by each life would be 50.
    assert process.num_threads() < threads + 25
    assert process.num_fds() <= descriptors
    assert process.memory_info().rss - size < 8 * 1024 * 1024
    assert [thread for thread in threading.enumerate() if "leveret" in thread.name] == []
    assert left_over() == []


def test_an_error_in_the_block_ends_the_broker_too() -> None:
    broker = Broker()

    def interrupted() -> None:
        with broker, socket.create_connection((broker.host, broker.port)):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not broker.is_running


# -- forks -----------------------------------------------------------------------------------------


def in_child(work: Callable[[], None]) -> int:
    """Do `work` in a child that was forked; return its exit code: 0, or 1 where it raised."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def test_a_forked_child_may_connect_and_leaves_the_broker_alone() -> None:
    with Broker() as broker:

        def work() -> None:
            put(broker.url, b"from the child")
            with pytest.raises(NotRunning, match="a fork of it"):
                broker.block()
            broker.stop()

        assert in_child(work) == 0
        assert taken(broker.url) == b"from the child"


def test_a_child_that_lives_on_keeps_no_socket_of_the_broker_open() -> None:
    reading, writing = os.pipe()
    with Broker() as broker:
        client = socket.create_connection((broker.host, broker.port))
        client.sendall(b"AMQP\x00\x00\x09\x01")
        assert client.recv(1) == b"\x01"
        pid = os.fork()
        if pid == 0:
            # Until the parent lets go of its end.
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
        try:
            broker.kill()
            while client.recv(4096):
                pass
            assert refused(broker)
        finally:
            os.close(writing)
            os.close(reading)
            os.waitpid(pid, 0)
            client.close()


# -- other loops -----------------------------------------------------------------------------------


def test_a_program_on_uvloop_has_a_broker_too() -> None:
    async def use() -> bytes:
        async with Broker() as broker, await aio_pika.connect(broker.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q")
            await channel.default_exchange.publish(aio_pika.Message(b"hello"), "q")
            message = await queue.get(no_ack=True)
            return message.body

    assert uvloop.run(use()) == b"hello"


def test_a_start_that_is_cancelled_leaves_nothing() -> None:
    async def use() -> Broker:
        broker = Broker()
        entering = asyncio.create_task(broker.__aenter__())
        await asyncio.sleep(0)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        return broker

    before = threading.active_count()
    broker = asyncio.run(use())
    assert not broker.is_running
    assert threading.active_count() == before
