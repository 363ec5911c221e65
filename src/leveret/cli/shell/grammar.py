"""The grammar of the shell's commands: words and options, split as by a Unix shell.

A line is split at spaces outside quotes.  Options may be anywhere before `--`, after which every
word is an argument.  Parsing, help and completion use the same table of commands.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from leveret.cli import exits

if TYPE_CHECKING:
    from leveret.cli.shell.session import ShellState

#: The type of a word, for its completion.
Kind = Literal["text", "queue", "exchange", "command"]

#: The number of characters of a word that an error quotes.
_QUOTED_MAX: Final = 60

#: The maximum value of an option in seconds: a year.
_SECONDS_MAX: Final = 365 * 24 * 3600


@dataclass(frozen=True)
class Word:
    """A positional argument of a command."""

    name: str
    kind: Kind = "text"
    required: bool = True
    #: Whether the argument also takes all further words.
    many: bool = False
    choices: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        """The word in a usage line."""
        shown = f"{self.name}..." if self.many else self.name
        return shown if self.required else f"[{shown}]"


@dataclass(frozen=True)
class Option:
    """An option of a command; without a metavar it is a flag."""

    name: str
    help: str
    metavar: str = ""
    kind: Kind = "text"
    choices: tuple[str, ...] = ()
    many: bool = False

    @property
    def usage(self) -> str:
        """The option in a usage line."""
        shown = f"{self.name} {self.metavar}" if self.metavar else self.name
        return f"[{shown}]..." if self.many else f"[{shown}]"


@dataclass
class Given:
    """The arguments of one line."""

    words: dict[str, list[str]] = field(default_factory=dict)
    options: dict[str, list[str]] = field(default_factory=dict)

    def word(self, name: str) -> str:
        """Return a word, or "" if it was not given."""
        return self.words.get(name, [""])[0]

    def all_words(self, name: str) -> list[str]:
        """Return the words of an argument with `many`."""
        return self.words.get(name, [])

    def flag(self, option: str) -> bool:
        """Return whether a flag was given."""
        return option in self.options

    def text(self, option: str, otherwise: str = "") -> str:
        """Return the value of an option."""
        return self.options.get(option, [otherwise])[-1]

    def texts(self, option: str) -> list[str]:
        """Return all values of an option."""
        return self.options.get(option, [])

    def number(self, option: str, otherwise: int, least: int) -> int:
        """Return the integer value of an option, at least `least`.  Raises: Failure."""
        if option not in self.options:
            return otherwise
        text = self.text(option)
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least or number >= 1 << 31:
            raise exits.Failure(
                f"{option} takes a number of at least {least}, not {shown(text)}", exits.USAGE
            )
        return number

    def seconds(self, option: str) -> float:
        """Return the value of an option in seconds, by default 0.  Raises: Failure."""
        text = self.text(option, "0")
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds <= _SECONDS_MAX:
            raise exits.Failure(f"{option} takes seconds, not {shown(text)}", exits.USAGE)
        return seconds


@dataclass(frozen=True)
class ShellCommand:
    """A command of the shell: one or two words, its arguments, and the function that runs it.

    The function returns the line's exit code.
    """

    path: str
    help: str
    run: Callable[[ShellState, Given], int]
    words: tuple[Word, ...] = ()
    options: tuple[Option, ...] = ()

    @property
    def usage(self) -> str:
        """The usage line of the command."""
        parts = [word.usage for word in self.words] + [option.usage for option in self.options]
        return " ".join([self.path, *parts])

    def option(self, name: str) -> Option | None:
        """Return an option, or None if the command does not have it."""
        return next((one for one in self.options if one.name == name), None)

    def word_at(self, place: int) -> Word | None:
        """Return the argument at a position, or None if the command has fewer arguments."""
        if place < len(self.words):
            return self.words[place]
        return self.words[-1] if self.words and self.words[-1].many else None


def shown(text: str) -> str:
    """Return a word in quotes, shortened for an error message."""
    return repr(text) if len(text) <= _QUOTED_MAX else f"{text[:_QUOTED_MAX]!r}…"


def split(line: str) -> list[str]:
    """Return the words of a line.  Raises: Failure for an unclosed quote."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""  # `#` is a wildcard in binding keys, not a comment
    try:
        return list(lexer)
    except ValueError:
        raise exits.Failure(
            "a quote is not closed, or a backslash ends the line", exits.USAGE
        ) from None


def find(commands: Sequence[ShellCommand], words: Sequence[str]) -> tuple[ShellCommand, list[str]]:
    """Return the command at the beginning of `words`, and its arguments.  Raises: Failure."""
    for size in (2, 1):
        path = " ".join(words[:size])
        for command in commands:
            if command.path == path and len(words) >= size:
                return command, list(words[size:])
    group = [command.path for command in commands if command.path.split()[0] == words[0]]
    if group:
        raise exits.Failure(f"{words[0]} needs another word", exits.USAGE, *group)
    raise exits.Failure(f"unknown command {shown(words[0])}; try help", exits.USAGE)


def parse(command: ShellCommand, arguments: Sequence[str]) -> Given:
    """Return the arguments of a command.  Raises: Failure, with the usage."""
    given = Given()
    place = 0
    rest: Iterator[str] = iter(arguments)
    only_words = False
    for text in rest:
        if text == "--" and not only_words:
            only_words = True
        elif text.startswith("--") and not only_words:
            _take_option(command, given, text, rest)
        else:
            word = command.word_at(place)
            if word is None:
                raise _wrong(command, f"too many arguments: {shown(text)}")
            _check_choice(command, word.name, word.choices, text)
            given.words.setdefault(word.name, []).append(text)
            place += 1
    for word in command.words[place:]:
        if word.required:
            raise _wrong(command, f"{word.name} is missing")
    return given


def _take_option(command: ShellCommand, given: Given, text: str, rest: Iterator[str]) -> None:
    """Parse an option and its value.  Raises: Failure."""
    name, equals, value = text.partition("=")
    option = command.option(name)
    if option is None:
        raise _wrong(command, f"unknown option {shown(name)}")
    if not option.metavar:
        if equals:
            raise _wrong(command, f"{name} takes no value")
        given.options[name] = []
        return
    if not equals:
        following = next(rest, None)
        if following is None:
            raise _wrong(command, f"{name} needs a value: {option.metavar}")
        value = following
    _check_choice(command, name, option.choices, value)
    if name in given.options and not option.many:
        raise _wrong(command, f"{name} is given twice")
    given.options.setdefault(name, []).append(value)


def _check_choice(command: ShellCommand, name: str, choices: tuple[str, ...], value: str) -> None:
    """Check that a value is one of the choices, if there are any.  Raises: Failure."""
    if choices and value not in choices:
        raise _wrong(command, f"{name} must be one of {', '.join(choices)}, not {shown(value)}")


def _wrong(command: ShellCommand, text: str) -> exits.Failure:
    """Return the failure of a line, with the command's usage."""
    return exits.Failure(text, exits.USAGE, f"usage: {command.usage}")
