"""Run the shell's lines: find the command, parse its arguments, and report failures.

Invariant: every failure, whatever the line contains, is printed as lines and has an exit code.
Only a closed standard output, or Ctrl-C without a prompt, ends the shell.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Final

from leveret.cli import exits
from leveret.cli.printing import output
from leveret.cli.shell.grammar import Given, ShellCommand, Word, find, parse, shown, split
from leveret.cli.shell.messages import COMMANDS as MESSAGE_COMMANDS
from leveret.cli.shell.session import ShellState
from leveret.cli.shell.topology import COMMANDS as TOPOLOGY_COMMANDS
from leveret.limits import SHELL_LINE_BYTES_MAX


class ShellExit(Exception):
    """Raised when a line ends the shell."""


def _help(_session: ShellState, given: Given) -> int:
    words = given.all_words("COMMAND")
    if words:
        found = [one for one in COMMANDS if one.path.split()[: len(words)] == words]
        if not found:
            raise exits.Failure(f"unknown command {shown(' '.join(words))}; try help", exits.USAGE)
        for command in found:
            output.say(f"{command.usage}")
            output.say(f"  {command.help}")
            for option in command.options:
                output.say(f"  {option.name:<14} {option.help}")
        return exits.OK
    width = max(len(command.path) for command in COMMANDS)
    for command in COMMANDS:
        output.say(f"{command.path:<{width}}  {command.help}")
    output.say("help COMMAND shows the arguments; put names with spaces in quotes")
    return exits.OK


def _exit(_session: ShellState, _given: Given) -> int:
    raise ShellExit


COMMANDS: Final[tuple[ShellCommand, ...]] = (
    *TOPOLOGY_COMMANDS,
    *MESSAGE_COMMANDS,
    ShellCommand(
        "help",
        "show the commands, or the arguments of one",
        _help,
        (Word("COMMAND", "command", required=False, many=True),),
    ),
    ShellCommand("exit", "end the shell (also Ctrl-D)", _exit),
)


def run_line(session: ShellState, line: str) -> int:
    """Run one line; return its exit code.  Raises: Failure; ShellExit."""
    if "\0" in line:
        raise exits.Failure("the line contains a NUL character", exits.USAGE)
    words = [] if line.lstrip().startswith("#") else split(line)
    if not words:
        return exits.OK
    command, arguments = find(COMMANDS, words)
    return command.run(session, parse(command, arguments))


def run_lines(session: ShellState, source: BinaryIO, *, keep_going: bool) -> int:
    """Run the lines of a pipe; return the exit code of the first failed line, or of the last line.

    Without `keep_going`, stop after the first failed line.
    """
    code = failed = exits.OK
    for number, raw in enumerate(_lines(source), 1):
        try:
            code = run_line(session, _decoded(raw))
        except ShellExit:
            break
        except exits.Failure as failure:
            report(failure, f"line {number}: ")
            if not keep_going:
                return failure.code
            failed = failed or failure.code
    return failed or code


def report(failure: exits.Failure, where: str = "") -> None:
    """Print a failure on standard error."""
    for line in failure.lines:
        output.say(f"leveret: {where}{line}", err=True)
    if failure.hint:
        output.say(f"leveret: hint: {failure.hint}", err=True)


def _lines(source: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a pipe; truncate a long line to one byte more than the limit."""
    while raw := source.readline(SHELL_LINE_BYTES_MAX + 1):
        yield raw
        if len(raw) > SHELL_LINE_BYTES_MAX:
            while raw and not raw.endswith(b"\n"):
                raw = source.readline(SHELL_LINE_BYTES_MAX)


def _decoded(raw: bytes) -> str:
    """Return a line as text.  Raises: Failure."""
    if len(raw) > SHELL_LINE_BYTES_MAX:
        text = f"a line has at most {SHELL_LINE_BYTES_MAX} bytes; leveret publish takes files"
        raise exits.Failure(text, exits.USAGE)
    try:
        # Otherwise, a backslash at the end of a line would escape the line feed.
        return raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise exits.Failure("the line is not UTF-8", exits.USAGE) from None
