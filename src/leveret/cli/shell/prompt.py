"""The prompt: reads lines with prompt_toolkit, with completion and history, and runs them.

Ctrl-C ends the running command, not the shell.  Ctrl-D on an empty line ends the shell.
"""

from __future__ import annotations

import shlex
import time
import traceback
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, Literal

from leveret.cli import exits
from leveret.cli.printing import output
from leveret.cli.shell.grammar import Kind, ShellCommand
from leveret.cli.shell.running import COMMANDS, ShellExit, report, run_line
from leveret.escaping import escaped

try:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
    from prompt_toolkit.document import Document
except ImportError as error:
    raise exits.Failure(
        f"{error}: the prompt needs the extra `shell` (in a checkout: pip install '.[shell]'); "
        "commands from a pipe do not need it",
        exits.SYSTEM,
    ) from None

if TYPE_CHECKING:
    from leveret.cli.shell.session import ShellState

#: The maximum number of names offered for completion.
_COMPLETIONS_MAX: Final = 1_000


#: The time for which completion reuses the broker's list of queues or exchanges.
_FRESH_SECONDS: Final = 2.0


def run_prompt(session: ShellState) -> int:
    """Read and run lines until Ctrl-D or `exit`; return the exit code."""
    from leveret.cli.shell.history import FileHistory, history_path

    session.interactive = True
    prompts: PromptSession[str] = PromptSession(
        history=FileHistory(history_path()),
        completer=ThreadedCompleter(NameCompleter(session)),
        complete_while_typing=False,
    )
    output.say(f"connected to {session.address}; help lists the commands, Ctrl-D ends", err=True)
    where = escaped(f"leveret {session.parameters.vhost}> ")
    while True:
        try:
            line = prompts.prompt(where)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return exits.OK
        try:
            run_line(session, line)
        except ShellExit:
            return exits.OK
        except KeyboardInterrupt:
            session.abandon()
            output.say("leveret: interrupted", err=True)
        except exits.Failure as failure:
            report(failure)
        except BrokenPipeError:
            raise
        except Exception as fault:  # noqa: BLE001 (a user gets one line and can continue)
            report(_fault(fault))


def _fault(fault: Exception) -> exits.Failure:
    """Convert an unexpected exception to a failure that asks the user to report it."""
    frame = traceback.extract_tb(fault.__traceback__)[-1]
    place = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
    text = f"a bug in leveret, please report it: {type(fault).__name__}: {fault} ({place})"
    return exits.Failure(text, exits.INTERNAL)


class NameCompleter(Completer):
    """Completes commands, options and the names of queues and exchanges."""

    def __init__(self, session: ShellState) -> None:
        self._session = session
        self._names: dict[str, tuple[float, list[str]]] = {}

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Yield the completions of the word before the cursor."""
        before = document.text_before_cursor
        words = before.split()
        typed = "" if not before or before[-1].isspace() else words.pop()
        found = 0
        for text in self._choices(words, typed):
            if text.startswith(typed) and found < _COMPLETIONS_MAX:
                found += 1
                yield Completion(text, start_position=-len(typed))

    def _choices(self, words: list[str], typed: str) -> Iterator[str]:
        """Yield the possible next words."""
        command = _command_of(words)
        if command is None:
            yield from _paths_after(words)
            return
        arguments = words[len(command.path.split()) :]
        if typed.startswith("--"):
            yield from (option.name for option in command.options)
            return
        last = command.option(arguments[-1]) if arguments else None
        if last is not None and last.metavar:
            yield from self._values(last.kind, last.choices)
            return
        word = command.word_at(_place(command, arguments))
        if word is not None:
            yield from self._values(word.kind, word.choices)

    def _values(self, kind: Kind, choices: tuple[str, ...]) -> Iterator[str]:
        """Yield the possible values of a word or an option."""
        yield from choices
        if kind == "command":
            yield from (command.path for command in COMMANDS)
        elif kind in ("queue", "exchange"):
            for name in self._listed(kind):
                # Do not offer names with control characters.
                if name.isprintable():
                    yield shlex.quote(name)

    def _listed(self, kind: Literal["queue", "exchange"]) -> list[str]:
        """Return the names of queues or exchanges, at most two seconds old."""
        when, names = self._names.get(kind, (float("-inf"), []))
        if time.monotonic() - when > _FRESH_SECONDS:
            names = self._session.names(kind)
            self._names[kind] = (time.monotonic(), names)
        return names


def _command_of(words: list[str]) -> ShellCommand | None:
    """Return the command at the beginning of `words`, or None if it is incomplete."""
    for command in COMMANDS:
        path = command.path.split()
        if words[: len(path)] == path:
            return command
    return None


def _paths_after(words: list[str]) -> Iterator[str]:
    """Yield the next words of the commands that begin with these words."""
    seen = set()
    for command in COMMANDS:
        path = command.path.split()
        if len(path) > len(words) and path[: len(words)] == words:
            following = path[len(words)]
            if following not in seen:
                seen.add(following)
                yield following


def _place(command: ShellCommand, arguments: list[str]) -> int:
    """Return the number of arguments, without options and their values."""
    place = 0
    skip = False
    for text in arguments:
        option = command.option(text)
        if skip:
            skip = False
        elif option is not None:
            skip = bool(option.metavar)
        elif not text.startswith("--"):
            place += 1
    return place
