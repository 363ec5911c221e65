"""Starts and stops one broker.

A start locks and recovers the data directory, restores the state, loads the definitions, journals
new records, syncs them and listens for clients.  A stop closes the listeners and the connections,
syncs, and marks the stop as clean in the journal.

A broker does not change its process.  Garbage collection, signals, limits and the allocator are set
by the program that runs the process (`cli.serving`), which may run several brokers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from leveret.app.certificates import make_certificates
from leveret.app.engine import Engine
from leveret.app.first_records import journal_start
from leveret.app.ground import Ground
from leveret.app.listeners import CannotListen, Listeners, make_hare_codec
from leveret.app.parts import Parts
from leveret.app.recovery import recover
from leveret.app.reload import reload_settings
from leveret.clock import TICK_MS
from leveret.config import Settings
from leveret.escaping import unquoted
from leveret.haremq.requests import HareCodec
from leveret.limits import STORE_FILES_MAX
from leveret.server.closing.lingering import end_lingering
from leveret.server.descriptors import TooFewDescriptors
from leveret.server.opening.certificates import Certificates

#: How long a stopping broker waits for lingering sockets (ms).
_LINGER_STOP_MS: Final = 200

#: The interval at which certificate files are checked for changes.
_CERTIFICATES_CHECK_SECONDS: Final = 30


#: The minimum interval of log lines about dropped dead letters.
LETTERS_TOLD_MS: Final = 60_000

#: How long a graceful stop waits for clients to answer its connection.close.
STOP_SECONDS: Final = 2.0

#: The maximum time of a stop after a storage failure or an unexpected exception.
FAILED_SECONDS: Final = 0.6


class RunningBroker:
    """One broker.

    At first it has only the parts that do not depend on its state (`Ground`).  `start` restores the
    state, and creates the parts that need it (`Engine`) and the `Listeners`.
    """

    def __init__(
        self,
        settings: Settings,
        parts: Parts | None = None,
        on_failure: Callable[[int], None] = lambda _code: None,
    ) -> None:
        """Create a broker without starting it.  Raises: StorageFailure.

        `on_failure` is called with the exit code after a storage failure or an unexpected
        exception.
        """
        ground = Ground(settings, parts or Parts(settings), on_failure)
        self._ground: Final = ground
        self.log: Final = ground.log
        self.clock: Final = ground.clock
        self.broker: Final = ground.broker
        self.ending: Final = ground.ending
        self._engine: Engine | None = None
        self._listeners: Listeners | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._certificates: Certificates | None = None
        self._codec: HareCodec | None = None
        #: The number of dropped dead letters already logged, and the time of the next log line.
        self._letters_told = 0
        self._letters_tell_at_ms = 0

    @property
    def settings(self) -> Settings:
        """The settings in effect."""
        return self._ground.settings

    @property
    def engine(self) -> Engine:
        """The parts that run after recovery; available only then."""
        assert self._engine is not None, "the broker is not recovered"
        return self._engine

    @property
    def listeners(self) -> Listeners:
        """The listeners; available once the broker listens."""
        assert self._listeners is not None, "the broker does not listen"
        return self._listeners

    @property
    def port(self) -> int:
        """The port for AMQP."""
        return self.listeners.port

    # -- start ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover the data directory, and listen.

        Raises: StorageFailure if the data directory cannot be used; BadDefinitions; CannotListen;
        TooFewDescriptors; BadCertificates.
        """
        asyncio.get_running_loop().set_exception_handler(self._handle_exception)
        # Created first, to report errors before recovery, which can take a long time.
        self._certificates = make_certificates(self.settings, self._say)
        self._codec = make_hare_codec(self.settings)
        recovered = recover(self._ground)
        engine = self._engine = Engine(self._ground, recovered)
        engine.start()
        journal_start(self._ground, engine.authenticator, recovered.report.uuid)
        await engine.runner.synced()
        self.ending.check()
        engine.upkeep.started = True
        engine.space.judge()
        await self._listen(engine)
        self._start_task(self._tick(engine))
        if self._certificates is not None:
            self._start_task(self._certificates.watch(_CERTIFICATES_CHECK_SECONDS))
        if self.settings.sync == "interval":
            self._start_task(engine.sync_now_and_then())

    async def _listen(self, engine: Engine) -> None:
        """Listen for clients.  Raises: CannotListen; TooFewDescriptors."""
        try:
            self._listeners = Listeners(self._ground, engine, self._certificates, self._codec)
            await self._listeners.start()
        except (CannotListen, TooFewDescriptors):
            # The start has been journaled.  Without a record of the stop, the next start would
            # report a crash and mark all messages as redelivered.
            await self.stop(0)
            raise

    def _say(self, level: str, text: str) -> None:
        getattr(self.log, level)(text)

    async def reload(self, read: Callable[[], Settings] | None = None) -> None:
        """Reload the settings that `read` returns, and the certificates.

        `read` raises ConfigError for invalid settings.  Without `read`, only the certificates are
        reloaded.
        """
        if read is not None:
            reload_settings(self._ground, self.engine, self.listeners, read)
        if self._certificates is not None:
            await self._certificates.reload()

    def request_reload(self, read: Callable[[], Settings] | None = None) -> None:
        """Schedule a `reload`."""
        self._start_task(self.reload(read))

    def _handle_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error that the event loop caught; an error in a callback stops the broker.

        Other errors are only logged: system errors on a socket (no descriptor left for accept),
        errors of the HTTP protocol with hostile input, and futures that were never awaited.  The
        HTTP API handles errors in requests itself.
        """
        error = context.get("exception")
        if isinstance(error, BaseException) and "handle" in context:
            self.ending.broken(error)
        else:
            what = unquoted(error) if isinstance(error, BaseException) else "no exception"
            self.log.error("the event loop reports", reason=context["message"], error=what)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task; the broker stops if the task raises an exception."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._task_ended)
        self._tasks.append(task)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.ending.broken(error)

    async def _tick(self, engine: Engine) -> None:
        while True:
            await asyncio.sleep(TICK_MS / 1000)
            engine.runner.tick()
            self._ground.disk.spare(STORE_FILES_MAX)
            engine.upkeep.tick()
            self._tell_letters()

    def _tell_letters(self) -> None:
        """Log dropped dead letters, at most once a minute."""
        dropped = self.broker.core.letters_dropped
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
        """Request a graceful stop."""
        self.ending.request()

    async def wait(self) -> None:
        """Wait for a stop request or a failure."""
        await self.ending.wait()

    @property
    def exit_code(self) -> int:
        """The exit code of the process: 0 unless the broker failed."""
        return self.ending.exit_code

    async def kill(self) -> None:
        """Stop like a killed process: send and sync nothing more, and record no clean stop.

        If the broker has not started, only its resources are released.
        """
        for task in self._tasks:
            task.cancel()
        if self._engine is not None:
            self._engine.runner.fail()
            for shell in self._engine.runner.shells:
                shell.abort()
        if self._listeners is not None:
            self._listeners.stop()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._listeners.http.stop(), FAILED_SECONDS / 2)
            await end_lingering(0, *self._listeners.admissions)
        if self._engine is not None:
            self._engine.abandon()
        self._ground.disk.close()

    async def stop(self, grace_seconds: float = STOP_SECONDS) -> None:
        """Close the connections, sync, and mark the stop as clean.

        Clients have `grace_seconds` to answer connection.close.
        """
        engine = self.engine
        for task in self._tasks:
            task.cancel()
        if self._listeners is not None:
            self._listeners.stop()
            with contextlib.suppress(TimeoutError):
                # After a failure, requests may be waiting for syncs that never happen.
                wait = None if self.exit_code == 0 else FAILED_SECONDS / 2
                await asyncio.wait_for(self._listeners.http.stop(), wait)
        if self.exit_code == 0:
            await self._close_connections(engine, grace_seconds)
        if self._listeners is not None:
            lingers = _LINGER_STOP_MS / 1000 if self.exit_code == 0 else 0
            await end_lingering(lingers, *self._listeners.admissions)
        if self.exit_code == 0:
            # Syncs can cause further records, and the record of the stop must be the last one.
            await engine.runner.synced()
            self.broker.journal_stop(self.clock.wall_ms())
            await engine.runner.synced()
            engine.stop()
            if self.exit_code == 0:
                engine.close_files()
        self._ground.disk.close()

    async def _close_connections(self, engine: Engine, grace_seconds: float) -> None:
        """Send connection.close to all clients, and wait up to `grace_seconds` for the answers."""
        runner = engine.runner
        for shell in runner.shells:
            shell.connection.force("broker forced connection closure with reason 'shutdown'")
        runner.run()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(runner.emptied(), grace_seconds)
        for shell in runner.shells:
            shell.abort()
        await asyncio.sleep(0)
