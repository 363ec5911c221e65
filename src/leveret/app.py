"""The composition root: builds every part of a broker, starts and stops them in order.

It is the only module that knows all.  Time, randomness and files enter the core here.

Order of start: lock and recover the data directory, put the state back, load definitions, journal
what is new, sync, listen.  Order of stop: listen no more, close connections, sync, mark the stop as
clean.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final

from leveret import __version__
from leveret.broker.admin.definitions_import import import_definitions
from leveret.broker.node.broker import Broker
from leveret.broker.node.events import Events
from leveret.broker.node.users import ARGON2, User
from leveret.broker.recovery.checkpoint import BrokerCheckpoint
from leveret.broker.recovery.compaction import Compaction
from leveret.broker.recovery.restore import Restore
from leveret.broker.values.arguments import Arguments
from leveret.broker.vhost.ids import StreamIds
from leveret.clock import TICK_MS, Clock, LivedClock
from leveret.config import Settings
from leveret.errors import PreconditionFailed
from leveret.limits import STORE_FILES_MAX
from leveret.management.chunk_source import ChunkSource
from leveret.management.definitions import read_definitions
from leveret.management.keeper import Keeper
from leveret.management.listening.doors import Doors
from leveret.management.listening.listeners import HttpListeners
from leveret.management.operator import Operator
from leveret.server import descriptors
from leveret.server.acceptor import accepting
from leveret.server.amqp import is_loopback
from leveret.server.authentication import PasswordAuthenticator, hash_argon2
from leveret.server.chunk_files import ChunkFiles
from leveret.server.descriptors import TooFewDescriptors
from leveret.server.listener import AmqpListener
from leveret.server.log import make_log
from leveret.server.quiet import Quiet
from leveret.server.runner import DiskThreads, Runner
from leveret.server.space import Space
from leveret.server.start_progress import StartProgress
from leveret.server.upkeep import Upkeep, UpkeepLimits
from leveret.session.admission import Admission, network_of
from leveret.session.connection.connection import Connection
from leveret.session.settings import SessionSettings, Tokens
from leveret.store.ballast import Ballast
from leveret.store.checkpoint.checkpoint import CheckpointSource, CheckpointStore
from leveret.store.disk import Disk, DiskLocked, RealDisk, StorageFailure
from leveret.store.journal.files import JournalFiles
from leveret.store.journal.journal import Group, Journal
from leveret.store.recovery.recovery import Recovery, RecoveryReport

#: Compiled code yields the GIL only in calls; this bounds what a busy thread costs the loop.
SWITCH_INTERVAL_SECONDS: Final = 0.0001

#: Dead letters that were dropped are told of so often at most.
LETTERS_TOLD_MS: Final = 60_000

#: Young objects that start a collection: messages are not tracked, so garbage is rare.
GC_THRESHOLD: Final = 50_000

#: Memory blocks from this size on are mapped by themselves; smaller ones are used again.
MAPPED_BYTES: Final = 8 * 1024 * 1024
#: What `mallopt` calls its thresholds (malloc.h).
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3

#: The largest file of definitions that is loaded: some hundred thousand queues; a device that
#: never ends is none.
DEFINITIONS_BYTES_MAX: Final = 256 * 1024 * 1024

#: How long a graceful stop waits for clients to answer its connection.close.
STOP_SECONDS: Final = 2.0

#: How long the end may take once the storage failed, or what nobody expected happened.
FAILED_SECONDS: Final = 0.6

#: The exit code for an exception that nobody expected: EX_SOFTWARE of BSD's sysexits.h.
INTERNAL_ERROR: Final = 70


class SystemClock(Clock):
    """The machine's clocks."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch.

        It is the wall time at the start with what has passed since, a machine's sleep included: a
        step of the machine's clock expires no message.
        """
        return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) + self._offset_ns) // 1_000_000

    def monotonic_ms(self) -> int:
        """Return milliseconds of a clock that never goes back."""
        return time.monotonic_ns() // 1_000_000


class SystemTokens(Tokens):
    """Tokens from the system's source of randomness."""

    def token(self) -> str:
        """Return 16 bytes of chance as URL-safe base 64."""
        return secrets.token_urlsafe(16)


class RandomStreamIds(StreamIds):
    """Ids of streams from the system's source of randomness."""

    def new_id(self) -> str:
        """Return 8 bytes of chance as hexadecimal digits."""
        return secrets.token_hex(8)


