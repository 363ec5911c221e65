"""The restoration of a connection's state on a new connection, sans-IO.

The order: declare exchanges, queues and bindings, on a separate channel; reopen every channel of
the application with its modes and consumers; publish unconfirmed messages again in their original
order; send unanswered requests again.

The restoration is a generator that yields requests and continues when all of them are answered or
refused.  Replies arrive through tokens, so the generator never blocks.

Requests that the broker refuses are skipped and reported, with one exception.  The lost connection
may still own an exclusive queue or consumer, because the broker has not noticed the loss yet.  In
that case the attempt fails and is repeated until the broker must have noticed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from leveret.client.events import Replied, Token
from leveret.client.recovery.revival import NoDeliveries
from leveret.client.session.states import ChannelState
from leveret.errors import AccessRefused, ResourceLocked
from leveret.wire.methods.basic import BasicConsume
from leveret.wire.methods.channel import (
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
)
from leveret.wire.methods.queue import QueueDeclare, QueueDeclareOk

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from leveret.client.events import ChannelEnded, ChannelOwner, OwnedChannel
    from leveret.client.session.channel import ChannelSession
    from leveret.client.session.connection import ClientConnection
    from leveret.client.session.memory import ChannelMemory, ConnectionMemory
    from leveret.wire.method import Method

log = logging.getLogger("leveret.client")

#: Requests that were sent together; each stores its outcome.
Step = list["_RestoreRequest"]


class StillHeld(ConnectionError):
    """The lost connection still owns an exclusive queue or consumer; try again later."""


class _RestoreRequest(Token):
    """One request of the script; `outcome` is None until it is answered or refused."""

    __slots__ = ("_restoration", "channel", "method", "outcome")

    is_internal = True

    def __init__(self, restoration: Restoration, method: Method) -> None:
        self._restoration = restoration
        self.method = method
        self.channel: ChannelSession | None = None
        self.outcome: Method | Exception | None = None

    def replied(self, reply: Replied) -> None:
        """Handle the reply."""
        self._take(reply.method)

    def end(self, error: Exception | None) -> None:
        """Handle an error, or the end of a channel that was closed."""
        self._take(error or ChannelCloseOk())

    def _take(self, outcome: Method | Exception) -> None:
        if self.outcome is None:
            self.outcome = outcome
            self._restoration.one_came()


class _Setup(NoDeliveries):
    """The owner of the channel on which exchanges, queues and bindings are redeclared."""

    def __init__(self) -> None:
        self.closing: Token | None = None

    def ended(self, event: ChannelEnded) -> None:
        """Fail the unanswered requests of the script."""
        super().ended(event)
        if self.closing is not None:
            self.closing.end(event.error)


class Restoration:
    """The script for one new connection; `done` is called once, with the error or None.

    `progressed` is called on each answer, because many requests may take long in total.
    `refused` is called with the channel, tag and error of a consumer that could not be started.
    `is_patient` means that the lost connection may still own exclusive queues and consumers.
    """

    def __init__(
        self,
        memory: ConnectionMemory,
        session: ClientConnection,
        done: Callable[[Exception | None], None],
        refused: Callable[[ChannelMemory, str, Exception], None],
        progressed: Callable[[], None],
        is_patient: bool = True,
    ) -> None:
        self._is_patient = is_patient
        self._refused = refused
        self._progressed = progressed
        self._memory = memory
        self._session = session
        self._done = done
        self._steps = self._script()
        self._waiting = 0
        self._is_running = False
        self._is_over = False
        self._setup: ChannelSession | None = None
        self._setup_owner = _Setup()
        self._channels: dict[OwnedChannel, ChannelMemory] = {}
        #: The errors of requests that the broker refused.
        self.failures: list[Exception] = []

    # -- running the script ------------------------------------------------------------------------

    def start(self) -> None:
        """Start the script on the open session."""
        self._go_on(None)

    def stop(self) -> None:
        """Stop the script, because the connection is lost again."""
        self._is_over = True

    def one_came(self) -> None:
        """Count an answered request; continue the script after the last answer."""
        if not self._is_over:
            self._progressed()
        self._waiting -= 1
        if self._waiting == 0 and not self._is_running:
            self._go_on(None)

    def takes_end(self, event: ChannelEnded) -> bool:
        """Handle the end of a channel; return whether the channel is still being restored.

        It is not being restored if the application has closed it and waits for its end.
        """
        memory = self._channels.get(event.channel)
        if self._is_over or memory is None:
            return False
        goes_on = memory in self._memory.channels
        for token in event.tokens:
            if goes_on or token.is_internal:
                token.end(event.error)
        return goes_on

    def _go_on(self, _: None) -> None:
        """Run the script until it has to wait or ends."""
        error: Exception | None = None
        self._is_running = True
        try:
            while not self._is_over:
                step = next(self._steps)
                if any(asked.outcome is None for asked in step):
                    return
        except StopIteration:
            pass
        except Exception as failure:  # noqa: BLE001 -- it is passed to `done`
            error = failure
        finally:
            self._is_running = False
        if not self._is_over:
            self._is_over = True
            self._done(error)

    def _ask(self, channel: ChannelSession, methods: Sequence[Method]) -> Step:
        """Send requests on one channel."""
        step = []
        for method in methods:
            asked = _RestoreRequest(self, method)
            asked.channel = channel
            self._waiting += 1
            channel.request(method, asked)
            step.append(asked)
        return step

    def _open(self, owner: ChannelOwner, memory: ChannelMemory | None) -> _RestoreRequest:
        """Open a channel."""
        asked = _RestoreRequest(self, ChannelOpen())
        self._waiting += 1
        asked.channel = self._session.open_channel(owner, asked, memory)
        return asked

    # -- the script --------------------------------------------------------------------------------

    def _script(self) -> Generator[Step]:
        """Restore everything."""
        yield from self._declare()
        yield from self._open_channels()
        self._memory.is_recovering = False
        self._send_again()

    def _declare(self) -> Generator[Step]:
        """Redeclare exchanges, queues and bindings."""
        topology = self._memory.topology
        yield from self._try_each(topology.exchanges())
        for name, method in topology.queues():
            if not method.queue:
                yield from self._declare_generated(name, method)
        yield from self._try_each([method for _, method in topology.queues() if method.queue])
        yield from self._try_each(topology.bindings())
        yield from self._close_setup()

    def _declare_generated(self, name: str, method: QueueDeclare) -> Generator[Step]:
        """Redeclare a queue with a broker-generated name, unless it still exists."""
        topology = self._memory.topology
        if not method.exclusive:
            now = QueueDeclare(queue=topology.current(name), passive=True)
            outcomes = yield from self._try_all([now])
            if not isinstance(outcomes[0], Exception):
                return
        outcomes = yield from self._try_all([method])
        if isinstance(outcomes[0], QueueDeclareOk):
            topology.renamed(name, outcomes[0].queue)
        else:
            self._judge(method, outcomes[0])

    def _try_each(self, methods: Sequence[Method]) -> Generator[Step]:
        """Send independent requests; report refusals."""
        outcomes = yield from self._try_all(methods)
        for method, outcome in zip(methods, outcomes, strict=True):
            self._judge(method, outcome)

    def _try_all(
        self, methods: Sequence[Method]
    ) -> Generator[Step, None, list[Method | Exception]]:
        """Send requests together; if a refusal closes the channel, continue on another."""
        outcomes: list[Method | Exception] = []
        while len(outcomes) < len(methods):
            channel = self._setup
            if channel is None or channel.state is not ChannelState.OPEN:
                self._setup_owner = _Setup()
                opening = self._open(self._setup_owner, None)
                yield [opening]
                channel = self._setup = _opened(opening)
            step = self._ask(channel, methods[len(outcomes) :])
            yield step
            for asked in step:
                assert asked.outcome is not None
                outcomes.append(asked.outcome)
                if isinstance(asked.outcome, Exception):
                    self._session.check_open()
                    break
        return outcomes

    def _close_setup(self) -> Generator[Step]:
        """Close the setup channel, to free its number."""
        channel, self._setup = self._setup, None
        if channel is not None and channel.state is ChannelState.OPEN:
            closing = self._setup_owner.closing = _RestoreRequest(self, ChannelClose())
            self._waiting += 1
            channel.close()
            yield [closing]

    def _judge(self, method: Method, outcome: Method | Exception) -> None:
        """Report a refusal.  Raises: StillHeld if another attempt may succeed."""
        if not isinstance(outcome, Exception):
            return
        exclusive = bool(getattr(method, "exclusive", False))
        if exclusive and self._is_patient and isinstance(outcome, ResourceLocked):
            raise StillHeld(f"{method.NAME} after a lost connection: {outcome}")
        log.warning("%r could not be restored after a lost connection: %s", method, outcome)
        self.failures.append(outcome)

    def _open_channels(self) -> Generator[Step]:
        """Reopen the application's channels, with their modes and consumers."""
        memories = list(self._memory.channels)
        while memories:
            opening = [(memory, self._open(memory.owner, memory)) for memory in memories]
            self._channels |= {_channel(asked): memory for memory, asked in opening}
            yield [asked for _, asked in opening]
            asking = []
            for memory, asked in opening:
                channel = _opened(asked)
                if memory not in self._memory.channels:
                    channel.close()  # the application has closed its channel
                    continue
                memory.owner.resumed(channel)
                self._answer_open(memory)
                asking.append((memory, self._ask(channel, memory.modes())))
            yield [asked for _, step in asking for asked in step]
            # A refusal closes the channel: reopen it without the refused request.
            memories = [memory for memory, step in asking if self._is_refused(memory, step)]

    def _is_refused(self, memory: ChannelMemory, step: Step) -> bool:
        """Return whether a refused request closed the channel, and drop that request."""
        for asked in step:
            method = asked.method
            if not isinstance(asked.outcome, Exception):
                continue
            self._session.check_open()
            if memory not in self._memory.channels:
                return False  # the application has closed the channel
            if not isinstance(method, BasicConsume):
                raise asked.outcome
            is_held = method.exclusive and isinstance(asked.outcome, AccessRefused)
            if is_held and self._is_patient:
                raise StillHeld(f"{method.NAME} after a lost connection: {asked.outcome}")
            self._refused(memory, method.consumer_tag, asked.outcome)
            return True
        return False

    def _answer_open(self, memory: ChannelMemory) -> None:
        """Resolve the tokens that still wait for the channel's first open."""
        for pair in list(memory.unanswered):
            if isinstance(pair[0], ChannelOpen):
                memory.unanswered.remove(pair)
                pair[1].replied(Replied(pair[1], ChannelOpenOk()))

    def _send_again(self) -> None:
        """Publish unconfirmed messages again and repeat unanswered requests."""
        channels = {
            share: channel
            for channel in self._session.channels.values()
            if channel.confirms is not None and channel.state is ChannelState.OPEN
            for share in channel.count_again()
        }
        for piece in self._memory.kept.take():
            for share, sequence, publish in piece.publishes():
                if share in channels:
                    channels[share].send_again(sequence, publish)
        for channel in list(self._session.channels.values()):
            channel.recovered()
            memory = channel.memory
            if memory is not None:
                _ask_again(channel, memory)


def _ask_again(channel: ChannelSession, memory: ChannelMemory) -> None:
    """Send unanswered requests again."""
    for method, token in memory.take_unanswered():
        try:
            channel.request(method, token)
        except Exception as error:  # noqa: BLE001 -- it is passed to the token
            token.end(error)


def _channel(asked: _RestoreRequest) -> ChannelSession:
    """Return the channel of a request."""
    assert asked.channel is not None
    return asked.channel


def _opened(asked: _RestoreRequest) -> ChannelSession:
    """Return the opened channel.  Raises: the error of the request."""
    if isinstance(asked.outcome, Exception):
        raise asked.outcome
    return _channel(asked)
