"""The embedded broker: a real broker in a thread of the test process."""

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
from leveret.testing.thread import BrokerEnded, BrokerThread

T = TypeVar("T")

#: The maximum of one advance of the clock, since the times that the broker stores have a limit.
ADVANCE_SECONDS_MAX: Final = 100 * 366 * 24 * 3600


class NotRunning(RuntimeError):
    """The broker was not started, or has been stopped or killed."""


class BrokerFailed(RuntimeError):
    """The broker failed; the `__cause__` is the error."""


class EmbeddedBroker:
    """A broker for tests: `with Broker() as broker`, or `async with` in an asyncio program.

    It listens on a free port of `127.0.0.1`.  By default it stores its data in memory; with
    `temporary_dir`, in a directory that is deleted at the end; with `data_dir`, in a directory that
    is not deleted.  Every setting of the broker can be given as a keyword argument; environment and
    settings files are ignored.

    All methods may be called from any thread, even while clients wait for the broker.  In a forked
    child process the broker does not run; the child can only leave the `with` block.

    Raises: `leveret.config.ConfigError` for an unknown setting or an invalid value; NotRunning from
    methods that need the broker to run; BrokerFailed if it has failed.
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
        #: The socket that reserves the port while the broker does not run.
        self._place: socket.socket | None = None
        self._remove_directory: Callable[[], object] | None = None

    def __repr__(self) -> str:
        where = f"at {self.host}:{self.port}" if self.is_running else "not running"
        return f"<Broker {where}>"

    # -- start and stop ----------------------------------------------------------------------------

    def start(self) -> Self:
        """Start, or restart after `kill` with the surviving data; return when clients can connect.

        Raises: the error that prevents the start, such as CannotListen.
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
        """Shut down, if running, and delete the data, except a `data_dir`."""
        self._end(kill=False)
        self._clean()

    def kill(self) -> None:
        """End like a process killed by SIGKILL: disconnect the clients, and write nothing more.

        `start` or `restart` restarts the broker on the same port, with all confirmed messages.
        """
        self._check_running()
        self._end(kill=True)

    def restart(self) -> None:
        """Shut down, if running, and start again on the same port with the same data."""
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
        # The event loop must run meanwhile, so that its clients receive the close.
        try:
            thread = self._thread
            if thread is not None and self._pid == os.getpid():
                self._heal_disk()
                thread.request_end(kill=False)
                await asyncio.shield(asyncio.wrap_future(thread.ended))
        finally:
            self.stop()

    def _begin(self) -> BrokerThread | None:
        """Start the broker's thread and return it; return None if one is running."""
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
        """Reserve a port and create a temporary directory, if requested, until the broker stops."""
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
        """Release everything after a failed start."""
        thread.request_end(kill=True)
        if not thread.ready.done():
            with contextlib.suppress(BaseException):
                thread.ready.result()
            thread.request_end(kill=True)
        thread.join()
        self._clean()

    def _end(self, *, kill: bool) -> None:
        """End the broker's thread, if any."""
        thread = self._thread
        if thread is None or self._pid != os.getpid():
            return
        if not kill:
            self._heal_disk()
        thread.request_end(kill)
        thread.join()
        self._thread = None

    def _heal_disk(self) -> None:
        """Undo `fill_disk`, so that the broker can write its data before it stops."""
        if self._parts is not None and self._parts.fillable is not None:
            self._parts.fillable.full = False

    def _clean(self) -> None:
        """Release the port and delete the temporary directory, if any."""
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

    # -- addresses ---------------------------------------------------------------------------------

    @property
    def is_running(self) -> bool:
        """Whether the broker accepts connections."""
        thread = self._thread
        return thread is not None and thread.is_alive and thread.failure is None

    @property
    def host(self) -> str:
        """The address on which the broker listens."""
        return self._settings.host

    @property
    def port(self) -> int:
        """The port on which the broker listens, the same from its first start to its stop.

        Raises: NotRunning.
        """
        if self._parts is None:
            raise NotRunning("the broker was not started")
        return self._settings.port

    @property
    def tls_port(self) -> int:
        """The port of AMQP over TLS; needs the setting `tls_certificate`.  Raises: NotRunning."""
        port = self._call(lambda handles: handles.tls_port())
        if port == 0:
            raise NotRunning("the broker has no TLS; use Broker(tls_certificate=...)")
        return port

    @property
    def url(self) -> str:
        """The URL of the default vhost with user and password, for any AMQP client."""
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
        """The URL for streams over HTTP; needs the setting `http`.  Raises: NotRunning."""
        port = self._call(lambda handles: handles.http_port())
        if port == 0:
            raise NotRunning("the broker does not listen for HTTP; use Broker(http=True)")
        return f"http://{self._settings.http_host}:{port}"

    # -- vhosts ------------------------------------------------------------------------------------

    def add_vhost(self, name: str = "") -> VirtualHost:
        """Add a vhost with full permissions for the default user; return the vhost.

        By default, a unique name is generated.  A vhost of that name may already exist.
        """
        chosen = name or f"test-{secrets.token_hex(6)}"
        self._call(lambda handles: handles.add_vhost(chosen))
        return VirtualHost(self, chosen)

    def delete_vhost(self, name: str) -> None:
        """Delete a vhost with everything in it, and close its connections.

        Raises: NotFound (404).
        """
        self._call(lambda handles: handles.delete_vhost(name))

    # -- faults ------------------------------------------------------------------------------------

    def connections(self) -> int:
        """Return the number of connections of clients."""
        return self._call(lambda handles: handles.connections())

    def drop_connections(self) -> int:
        """Disconnect all clients, as a network failure would; return their number."""
        return self._call(lambda handles: handles.drop_connections())

    @contextlib.contextmanager
    def _undone(self, undo: Callable[[], None]) -> Iterator[None]:
        try:
            yield
        finally:
            if self.is_running:
                undo()

    def block(self) -> contextlib.AbstractContextManager[None]:
        """Block publishers (`connection.blocked`), as if the broker were short of memory.

        Lasts until `unblock` or the end of `with broker.block()`.
        """
        self._call(lambda handles: handles.block(True))
        return self._undone(self.unblock)

    def unblock(self) -> None:
        """End `block`: unblock publishers (`connection.unblocked`)."""
        self._call(lambda handles: handles.block(False))

    def fill_disk(self) -> contextlib.AbstractContextManager[None]:
        """Simulate a full disk: publishers are blocked, and nothing is confirmed.

        Lasts until `free_disk` or the end of `with broker.fill_disk()`.
        """
        self._call(lambda handles: handles.fill_disk(True))
        return self._undone(self.free_disk)

    def free_disk(self) -> None:
        """Free the disk, so that the broker writes and confirms the pending messages."""
        self._call(lambda handles: handles.fill_disk(False))

    def delay(self, seconds: float) -> contextlib.AbstractContextManager[None]:
        """Delay everything that clients send by `seconds`.

        Lasts until `delay(0)` or the end of `with broker.delay(seconds)`.
        """
        if not seconds >= 0:
            raise ValueError(f"the delay must be 0 or more seconds, not {seconds}")
        self._call(lambda handles: handles.delay(seconds))
        return self._undone(lambda: self._call(lambda handles: handles.delay(0)))

    def nack_next(self, count: int = 1) -> None:
        """Nack the next `count` publishes on channels in confirm mode; 0 cancels this."""
        self._call(lambda handles: handles.nack_next(count))

    def refuse_next(
        self,
        method: str = "connection",
        count: int = 1,
        *,
        code: int = 403,
        text: str = "refused because the test asked for it",
    ) -> None:
        """Refuse the next `count` connections, or methods of one kind; 0 cancels this.

        If `method` is `connection`, the socket is closed before the broker sends anything.  If it
        is `login`, the password is refused.  Otherwise it is the name of an AMQP method, such as
        `queue.declare` or `basic.publish`: the broker closes the channel with `code` and `text`,
        or the connection if the method belongs to the connection.

        Raises: ValueError for an unknown method, or a code that does not fit the method.
        """
        if method == "connection":
            self._call(lambda handles: handles.reset_next(count))
            return
        name = "connection.start-ok" if method == "login" else method
        self._call(lambda handles: handles.refuse_next(name, count, code, text))

    def advance(self, seconds: float, *, heartbeats: bool = True) -> None:
        """Advance the broker's clock; return when all due timers have run.

        This affects the TTL of messages and queues, delays, retries and leases.  It also affects
        heartbeats: clients count as silent for the whole time, unless `heartbeats` is False.

        Raises: ValueError for a negative time, or more than a hundred years.
        """
        if seconds < 0:
            raise ValueError("the clock cannot go back")
        if not seconds <= ADVANCE_SECONDS_MAX:
            raise ValueError(f"the clock can advance by at most a hundred years, not {seconds} s")
        self._call(lambda handles: handles.advance(seconds, heartbeats))

    def heal(self) -> None:
        """Undo all faults: blocks, delays, a full disk, and pending refusals and nacks."""
        self._call(lambda handles: handles.heal())

    # -- checks ------------------------------------------------------------------------------------

    def _call(self, work: Callable[[Handles], Awaitable[T]]) -> T:
        """Run `work` in the broker's loop.  Raises: NotRunning, BrokerFailed."""
        thread = self._check_running()
        try:
            return thread.call(work)
        except BrokerEnded as ended:
            if ended.__cause__ is not None:
                raise BrokerFailed(f"the broker failed: {ended.__cause__}") from ended.__cause__
            raise NotRunning("the broker was stopped meanwhile") from None

    def _check_running(self) -> BrokerThread:
        self._check_process()
        thread = self._thread
        if thread is None:
            raise NotRunning("the broker is not running; call start() or restart()")
        if thread.failure is not None:
            raise BrokerFailed(f"the broker failed: {thread.failure}") from thread.failure
        return thread

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            text = f"this broker runs in process {self._pid}, and this is a fork of it"
            raise NotRunning(f"{text}; connect to its url, or make another Broker here")


class VirtualHost:
    """One vhost of the embedded broker."""

    def __init__(self, broker: EmbeddedBroker, name: str) -> None:
        #: The broker, for example to inject faults.
        self.broker = broker
        #: The name of the vhost.
        self.name = name

    @property
    def url(self) -> str:
        """The URL of the vhost, for any AMQP client."""
        return self.broker.url_of(self.name)

    def connect(self) -> blocking.Connection:
        """Return a new connection of the blocking client, without heartbeats."""
        return blocking.connect(self.url, heartbeat=0)

    async def connect_async(self) -> asynchronous.Connection:
        """Return a new connection of the asyncio client, without heartbeats."""
        return await asynchronous.connect(self.url, heartbeat=0)

    def delete(self) -> None:
        """Delete the vhost with everything in it, and close its connections.

        Raises: NotFound (404) if it was deleted before.
        """
        self.broker.delete_vhost(self.name)


def _take_port(host: str) -> socket.socket:
    """Return a socket that is bound to a free port but does not listen.

    It reserves the port: the broker can still listen on it, but other programs cannot.

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
        text = f"cannot listen for AMQP on {host}: {reason}; choose another host"
        raise CannotListen(text) from None
    return sock