class BadDefinitions(Exception):
    """The definitions of the settings cannot be loaded; the text says which and why."""


class CannotListen(Exception):
    """The address for AMQP cannot be listened on; the text says which and why."""


class Node:
    """One running broker."""

    port: int

    def __init__(
        self, settings: Settings, on_failure: Callable[[int], None] = lambda _code: None
    ) -> None:
        """Make a broker that is not started.

        `on_failure` is called with the exit code when the storage fails, or what nobody expected
        happens.
        """
        self.settings = settings
        self._on_failure = on_failure
        self.log = make_log(settings.log_level, settings.log_format)
        self.clock = LivedClock(SystemClock())
        self._quiet = Quiet(self.clock)
        self.broker = Broker(Journal(), settings.memory_bytes_max, RandomStreamIds())
        self.broker.disk_free_bytes_min = settings.disk_free_bytes_min
        self.failure: StorageFailure | None = None
        #: What nobody expected, and stopped the broker.
        self.bug: BaseException | None = None
        self._real_disk = RealDisk(str(settings.data_dir))
        self._real_disk.spare(STORE_FILES_MAX)
        self._disk = self.disk(self._real_disk)
        self._chunks = ChunkFiles(self._disk)
        self._stopping = asyncio.Event()
        self._ticker: asyncio.Task[None] | None = None
        self._syncer: asyncio.Task[None] | None = None
        self._unsynced = False
        #: How many dropped dead letters the log knows of, and when it may be told of more.
        self._letters_told = 0
        self._letters_tell_at_ms = 0

    # -- parts that another broker than the usual one makes otherwise ------------------------------

    def disk(self, real: RealDisk) -> Disk:
        """Return the disk that everything goes through."""
        return real

    def checkpoint_source(self, compaction: Compaction | None) -> CheckpointSource:
        """Return what hands the broker's state over to the next checkpoint."""
        return BrokerCheckpoint(self.broker, compaction)

    # -- start ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover and listen.

        Raises: StorageFailure when the data directory cannot be used; BadDefinitions;
        CannotListen; TooFewDescriptors.
        """
        settings = self.settings
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._handle_exception)
        report = self._recover()
        ballast = Ballast(self._disk, settings.ballast_bytes)
        self._files = JournalFiles(self._disk, ballast)
        self._space = Space(self._disk, self.broker, ballast, self.log)
        self._threads = DiskThreads(loop, self._failed, self._broken)
        self.runner = Runner(
            loop,
            self.broker,
            self.clock,
            self._threads,
            self._write_group,
            self._chunks,
            self._broken,
        )
        self._start_upkeep(report)
        self.authenticator = PasswordAuthenticator(loop, self.broker.users, self.runner.run)
        self._threads.start()
        self.runner.now()
        self._journal_start(report)
        await self.runner.synced()
        if self.failure is not None:
            raise self.failure
        if self.bug is not None:
            raise self.bug
        self._upkeep.started = True
        self._space.judge()
        self.admission = Admission(self._places())
        self._http = self._start_http()
        self._listener = AmqpListener(
            self.runner,
            self.broker,
            self._session_settings(),
            self.authenticator,
            SystemTokens(),
            self.admission,
            self._log_connection,
            self._say,
        )
        self.port = await self._listen()
        self._http.start_unix(settings.management_socket)
        self._ticker = self._start_task(self._tick())
        if settings.sync == "interval":
            self._syncer = self._start_task(self._sync_now_and_then())
        gc.set_threshold(GC_THRESHOLD, 20, 100)
        gc.collect()
        gc.freeze()

    def _start_upkeep(self, report: RecoveryReport) -> None:
        """Have the data directory kept in order from now on, after the recovery of `report`."""
        settings = self.settings
        self._upkeep = Upkeep(
            UpkeepLimits(
                settings.journal_bytes_max,
                settings.compact_records_min,
                settings.compact_live_percent,
            ),
            self.broker,
            self.clock,
            self.log,
            self._disk,
            self._space,
            self.runner,
            self._checkpoints,
            self.checkpoint_source,
            self._stopping.is_set,
            self._failed,
        )
        # A checkpoint leaves damage behind and puts what was saved of it in a new chunk.
        self._upkeep.wanted = bool(report.damages or report.known)
        self.runner.observe(self._upkeep)

    def _places(self) -> int:
        """Return how many connections there is room for.  Raises: TooFewDescriptors."""
        room = descriptors.connections_max()
        if warning := descriptors.warning(room):
            self.log.warning(warning)
        return room

    async def _listen(self) -> int:
        """Listen for AMQP; return the port.  Raises: CannotListen."""
        settings = self.settings
        try:
            return await self._listener.start(settings.host, settings.port)
        except OSError as error:
            # asyncio tells the address in its text again; a name that is not found has no number.
            number = error.errno or 0
            reason = os.strerror(number) if number > 0 else str(error.strerror or error)
            text = f"cannot listen for AMQP on {settings.host}:{settings.port}: {reason}"
            raise CannotListen(f"{text}; choose others by host and port") from None

    def _start_http(self) -> HttpListeners:
        """Listen on TCP, before AMQP clients are told where."""
        settings = self.settings
        operator = Operator(
            self.runner.now,
            self.runner.durable,
            self.authenticator.hash,
            lambda: self._hold_files(True),
            lambda: self._hold_files(False).cancel(),
            self._broken,
            self._counts,
        )
        chunks = ChunkSource(self.runner.read_part)
        doors = Doors(accepting(self._say), self.admission, self.clock)
        listeners = HttpListeners(self.broker, operator, chunks, doors, self._say)
        if settings.http:
            delay_ms = settings.login_failure_delay_ms
            keeper = Keeper(
                self._judge, is_loopback, settings.loopback_users, delay_ms, self._backoff
            )
            listeners.start_tcp(settings.http_host, settings.http_port, keeper)
        return listeners

    async def _judge(self, user: str, password: bytes, address: str) -> bool | None:
        return await self.authenticator.judge(user, password, network_of(address))

    def _backoff(self, user: str, address: str) -> int:
        return self.authenticator.backoff.factor(network_of(address), user)

    def _recover(self) -> RecoveryReport:
        # Nothing that recovery makes is garbage, so looking for some would only take time.
        gc.disable()
        try:
            return self._recover_all()
        finally:
            gc.enable()

    def _recover_all(self) -> RecoveryReport:
        restore = Restore(self.broker)
        new_uuid = secrets.token_bytes(16)
        recovery = Recovery(self._disk, restore, new_uuid, self.clock.wall_ms())
        progress = StartProgress(recovery, self._disk, self.clock.monotonic_ms, self.log.info)
        for _ in recovery.run():
            progress.look()
        progress.end()
        report = recovery.report
        self.broker.turn.journal = report.journal()
        self.broker.turn.journal.file_bytes_max = self.settings.journal_file_bytes
        self._checkpoints = CheckpointStore(report)
        turn = self.broker.turn
        turn.now_ms = self.clock.wall_ms()
        turn.publisher_expiry_ms = self.settings.publisher_expiry_ms
        turn.spill = self._checkpoints.spill
        turn.reader = self._chunks
        if self.settings.event_sample_every:
            turn.follow(Events(turn, self.broker.vhosts, self.settings.event_sample_every))
        self.broker.eviction.configure(
            self.settings.queue_window_bytes, self.settings.memory_window_bytes
        )
        restore.finish(not report.clean_stop)
        for damage in report.damages + report.known + report.torn:
            self.broker.turn.damage.add(damage)
        for damage in report.damages:
            self.log.error("damage found and quarantined", place=str(damage))
        for damage in report.known:
            self.log.warning("damage found before is still in the journal", place=str(damage))
        for damage in report.torn:
            self.log.warning("torn end of the journal cut off", place=str(damage))
        for name in restore.orphaned:
            self.log.error("messages of an unexplained queue were kept", queue=name)
        if report.created:
            self.log.info("new data directory", data_dir=str(self.settings.data_dir))
            return report
        self.log.info(
            "recovered",
            records=int(report.records),
            messages=int(restore.restored),
            last_stop="in order" if report.clean_stop else "a crash or a kill",
        )
        return report

    def _journal_start(self, report: RecoveryReport) -> None:
        """Journal the start, so that a clean stop is only ever the last thing said."""
        settings = self.settings
        journal = self.broker.turn.journal
        # With the uuid the journal can be read even when the file `format` is lost.
        start = {"version": __version__, "time_ms": self.clock.wall_ms(), "uuid": report.uuid}
        journal.define("start", start)
        definitions = self._definitions()
        # One record: a crash must not leave a user who may enter no vhost.
        journal.begin_tx()
        if not self.broker.vhosts and not definitions.get("vhosts"):
            self.broker.add_vhost(settings.default_vhost)
        if not self.broker.users.by_name and not definitions.get("users"):
            password = settings.default_pass.get_secret_value().encode()
            user = User(settings.default_user, hash_argon2(password), ["administrator"], ARGON2)
            self.broker.put_user(user)
            self.authenticator.remember(user.name, password, user.password_hash)
            vhost = self.broker.add_vhost(settings.default_vhost)
            self.broker.users.set_permission(user.name, vhost.name, ".*", ".*", ".*")
        journal.end_tx()
        if definitions:
            self._load(definitions)

    def _definitions(self) -> Arguments:
        """Return what the file of the settings defines, nothing without one."""
        path = self.settings.load_definitions
        if path is None:
            return {}
        try:
            with path.open("rb") as file:
                data = file.read(DEFINITIONS_BYTES_MAX + 1)
            if len(data) > DEFINITIONS_BYTES_MAX:
                text = f"{path} is larger than {DEFINITIONS_BYTES_MAX} bytes"
                raise BadDefinitions(f"load_definitions: {text}")
            return read_definitions(data)
        except PreconditionFailed as error:
            raise BadDefinitions(f"load_definitions: {path}: {error.text}") from None
        except OSError as failed:
            reason = failed.strerror
            raise BadDefinitions(f"load_definitions: cannot read {path}: {reason}") from None

    def _load(self, definitions: Arguments) -> None:
        """Add the definitions of the settings to what is there, all or nothing."""
        path = self.settings.load_definitions
        try:
            report = import_definitions(self.broker, definitions, secrets.token_bytes(16))
        except PreconditionFailed as error:
            raise BadDefinitions(f"load_definitions: {path}: {error.text}") from None
        for note in report.notes:
            self.log.warning("left out of the definitions", place=note)
        for note in report.kept:
            self.log.warning("kept without effect", place=note)
        self.log.info("definitions loaded", path=str(path), changed=report.changed)

    def _session_settings(self) -> SessionSettings:
        settings = self.settings
        return SessionSettings(
            __version__,
            frame_bytes_max=settings.frame_bytes_max,
            channels_max=settings.channels_max,
            heartbeat_seconds=settings.heartbeat_seconds,
            message_bytes_max=settings.message_bytes_max,
            handshake_ms=settings.handshake_seconds * 1000,
            login_failure_delay_ms=settings.login_failure_delay_ms,
            compatible=settings.compatibility == "rabbitmq",
            loopback_users=settings.loopback_users,
            consumer_timeout_ms=settings.consumer_timeout_ms,
            http_port=self._http.port,
        )

    # -- effects ----------------------------------------------------------------------------------

    def _write_group(self, group: Group) -> None:
        """Write a group and, by the `sync` setting, sync it; in the sync thread."""
        began = time.monotonic_ns()
        self._files.append(group)
        io = self.broker.turn.io
        io.wrote(group.records, group.size, time.monotonic_ns() - began)
        self._space.wrote(int(group.size))
        if self.settings.sync == "always":
            self._sync_group()
        else:
            self._unsynced = True

    def _sync_group(self) -> None:
        began = time.monotonic_ns()
        self._files.sync()
        self.broker.turn.io.synced(time.monotonic_ns() - began)

    async def _sync_now_and_then(self) -> None:
        """Sync every `sync_interval_ms` what was written since, where the setting says so."""
        while True:
            await asyncio.sleep(self.settings.sync_interval_ms / 1000)
            if self._unsynced:
                self._unsynced = False
                self._threads.sync.submit(self._sync_files)

    def _sync_files(self) -> Callable[[], None]:
        """Sync the journal; in the sync thread."""
        self._sync_group()
        return self.runner.run

    def _failed(self, failure: StorageFailure) -> None:
        """Confirm nothing more and end: what the disk holds is no longer known."""
        if self.exit_code != 0:
            return
        self.failure = failure
        self.log.critical("storage failed, the broker stops", reason=str(failure))
        self._end()

    def _broken(self, bug: BaseException) -> None:
        """Confirm nothing more and end: nobody knows what is true of the state any more.

        What was confirmed is on the disk; the next start recovers it.
        """
        if isinstance(bug, StorageFailure):
            self._failed(bug)
            return
        if self.exit_code != 0:
            return
        self.bug = bug
        said = "internal error, the broker stops: the next start recovers what was confirmed"
        self.log.critical(said, reason=repr(bug), exc_info=bug)
        self._end()

    @property
    def exit_code(self) -> int:
        """0 until something ends the broker; then what the process ends with."""
        if self.bug is not None:
            return INTERNAL_ERROR
        return 0 if self.failure is None else 1

    def _end(self) -> None:
        self._on_failure(self.exit_code)
        self.runner.fail()
        for shell in self.runner.shells:
            shell.abort()
        self._stopping.set()

    def _handle_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Judge what the loop caught: from a callback, such as a timer's, it ends the broker.

        The rest passes: what the system refuses a socket (no descriptor left to accept with), what
        HTTP's own protocol makes of hostile input, and futures that nobody waited for.  What a
        request did is judged where it is answered.
        """
        error = context.get("exception")
        if isinstance(error, BaseException) and "handle" in context:
            self._broken(error)
        else:
            self.log.error("the event loop reports", reason=context["message"], error=repr(error))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task whose end by an exception ends the broker, and not the task alone."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken(error)

    def _counts(self) -> dict[str, int]:
        """Return the counts of descriptors and connections, by RabbitMQ's names if it has any."""
        return {
            "fd_used": descriptors.used(),
            "fd_total": descriptors.limit(),
            "sockets_used": len(self.admission.slots),
            "sockets_total": int(self.admission.limit),
            "connections_expelled": int(self.admission.expelled + self._http.expelled),
            "connections_refused": int(self.admission.refused + self._http.refused),
            "log_lines_omitted": self._quiet.omitted,
            **self.authenticator.counts(),
        }

    def _say(self, level: str, text: str) -> None:
        """Log what a listener has to tell; warnings are of strangers, who may be many."""
        said = self._quiet.judge(text) if level == "warning" else text
        if said is not None:
            getattr(self.log, level)(said)

    def _log_connection(self, level: str, connection: Connection, text: str) -> None:
        # Who has entered no vhost is a stranger.
        said = self._quiet.judge(text) if connection.vhost is None else text
        if said is not None:
            getattr(self.log, level)(said, connection=connection.name)

    def _hold_files(self, on: bool) -> asyncio.Future[None]:
        """Keep all files of checkpoints, or let go of them; in the thread that removes them."""
        return self.runner.in_sync_thread(lambda: self._upkeep.hold_files(on))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            self.runner.tick()
            self._real_disk.spare(STORE_FILES_MAX)
            self._upkeep.tick()
            self._tell_letters()

    def _tell_letters(self) -> None:
        """Say, once a minute at most, that there were too many copies of dead letters."""
        dropped = self.broker.turn.letters_dropped
        now_ms = self.clock.monotonic_ms()
        if dropped.total() > self._letters_told and now_ms >= self._letters_tell_at_ms:
            self.log.warning(
                "dead letters dropped",
                copies=int(dropped.copies),
                memory=int(dropped.memory),
                vhost=dropped.vhost,
                queue=dropped.queue,
            )
            self._letters_told = int(dropped.total())
            self._letters_tell_at_ms = now_ms + LETTERS_TOLD_MS

    # -- stop -------------------------------------------------------------------------------------

    def request_stop(self) -> None:
        """Ask for a graceful stop."""
        self._stopping.set()

    async def wait(self) -> None:
        """Wait until a stop is asked for or the storage fails."""
        await self._stopping.wait()

    async def stop(self) -> None:
        """Close the connections, sync, and mark the stop as clean."""
        self._listener.stop()
        for task in (self._ticker, self._syncer):
            if task is not None:
                task.cancel()
        with contextlib.suppress(TimeoutError):
            # After a failure requests may wait for syncs that never come.
            wait = None if self.exit_code == 0 else FAILED_SECONDS / 2
            await asyncio.wait_for(self._http.stop(), wait)
        if self.exit_code == 0:
            await self._close_connections()
            # What follows from earlier syncs is journaled before the mark, which must be the last.
            await self.runner.synced()
            self.broker.journal_stop(self.clock.wall_ms())
            await self.runner.synced()
            self._threads.stop()
            self.authenticator.stop()
            if self.exit_code == 0:
                self._close_files()
        self._real_disk.close()

    def _close_files(self) -> None:
        """Sync what the `sync` setting left to the system, and close the journal."""
        try:
            self._files.sync()
            self._files.close()
            self._chunks.close()
        except StorageFailure as failure:
            self._failed(failure)

    async def _close_connections(self) -> None:
        """Send every client a connection.close and give it a moment to answer."""
        for shell in self.runner.shells:
            shell.connection.force("broker forced connection closure with reason 'shutdown'")
        self.runner.run()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.runner.emptied(), STOP_SECONDS)
        for shell in self.runner.shells:
            shell.abort()
        await asyncio.sleep(0)


