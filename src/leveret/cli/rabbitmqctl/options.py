"""The common options of RabbitMQ's commands, accepted anywhere on the command line."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret.cli import exits
from leveret.cli.contexts.kept import Contexts
from leveret.cli.place import BrokerOptions

#: The options with a value, and their keys in `CommandLine.values`.
_VALUES: Final = {
    "-p": "vhost",
    "--vhost": "vhost",
    "-n": "node",
    "--node": "node",
    "-t": "timeout",
    "--timeout": "timeout",
    "--formatter": "formatter",
    "-r": "printer",
    "--printer": "printer",
    "--erlang-cookie": "cookie",
    "--script-name": "script",
    "--data-dir": "data_dir",
    "--config": "config",
    "--api": "api",
    "-A": "api",
    "--context": "context",
}

#: The options without a value, and their names in `CommandLine.flags`.
_FLAGS: Final = {
    "-q": "quiet",
    "--quiet": "quiet",
    "-s": "silent",
    "--silent": "silent",
    "--no-table-headers": "no_headers",
    "--table-headers": "headers",
    "--dry-run": "dry_run",
    "-l": "long_names",
    "--longnames": "long_names",
    "--print-stacktrace": "stacktrace",
    "--local": "local",
    "--online": "online",
}

#: The output formats.
FORMATTERS: Final = ("table", "pretty_table", "json", "csv")


@dataclass
class CommandLine:
    """A command line: the command, its own arguments, and the common options."""

    command: str = ""
    arguments: list[str] = field(default_factory=list)
    values: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)

    @property
    def vhost(self) -> str:
        """The vhost of the command."""
        return self.values.get("vhost", "/")

    @property
    def formatter(self) -> str:
        """The output format."""
        return self.values.get("formatter", "table")

    @property
    def banner(self) -> bool:
        """Whether to print a line that announces the command's output."""
        return not self.flags & {"quiet", "silent"} and self.formatter not in {"json", "csv"}

    @property
    def headers(self) -> bool:
        """Whether to print column names."""
        return not self.flags & {"silent", "no_headers"}

    def seconds(self, default: float) -> float:
        """Return the time limit of the command.  Raises: Failure."""
        text = self.values.get("timeout")
        if text is None or text == "infinity":
            return default
        try:
            seconds = float(text)
        except ValueError:
            seconds = -1.0
        if not 0 <= seconds < 1e9:
            raise exits.Failure(f"--timeout {text!r}: it must be a number of seconds", exits.USAGE)
        return seconds

    def place(self) -> BrokerOptions:
        """Return the options that name the command's broker.  Raises: Failure."""
        data_dir, config = self.values.get("data_dir"), self.values.get("config")
        context = self.values.get("context", "")
        if "node" in self.values and not context:
            context = _context_of(self.values["node"])
        return BrokerOptions(
            Path(data_dir) if data_dir else None,
            Path(config) if config else None,
            self.values.get("api", ""),
            context,
        )


def read_line(words: list[str]) -> CommandLine:
    """Parse the words of a command line.  Raises: Failure."""
    line = CommandLine()
    left = iter(words)
    for word in left:
        name, equals, value = word.partition("=")
        if word == "--":
            # `--` stays, so that the command does not parse options in the rest either.
            line.arguments += ["--", *left]
        elif name in _VALUES:
            line.values[_VALUES[name]] = value if equals else _next(left, name)
        elif word in _FLAGS:
            line.flags.add(_FLAGS[word])
        elif not line.command and not word.startswith("-"):
            line.command = word
        else:
            line.arguments.append(word)
    if not line.command and line.arguments[:1] == ["--"] and len(line.arguments) > 1:
        _, line.command, *line.arguments = line.arguments
    if line.formatter not in FORMATTERS:
        text = f"--formatter {line.formatter!r}: known formats: {', '.join(FORMATTERS)}"
        raise exits.Failure(text, exits.USAGE)
    return line


def _next(left: Iterator[str], name: str) -> str:
    """Return the value of an option.  Raises: Failure."""
    value = next(left, None)
    if value is None:
        raise exits.Failure(f"{name} needs a value", exits.USAGE)
    return value


def _context_of(node: str) -> str:
    """Return the context for a node's name, or "" if the node is on this machine.

    An unknown name is refused, because a script for another broker must not change the local one.

    Raises: Failure.
    """
    contexts = Contexts.load()
    if node in contexts.by_name:
        return node
    host = node.partition("@")[2]
    names = {socket.gethostname(), socket.gethostname().partition(".")[0], "localhost"}
    if not host or host in names:
        return ""
    text = f"unknown broker {node!r}: leveret context set {node} --api https://{host}:15671"
    raise exits.Failure(text, exits.CONFIG)
