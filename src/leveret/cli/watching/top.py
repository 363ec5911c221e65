"""`leveret top`: the activity of a broker, refreshed until `q` or Ctrl-C.

Each snapshot costs the broker time, mostly for sorting if there are many queues.  The pause before
the next snapshot is therefore at least `PAUSES` times the duration of the last one.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from leveret.cli import exits
from leveret.cli.helping.commands import single
from leveret.cli.helping.completing import vhost_names
from leveret.cli.place import Api, BrokerOptions, Config, ContextName, DataDir

if TYPE_CHECKING:
    from rich.console import Console, Group

    from leveret.cli.contexts.remote import Remote
    from leveret.cli.watching.look import Snapshot

#: The minimum pause, in durations of the last snapshot, so that a broker spends at most a fifth of
#: its time on one viewer.
PAUSES: Final = 4.0

#: The time between two snapshots (seconds).
INTERVAL: Final = 2.0
INTERVAL_MIN: Final = 0.1
INTERVAL_MAX: Final = 3600.0

#: The number of queues shown if standard output is not a terminal, and the maximum on a terminal.
_QUEUES_SHOWN: Final = 40
_QUEUES_MAX: Final = 500

#: The keys that select a sort order.
_KEYS: Final = {
    "m": "messages",
    "p": "publish",
    "d": "deliver",
    "a": "ack",
    "c": "consumers",
    "n": "name",
}

_HELP: Final = "q ends; sort by m messages, p published, d delivered, a acked, c consumers, n name"

#: The exit code of a process ended by SIGTERM, as in a shell.
_TERMINATED: Final = 128 + signal.SIGTERM

Sort = Literal["messages", "publish", "deliver", "ack", "consumers", "name"]


def top(
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            "-i",
            min=INTERVAL_MIN,
            max=INTERVAL_MAX,
            metavar="SECONDS",
            help="The time between updates.",
        ),
    ] = INTERVAL,
    sort: Annotated[
        Sort,
        typer.Option(
            "--sort",
            "-s",
            metavar="messages|publish|deliver|ack|consumers|name",
            help="The sort order.",
        ),
    ] = "messages",
    vhost: Annotated[
        str,
        typer.Option(
            "--vhost",
            "-p",
            metavar="VHOST",
            autocompletion=vhost_names,
            help="Only queues of this vhost.",
        ),
    ] = "",
    data_dir: DataDir = None,
    config: Config = None,
    api: Api = "",
    name: ContextName = "",
) -> int:
    """Watch the activity of a broker until `q` or Ctrl-C.

    If standard output is not a terminal, one screen is printed, after two snapshots.
    """
    # `min` and `max` accept NaN.
    if not INTERVAL_MIN <= interval <= INTERVAL_MAX:
        raise exits.Failure(f"--interval {interval}: it must be a number of seconds", exits.USAGE)
    watch = Watch(BrokerOptions(data_dir, config, api, name).find_api(), vhost, sort, interval)
    if sys.stdout.isatty():
        _show_live(watch)
    else:
        _show_once(watch)
    return exits.OK


@dataclass
class Watch:
    """The broker to watch, and the last two snapshots of it."""

    api: Path | Remote
    vhost: str
    sort: str
    interval: float
    look: Snapshot | None = None
    before: Snapshot | None = None
    #: The reason why the last snapshot failed, or "".
    failed: str = ""

    def take(self, queues: int) -> None:
        """Take a snapshot.  Raises: Failure."""
        from leveret.cli.watching.look import look_at_queues

        count = max(1, min(queues, _QUEUES_MAX))
        found = look_at_queues(self.api, self.vhost, self.sort, count)
        self.before, self.look = self.look, found
        self.failed = ""

    def try_again(self, queues: int) -> None:
        """Take a snapshot; if that fails, keep the last one and the reason."""
        try:
            self.take(queues)
        except exits.Failure as failure:
            self.failed = "; ".join(failure.lines)

    @property
    def pause(self) -> float:
        """The time until the next snapshot (seconds)."""
        return max(self.interval, self.rest)

    @property
    def rest(self) -> float:
        """The minimum pause, from the duration of the last snapshot (seconds)."""
        return 0.0 if self.look is None else PAUSES * self.look.seconds

    def screen(self, note: str) -> Group:
        """Return the screen for the last snapshot."""
        from leveret.cli.watching.screen import screen_of

        assert self.look is not None
        return screen_of(self.look, self.before, self.sort, self.failed or note)


def _show_once(watch: Watch) -> None:
    """Print one screen.  Raises: Failure."""
    watch.take(_QUEUES_SHOWN)
    time.sleep(watch.pause)
    watch.take(_QUEUES_SHOWN)
    _console().print(watch.screen(""))


def _show_live(watch: Watch) -> None:
    """Show screens until a key or a signal.  Raises: Failure if the first snapshot fails."""
    from rich.live import Live

    from leveret.cli.watching.screen import LINES_APART

    console = _console()
    # Before the switch to the alternate screen, so that a failure is printed as usual.
    watch.take(console.height - LINES_APART)
    live = Live(
        watch.screen(_HELP), console=console, screen=True, auto_refresh=False,
        redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip
    with _ended_by_sigterm(), reading_keys() as keys:
        try:
            # Not in a `with` statement, because an interrupt in its entry would leave the terminal
            # changed.
            live.start(refresh=True)
            while _goes_on(watch, keys, lambda: live.update(watch.screen(_HELP), refresh=True)):
                watch.try_again(console.height - LINES_APART)
                live.update(watch.screen(_HELP), refresh=True)
        finally:
            live.stop()


def _goes_on(watch: Watch, keys: Keys, redraw: Callable[[], None]) -> bool:
    """Wait for the next snapshot and handle keys; return False if a key ends the command."""
    deadline = time.monotonic() + watch.pause
    while (left := deadline - time.monotonic()) > 0:
        pressed = keys.wait(left)
        for key in pressed:
            if key in "qQ":
                return False
            if key in _KEYS and watch.sort != _KEYS[key]:
                watch.sort = _KEYS[key]
                # As soon as the duration of the last snapshot allows.
                deadline = min(deadline, time.monotonic() + watch.rest)
                redraw()
    return True


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Make SIGTERM raise SystemExit, so that the terminal is restored."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Keys:
    """The keys pressed in a terminal, if standard input is one, without echo or line editing."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str:
        """Return the keys pressed within a time, or an empty string."""
        watched = [] if self._descriptor is None else [self._descriptor]
        if not select.select(watched, [], [], max(0.0, seconds))[0]:
            return ""
        assert self._descriptor is not None
        data = os.read(self._descriptor, 1024)
        if not data:
            # The terminal is closed.
            self._descriptor = None
        return data.decode("ascii", "replace")


@contextmanager
def reading_keys() -> Iterator[Keys]:
    """Yield the keys of the terminal, and restore its mode at the end.

    Ctrl-C still interrupts.  Ctrl-Z is disabled, because a stopped command would leave the terminal
    in this mode.
    """
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(descriptor, termios.TCSADRAIN, changed)
    try:
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _console() -> Console:
    from leveret.cli.printing.console import StandardOutput

    return StandardOutput()


def app() -> typer.Typer:
    """Return the command."""
    return single("top", top)
