"""Convert a rabbitmq.conf to settings, and name the lines that have no counterpart.

The format is a `key = value` on each line; `#` begins a comment, and `$(NAME)` stands for a
variable of the environment.  The older formats, `rabbitmq.config` and `advanced.config`, are Erlang
terms and are refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from leveret.cli import exits
from leveret.cli.settings.keys import CONVERTED, UNSUPPORTED, Unconvertible, Value
from leveret.config import ConfigError, given

_VARIABLE: Final = re.compile(r"\$\((\w+)\)")
_LINE: Final = re.compile(r"\s*([^\s=#]+)\s*=\s*(.*)")

#: The comment in front of the settings if the file names no listener.
_LOOPBACK: Final = (
    "# RabbitMQ listens on all addresses by default, Leveret only on 127.0.0.1:",
    '# host = "0.0.0.0"',
)

#: RabbitMQ's prefix of a value that only its key can decrypt.
_ENCRYPTED: Final = "encrypted:"

#: Characters that TOML forbids, or a terminal obeys, and that JSON leaves unescaped.
_UNESCAPED: Final = re.compile("[\x7f-\x9f]")

_UNKNOWN: Final = "this key is not known; if a plugin of RabbitMQ uses it, it has no effect here"


@dataclass(frozen=True)
class ConfLine:
    """A line of the file."""

    line: int
    key: str
    value: str


@dataclass(frozen=True)
class Problem:
    """A line without a counterpart, and the reason."""

    line: int
    key: str
    reason: str


@dataclass
class Conversion:
    """The settings with the lines that they come from, and the lines without a counterpart."""

    settings: dict[str, Value] = field(default_factory=dict)
    origins: dict[str, list[ConfLine]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def toml_lines(self) -> Iterator[str]:
        """Yield the lines of the settings file."""
        if not self.settings.keys() & {"host", "amqp"}:
            yield from _LOOPBACK
        for name, value in self.settings.items():
            for line in self.origins[name]:
                yield f"# {line.key} (line {line.line})"
            yield f"{name} = {_toml(value)}"

    def refuse(self, name: str, reason: str) -> None:
        """Remove a setting with an invalid value, and report the lines that it comes from."""
        del self.settings[name]
        self.problems += [Problem(one.line, one.key, reason) for one in self.origins[name]]


def convert(text: str, environment: Mapping[str, str]) -> Conversion:
    """Return the settings of a rabbitmq.conf.  Raises: Failure if it has another format."""
    found = Conversion()
    # As in RabbitMQ, the last of several lines with one key counts.
    for line in {line.key: line for line in read_conf(text)}.values():
        try:
            value = _VARIABLE.sub(lambda name: _variable(name[1], environment), line.value)
            made = _convert_line(ConfLine(line.line, line.key, value), found.settings)
        except Unconvertible as error:
            found.problems.append(Problem(line.line, line.key, str(error)))
            continue
        for name, setting in made.items():
            found.settings[name] = setting
            found.origins.setdefault(name, []).append(line)
    _check(found)
    found.problems.sort(key=lambda problem: problem.line)
    return found


def read_conf(text: str) -> Iterator[ConfLine]:
    """Yield the lines of a rabbitmq.conf.  Raises: Failure if it has another format."""
    # Not `splitlines`, since only a line feed ends a line; Windows editors add the byte order mark.
    for number, raw in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        quoted = re.fullmatch(r"\s*([^\s=#]+)\s*=\s*'([^']*)'\s*(#.*)?", raw)
        # As in RabbitMQ, a `#` in a value without quotes begins a comment, too.
        bare = raw.partition("#")[0].strip()
        found = quoted or _LINE.fullmatch(bare)
        if found is not None:
            yield ConfLine(number, found[1], found[2])
        elif bare:
            reason = (
                f"line {number} is not `key = value`: a rabbitmq.conf is needed, not the older "
                "rabbitmq.config or an advanced.config"
            )
            raise exits.Failure(reason, exits.USAGE)


def _variable(name: str, environment: Mapping[str, str]) -> str:
    """Return the value of a variable that a line names.  Raises: Unconvertible."""
    if name not in environment:
        raise Unconvertible(f"the environment has no variable {name}: set it, and convert again")
    value = environment[name]
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Unconvertible(f"the variable {name} is not UTF-8") from None
    return value


def _toml(value: Value) -> str:
    """Return a value in TOML, whose strings and lists are nearly those of JSON."""
    text = json.dumps(value, ensure_ascii=False)
    return _UNESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _convert_line(line: ConfLine, settings: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return the settings for a line, with the earlier ones at hand.  Raises: Unconvertible."""
    for pattern, converter in CONVERTED:
        match = pattern.fullmatch(line.key)
        if match is not None:
            if line.value.startswith(_ENCRYPTED):
                raise Unconvertible(
                    "the value is encrypted: decrypt it with rabbitmqctl decode, and convert again"
                )
            try:
                return converter(line.value, match, settings)
            except ValueError as error:
                raise Unconvertible(f"{line.value!r}: {error}") from None
    for pattern, reason in UNSUPPORTED:
        if pattern.fullmatch(line.key):
            raise Unconvertible(reason)
    raise Unconvertible(_UNKNOWN)


def _check(found: Conversion) -> None:
    """Remove the settings whose values a broker would refuse."""
    while True:
        try:
            given(found.settings)
        except ConfigError as error:
            for text in error.lines:
                name, _, reason = text.removesuffix(" (keyword argument)").partition(": ")
                found.refuse(name, f"{name} would be refused: {reason}")
        else:
            return