async def _serve(settings: Settings, make_node: type[Node]) -> int:
    try:
        node = make_node(settings, _end_soon)
    except StorageFailure as failure:
        log = make_log(settings.log_level, settings.log_format)
        log.critical("the broker cannot start", reason=_of_data(settings, failure))
        return 1
    try:
        return await _serve_until_stopped(node)
    except Exception as bug:
        if bug is not node.bug:
            node.log.critical("internal error, the broker stops", reason=repr(bug), exc_info=bug)
        # What ended it first says why it ends.
        return node.exit_code or INTERNAL_ERROR


def _of_data(settings: Settings, failure: StorageFailure) -> str:
    """Return what the data directory refused, and what would help."""
    if isinstance(failure, DiskLocked):
        return f"{failure}; stop that one, or give this broker another data directory (data_dir)"
    where = settings.data_dir
    return f"the data directory {where} cannot be used: {failure}; choose another one by data_dir"


async def _serve_until_stopped(node: Node) -> int:
    """Run a broker until it is told to stop, or has to; return the process's exit code."""
    settings = node.settings
    directory = str(settings.data_dir.absolute())
    node.log.info("starting", version=__version__, data_dir=directory, process=os.getpid())
    try:
        await node.start()
    except StorageFailure as failure:
        node.log.critical("the broker cannot start", reason=_of_data(settings, failure))
        return 1
    except (BadDefinitions, CannotListen, TooFewDescriptors) as error:
        node.log.critical("the broker cannot start", reason=str(error))
        return 1
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.request_stop)
    listening = f"listening on amqp://{settings.host}:{node.port}"
    node.log.info(listening)
    _announce(f"{listening}\nServer startup complete\n")
    await node.wait()
    await node.stop()
    node.log.info("stopped", exit_code=node.exit_code)
    return node.exit_code


