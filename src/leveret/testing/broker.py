"""The embedded broker: a real one, in a thread of the process that tests something with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import socket
import tempfile
import urllib.parse
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self, TypeVar

from leveret.app.embedded import EmbeddedParts, Handles, embedded_settings
from leveret.app.listeners import CannotListen
from leveret.client import asynchronous, blocking
from leveret.testing.thread import BrokerThread, Ended

T = TypeVar("T")

#: How far the clock moves on at once: the times that a broker writes down have an end.
ADVANCE_SECONDS_MAX: Final = 100 * 366 * 24 * 3600


class NotRunning(RuntimeError):
    """The broker was not started, or has been stopped or killed."""


class BrokerFailed(RuntimeError):
    """The broker ended by itself; the cause is why."""


class Broker:
    """A broker for tests: `with Broker() as broker`, or `async with` in an asyncio program.

    It listens on a free port of `127.0.0.1` and keeps its data in memory; with `temporary_dir` in a
    directory that goes with it, with `data_dir` in one that stays.  Every setting of the broker may
    be named as a keyword argument; what the environment and settings files say does not count.

    All methods may be called by any thread, also while clients wait for the broker.  A process that
    was forked has no broker, and may only leave the `with` block.

    Raises: ConfigError: a setting that there is not, or whose value does not fit.
    """

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        temporary_dir: bool = False,
        **settings: object,
    ) -> None:
        if data_dir is not None and temporary_dir:
            raise ValueError("data_dir and temporary_dir exclude each other")
        self._wants_directory = temporary_dir
        self._given = dict(settings)
        if data_dir is not None:
            self._given["data_dir"] = Path(data_dir)
        self._settings = embedded_settings(self._given)
        self._in_memory = data_dir is None and not temporary_dir
        self._parts: EmbeddedParts | None = None
        self._thread: BrokerThread | None = None
        self._pid = os.getpid()
        #: Holds the port while the broker is down.
        self._place: socket.socket | None = None
        self._remove_directory: Callable[[], object] | None = None

    def __repr__(self) -> str:
        where = f"at {self.host}:{self.port}" if self.is_running else "that does not run"
        return f"<{type(self).__name__} {where}>"

    # -- life --------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, or start again on what is left after `kill`; return when clients may connect.

        Raises: what hinders the broker, such as CannotListen.
        """
        thread = self._begin()
        if thread is not None:
            try:
                thread.ready.result()
            except BaseException:
                self._abandon(thread)
                raise
        return self

    def stop(self) -> None:
        """Stop in order, and leave nothing behind; a broker that does not run stays so."""
        self._end(kill=False)
        self._clean()

    def kill(self) -> None:
        """End as a process does by SIGKILL: clients are cut off, and nothing more is written.

        `start` or `restart` brings the broker back at the same port, with what was confirmed.
        """
        self._check_running()
        self._end(kill=True)

    def restart(self) -> None:
        """Stop in order, if the broker runs, and start again at the same port on the same data."""
        self._check_process()
        self._end(kill=False)
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        thread = self._begin()
        if thread is not None:
            try:
                await asyncio.shield(asyncio.wrap_future(thread.ready))
            except BaseException:
                self._abandon(thread)
                raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Clients in this loop are to hear that their connections are closed.
        try:
            thread = self._thread
            if thread is not None and self._pid == os.getpid():
                self._heal_disk()
                thread.request_end(kill=False)
                await asyncio.shield(asyncio.wrap_future(thread.ended))
        finally:
            self.stop()

    def _begin(self) -> BrokerThread | None:
        """Return the thread of a broker that starts; None where one runs."""
        self._check_process()
        if self.is_running:
            return None
        self._thread = None
        if self._parts is None:
            try:
                self._prepare()
            except BaseException:
                self._clean()
                raise
        assert self._parts is not None
        thread = self._thread = BrokerThread(self._parts)
        thread.start()
        return thread

    def _prepare(self) -> None:
        """Take a port, and a directory where one is wanted, for as long as this broker is used."""
        if self._wants_directory:
            path = tempfile.mkdtemp(prefix="leveret-")
            self._remove_directory = weakref.finalize(self, shutil.rmtree, path, ignore_errors=True)
            self._given["data_dir"] = Path(path)
            self._settings = embedded_settings(self._given)
        if self._settings.port == 0:
            self._place = _take_port(self._settings.host)
            self._given["port"] = self._place.getsockname()[1]
            self._settings = embedded_settings(self._given)
        self._parts = EmbeddedParts(self._settings, self._in_memory)

    def _abandon(self, thread: BrokerThread) -> None:
        """Let go of everything because a start did not come to its end."""
        thread.request_end(kill=True)
        if not thread.ready.done():
            with contextlib.suppress(BaseException):
                thread.ready.result()
            thread.request_end(kill=True)
        thread.join()
        self._clean()

    def _end(self, *, kill: bool) -> None:
        """End the broker's thread, if there is one."""
        thread = self._thread
        if thread is None or self._pid != os.getpid():
            return
        if not kill:
            self._heal_disk()
        thread.request_end(kill)
        thread.join()
        self._thread = None

    def _heal_disk(self) -> None:
        """Let a broker on a full disk write what it has to write before it stops."""
        if self._parts is not None and self._parts.fillable is not None:
            self._parts.fillable.full = False

    def _clean(self) -> None:
        """Let go of the port, and of a temporary directory."""
        if self._pid != os.getpid():
            return
        self._thread = None
        if self._place is not None:
            self._place.close()
            self._place = None
            self._given["port"] = 0
            self._settings = embedded_settings(self._given)
        if self._remove_directory is not None:
            self._remove_directory()
            self._remove_directory = None
        self._parts = None

    # -- where it is -------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the broker takes connections."""
        thread = self._thread
        return thread is not None and thread.is_alive and thread.failure is None

    @property
    def host(self) -> str:
        """The address that the broker listens on."""
        return self._settings.host

    @property
    def port(self) -> int:
        """The port that the broker listens on, from its first start to its stop.

        Raises: NotRunning.
        """
        if self._parts is None:
            raise NotRunning("the broker was not started")
        return self._settings.port

    @property
    def tls_port(self) -> int:
        """The port of AMQP over TLS, with the setting `tls_certificate`.  Raises: NotRunning."""
        port = self._call(lambda handles: handles.tls_port())
        if port == 0:
            raise NotRunning("the broker has no TLS; make it by Broker(tls_certificate=...)")
        return port

    @property
    def url(self) -> str:
        """The URL of the default vhost, with user and password, as all AMQP clients take it."""
        return self.url_of(self._settings.default_vhost)

    def url_of(self, vhost: str) -> str:
        """Return the URL of a vhost."""
        settings = self._settings
        user = urllib.parse.quote(settings.default_user, safe="")
        password = urllib.parse.quote(settings.default_pass.get_secret_value(), safe="")
        host = f"[{self.host}]" if ":" in self.host else self.host
        place = urllib.parse.quote(vhost, safe="")
        return f"amqp://{user}:{password}@{host}:{self.port}/{place}"

    @property
    def http_url(self) -> str:
        """Where streams are served over HTTP, with the setting `http`.  Raises: NotRunning."""
        port = self._call(lambda handles: handles.http_port())
        if port == 0:
            raise NotRunning("the broker does not listen for HTTP; make it by Broker(http=True)")
        return f"http://{self._settings.http_host}:{port}"

    # -- vhosts ------------------------------------------------------------------------------------

    def add_vhost(self, name: str = "") -> VirtualHost:
        """Add a vhost that the default user may do everything in; return it.

        Without a name it gets one that is new.
        """
        chosen = name or f"test-{secrets.token_hex(6)}"
        self._call(lambda handles: handles.add_vhost(chosen))
        return VirtualHost(self, chosen)

    def delete_vhost(self, name: str) -> None:
        """Delete a vhost with all that is in it; its connections are closed.

        Raises: NotFound (404).
        """
        self._call(lambda handles: handles.delete_vhost(name))

    # -- faults ------------------------------------------------------------------------------------

    def connections(self) -> int:
        """Return how many clients are connected."""
        return self._call(lambda handles: handles.connections())

    def drop_connections(self) -> int:
        """Cut all clients off, as a network does that fails; return how many there were."""
        return self._call(lambda handles: handles.drop_connections())

    @contextlib.contextmanager
    def _undone(self, undo: Callable[[], None]) -> Iterator[None]:
        try:
            yield
        finally:
            if self.is_running:
                undo()

    def block(self) -> contextlib.AbstractContextManager[None]:
        """Block publishers (`connection.blocked`), as a broker does whose memory is short.

        It holds until `unblock`, or to the end of the block of `with broker.block()`.
        """
        self._call(lambda handles: handles.block(True))
        return self._undone(self.unblock)

    def unblock(self) -> None:
        """Let publishers go on (`connection.unblocked`)."""
        self._call(lambda handles: handles.block(False))

    def fill_disk(self) -> contextlib.AbstractContextManager[None]:
        """Have the disk be full: publishers are blocked, and nothing is confirmed.

        It holds until `free_disk`, or to the end of the block of `with broker.fill_disk()`.
        """
        self._call(lambda handles: handles.fill_disk(True))
        return self._undone(self.free_disk)

    def free_disk(self) -> None:
        """Give the disk room again: the broker writes and confirms what waits."""
        self._call(lambda handles: handles.fill_disk(False))

    def delay(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Have everything that clients send arrive so much later, until `delay(0)`.

        It ends too with the block of `with broker.delay(seconds)`.
        """
        if not seconds >= 0:
            raise ValueError(f"what was sent cannot arrive before, or never be due: {seconds} s")
        self._call(lambda handles: handles.delay(seconds))
        return self._undone(lambda: self._call(lambda handles: handles.delay(0)))

    def nack_next(self, count: int = 1) -> None:
        """Refuse the next publishes on channels with confirms by `basic.nack`; 0 refuses none."""
        self._call(lambda handles: handles.nack_next(count))

    def refuse_next(
        self,
        method: str = "connection",
        count: int = 1,
        *,
        code: int = 403,
        text: str = "refused because the test asked for it",
    ) -> None:
        """Refuse the next connections, or the next methods of a kind; 0 refuses none.

        `method` is `connection`: the socket is closed before the broker says a word; `login`: the
        password is refused; or a method by its name in AMQP, such as `queue.declare` or
        `basic.publish`: the broker closes the channel with `code` and `text`, or the connection if
        the method belongs to that.

        Raises: ValueError: there is no such method, or it cannot be refused by such a code.
        """
        if method == "connection":
            self._call(lambda handles: handles.reset_next(count))
            return
        name = "connection.start-ok" if method == "login" else method
        self._call(lambda handles: handles.refuse_next(name, count, code, text))

    def advance(self, seconds: float, *, heartbeats: bool = True) -> None:
        """Move the broker's clock on, and return when all that is due by then has been done.

        The TTL of messages and queues, delays, retries and leases follow, and so do heartbeats: to
        a connection that negotiated some, all that time is silence of its client.  It is not with
        `heartbeats=False`, as if the clients had sent theirs.

        Raises: ValueError: the time is negative, or more than a hundred years.
        """
        if seconds < 0:
            raise ValueError("time does not go back")
        if not seconds <= ADVANCE_SECONDS_MAX:
            raise ValueError(f"time moves on by a hundred years at most, not by {seconds} s")
        self._call(lambda handles: handles.advance(seconds, heartbeats))

    def heal(self) -> None:
        """Undo all faults: blocks, delays, a full disk, and what is still to be refused."""
        self._call(lambda handles: handles.heal())

    # -- checks ------------------------------------------------------------------------------------

    def _call(self, work: Callable[[Handles], Awaitable[T]]) -> T:
        """Have the broker do something.  Raises: NotRunning, BrokerFailed."""
        thread = self._check_running()
        try:
            return thread.call(work)
        except Ended as ended:
            if ended.__cause__ is not None:
                raise BrokerFailed(f"the broker failed: {ended.__cause__}") from ended.__cause__
            raise NotRunning("the broker was stopped meanwhile") from None

    def _check_running(self) -> BrokerThread:
        self._check_process()
        thread = self._thread
        if thread is None:
            raise NotRunning("the broker does not run; start() or restart() starts it")
        if thread.failure is not None:
            raise BrokerFailed(f"the broker failed: {thread.failure}") from thread.failure
        return thread

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            text = f"this broker runs in process {self._pid}, and this is a fork of it"
            raise NotRunning(f"{text}; connect to its url, or make another Broker here")


class VirtualHost:
    """A vhost by its name; `broker` has the faults."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.name = name

    @property
    def url(self) -> str:
        """The URL of the vhost, as all AMQP clients take it."""
        return self.broker.url_of(self.name)

    def connect(self) -> blocking.Connection:
        """Return a new connection of the blocking client, without heartbeats."""
        return blocking.connect(self.url, heartbeat=0)

    async def connect_async(self) -> asynchronous.Connection:
        """Return a new connection of the asyncio client, without heartbeats."""
        return await asynchronous.connect(self.url, heartbeat=0)

    def delete(self) -> None:
        """Delete it with all that is in it."""
        self.broker.delete_vhost(self.name)


def _take_port(host: str) -> socket.socket:
    """Return a socket that is bound to a free port and does not listen.

    The broker may listen there beside it, and no other program is given the port.

    Raises: CannotListen.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, 0))
    except OSError as error:
        sock.close()
        reason = error.strerror or str(error)
        text = f"cannot listen for AMQP on {host}: {reason}; choose another by host"
        raise CannotListen(text) from None
    return sock
