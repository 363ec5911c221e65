"""A broker's life: start, serve, stop.

Order of start: lock and recover the data directory, put the state back, load definitions, journal
what is new, sync, listen.  Order of stop: listen no more, close connections, sync, mark the stop as
clean.

A node changes nothing of its process: garbage collection, signals, limits and the allocator belong
to whoever runs the process (`cli.serving`), and there may be several nodes in one.
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
from leveret.limits import CERTIFICATES_CHECK_SECONDS, LINGER_STOP_MS, STORE_FILES_MAX
from leveret.server.closing.lingering import end_lingering
from leveret.server.descriptors import TooFewDescriptors
from leveret.server.opening.certificates import Certificates
from leveret.wire.haremq.requests import HareCodec

#: Dead letters that were dropped are told of so often at most.
LETTERS_TOLD_MS: Final = 60_000

#: How long a graceful stop waits for clients to answer its connection.close.
STOP_SECONDS: Final = 2.0

#: How long the end may take once the storage failed, or what nobody expected happened.
FAILED_SECONDS: Final = 0.6


class Node:
    """One broker.

    Before `start` it has what its settings say (`Ground`); `start` puts its state back and makes
    what works for it (`Engine`), and then what it listens on (`Listeners`).
    """

    def __init__(
        self,
        settings: Settings,
        parts: Parts | None = None,
        on_failure: Callable[[int], None] = lambda _code: None,
    ) -> None:
        """Make a broker that is not started.  Raises: StorageFailure.

        `on_failure` is called with the exit code when the storage fails, or what nobody expected
        happens.
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
        #: How many dropped dead letters the log knows of, and when it may be told of more.
        self._letters_told = 0
        self._letters_tell_at_ms = 0

    @property
    def settings(self) -> Settings:
        """The settings that are in effect."""
        return self._ground.settings

    @property
    def engine(self) -> Engine:
        """What works for the broker, from its recovery on."""
        assert self._engine is not None, "the broker is not recovered"
        return self._engine

    @property
    def listeners(self) -> Listeners:
        """What the broker listens on, once it does."""
        assert self._listeners is not None, "the broker does not listen"
        return self._listeners

    @property
    def port(self) -> int:
        """Where the broker listens for AMQP."""
        return self.listeners.port

    # -- start ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover and listen.

        Raises: StorageFailure when the data directory cannot be used; BadDefinitions;
        CannotListen; TooFewDescriptors; BadCertificates.
        """
        asyncio.get_running_loop().set_exception_handler(self._handle_exception)
        # Before recovery, which takes long where there is much.
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
            self._start_task(self._certificates.watch(CERTIFICATES_CHECK_SECONDS))
        if self.settings.sync == "interval":
            self._start_task(engine.sync_now_and_then())

    async def _listen(self, engine: Engine) -> None:
        """Listen for clients.  Raises: CannotListen; TooFewDescriptors."""
        try:
            self._listeners = Listeners(self._ground, engine, self._certificates, self._codec)
            await self._listeners.start()
        except (CannotListen, TooFewDescriptors):
            # The journal records the start.  Without a record of the stop, the next start would
            # report a crash and mark all messages as redelivered.
            await self.stop(0)
            raise

    def _say(self, level: str, text: str) -> None:
        getattr(self.log, level)(text)

    async def reload(self, read: Callable[[], Settings] | None = None) -> None:
        """Take new certificates, if there are some that fit together, and what `read` returns.

        `read` raises ConfigError for settings that do not fit.
        """
        if read is not None:
            reload_settings(self._ground, self.engine, self.listeners, read)
        if self._certificates is not None:
            await self._certificates.reload()

    def request_reload(self, read: Callable[[], Settings] | None = None) -> None:
        """Have `reload` done soon."""
        self._start_task(self.reload(read))

    def _handle_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Judge what the loop caught: from a callback, such as a timer's, it ends the broker.

        The rest passes: what the system refuses a socket (no descriptor left to accept with), what
        HTTP's own protocol makes of hostile input, and futures that nobody waited for.  What a
        request did is judged where it is answered.
        """
        error = context.get("exception")
        if isinstance(error, BaseException) and "handle" in context:
            self.ending.broken(error)
        else:
            what = unquoted(error) if isinstance(error, BaseException) else "no exception"
            self.log.error("the event loop reports", reason=context["message"], error=what)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task whose end by an exception ends the broker, and not the task alone."""
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
        """Say, once a minute at most, that there were too many copies of dead letters."""
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
        """Ask for a graceful stop."""
        self.ending.request()

    async def wait(self) -> None:
        """Wait until a stop is asked for or the storage fails."""
        await self.ending.wait()

    @property
    def exit_code(self) -> int:
        """0 until something ends the broker; then what the process ends with."""
        return self.ending.exit_code

    async def kill(self) -> None:
        """End as a process does that is killed: nothing more is said, synced or marked.

        A broker that did not start lets go of what it had.
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

        Clients have so long to answer that their connections are closed.
        """
        engine = self.engine
        for task in self._tasks:
            task.cancel()
        if self._listeners is not None:
            self._listeners.stop()
            with contextlib.suppress(TimeoutError):
                # After a failure, requests may wait for syncs that never happen.
                wait = None if self.exit_code == 0 else FAILED_SECONDS / 2
                await asyncio.wait_for(self._listeners.http.stop(), wait)
        if self.exit_code == 0:
            await self._close_connections(engine, grace_seconds)
        if self._listeners is not None:
            lingers = LINGER_STOP_MS / 1000 if self.exit_code == 0 else 0
            await end_lingering(lingers, *self._listeners.admissions)
        if self.exit_code == 0:
            # What follows from earlier syncs is journaled before the mark, which must be the last.
            await engine.runner.synced()
            self.broker.journal_stop(self.clock.wall_ms())
            await engine.runner.synced()
            engine.stop()
            if self.exit_code == 0:
                engine.close_files()
        self._ground.disk.close()

    async def _close_connections(self, engine: Engine, grace_seconds: float) -> None:
        """Send every client a connection.close and give it a moment to answer."""
        runner = engine.runner
        for shell in runner.shells:
            shell.connection.force("broker forced connection closure with reason 'shutdown'")
        runner.run()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(runner.emptied(), grace_seconds)
        for shell in runner.shells:
            shell.abort()
        await asyncio.sleep(0)