def _announce(text: str) -> None:
    """Print a text, or let it go where nobody can read it: the log says the same."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError:
        # What it still holds would fail again at the end.
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115


def _end_soon(code: int) -> None:
    """End the process with `code` after `FAILED_SECONDS` even if something in it does not."""
    timer = threading.Timer(FAILED_SECONDS, os._exit, (code,))
    timer.daemon = True
    timer.start()


def run(settings: Settings, make_node: type[Node] = Node) -> int:
    """Run a broker until it is told to stop; return the process's exit code.

    0 is a graceful stop, 1 a storage that failed or could not be used, or definitions that cannot
    be loaded, `INTERNAL_ERROR` what nobody expected.  `make_node` makes the broker.
    """
    os.umask(0o077)
    descriptors.raise_limit()
    _map_large_blocks()
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    return _run(_serve(settings, make_node), settings.uvloop)


def _map_large_blocks() -> None:
    """Have glibc give blocks of `MAPPED_BYTES` back to the system when they are freed.

    By itself it begins to keep them after the first one: 19 MiB for the hash of each thread that
    verified a password.  Where there is no glibc, nothing is changed.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_MMAP_THRESHOLD, MAPPED_BYTES)
        # What glibc would have chosen for the former.
        mallopt(M_TRIM_THRESHOLD, 2 * MAPPED_BYTES)


def _run(main: Coroutine[Any, Any, int], wish_uvloop: bool) -> int:
    """Run `main` on uvloop where it is wished and there, else on asyncio."""
    if wish_uvloop:
        try:
            import uvloop
        except ImportError:
            pass
        else:
            return uvloop.run(main)
    return asyncio.run(main)
