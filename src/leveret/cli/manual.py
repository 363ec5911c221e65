"""`leveret man`: print a manual page, or write all of them to a directory for man(1).

The pages, in the format of man(7), are generated from the commands and their options.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from leveret import __version__
from leveret.cli import exits
from leveret.cli.options import write_file
from leveret.cli.printing import output
from leveret.sizes import counted

#: All users of a machine can read the pages.
_MODE: Final = 0o644

#: The beginning of a line that man(7) would interpret as a request.
_REQUEST: Final = re.compile(r"^([.'])", re.MULTILINE)

#: A character that is not ASCII.
_FOREIGN: Final = re.compile(r"[^\x00-\x7f]")

#: The text of the last section of each page.
_SEE_ALSO: Final = "leveret(1), and docs/ in the sources, which describe each command in full."


def man(
    command: Annotated[
        str, typer.Argument(metavar="[COMMAND]", help="The command; by default leveret itself.")
    ] = "",
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Write all pages there, such as share/man/man1."),
    ] = None,
) -> None:
    """Print the manual page of a command, or write all of them to a directory.

    `leveret man serve | man -l -` shows a page.
    """
    pages = commands()
    if to is None:
        path = f"leveret {command}".strip()
        if path not in pages:
            raise exits.Failure(f"unknown command {command!r}", exits.USAGE)
        output.say_lines(page_of(path, pages[path]))
        return
    if command:
        raise exits.Failure("--to writes all pages: omit COMMAND", exits.USAGE)
    try:
        to.mkdir(parents=True, exist_ok=True)
        for path, found in pages.items():
            file = to / f"{path.replace(' ', '-')}.1"
            write_file(file, page_of(path, found))
            file.chmod(_MODE)
    except OSError as error:
        text = f"cannot write to {to}: {error.strerror}"
        raise exits.Failure(text, exits.CANNOT_CREATE) from None
    output.say(f"{counted(len(pages), 'page')} in {to}")


def commands() -> dict[str, Any]:
    """Return `leveret` and its commands, by command line; each has a page."""
    from leveret.cli.root import app as root
    from leveret.cli.root import command_of

    whole: Any = command_of(root)
    found = {"leveret": whole}
    return found | {f"leveret {name}": whole.commands[name] for name in whole.commands}


def page_of(path: str, command: Any) -> str:
    """Return the page of a command; `path` is its command line, such as `leveret list`."""
    name = path.replace(" ", "-")
    summary = _summary(command)
    lines = [
        f'.TH "{roff(name.upper())}" "1" "" "Leveret {roff(__version__)}" "Leveret"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(summary.rstrip('.'))}",
        ".SH SYNOPSIS",
        *_synopsis(path, command),
        ".SH DESCRIPTION",
        *_paragraphs(command.help or summary),
        *_options(command, ".SH"),
        *_commands(path, command),
        ".SH SEE ALSO",
        roff(_SEE_ALSO),
    ]
    return "\n".join(lines) + "\n"


def roff(text: str) -> str:
    """Return `text` escaped so that man(7) shows it unchanged."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    # By code point, so that the encoding of the page does not matter.
    escaped = _FOREIGN.sub(lambda found: f"\\[u{ord(found[0]):04X}]", escaped)
    return _REQUEST.sub(r"\\&\1", escaped)


def _summary(command: Any) -> str:
    """Return the first sentence of a command's help, in one line."""
    text = " ".join((command.help or command.name or "").split("\n\n")[0].split())
    return text.partition(". ")[0]


def _synopsis(path: str, command: Any) -> Iterator[str]:
    """Yield the command line with its arguments."""
    words = [_metavar(one) for one in command.params if one.param_type_name == "argument"]
    if hasattr(command, "commands"):
        words.append("COMMAND ...")
    line = " ".join(roff(word) for word in ["[OPTION]...", *words])
    yield f".B {roff(path)}"
    yield f"{line}"


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of `text`, which are separated by empty lines."""
    for place, paragraph in enumerate(text.strip().split("\n\n")):
        if place:
            yield ".PP"
        yield roff(" ".join(paragraph.split()))


def _options(command: Any, heading: str) -> Iterator[str]:
    """Yield the arguments and options that have a help text."""
    told = [one for one in command.params if getattr(one, "help", None)]
    if told:
        yield f"{heading} OPTIONS"
    for one in told:
        yield ".TP"
        if one.param_type_name == "argument":
            yield f".I {roff(_metavar(one))}"
        else:
            names = ", ".join(roff(name) for name in [*one.opts, *one.secondary_opts])
            value = "" if one.is_flag else f" \\fI{roff(_metavar(one))}\\fR"
            yield f"\\fB{names}\\fR{value}"
        yield roff(" ".join(str(one.help).split()))


def _commands(path: str, command: Any) -> Iterator[str]:
    """Yield the commands of a group, each with its options."""
    inner = getattr(command, "commands", {})
    if not inner:
        return
    yield ".SH COMMANDS"
    for name in inner:
        one = inner[name]
        if getattr(one, "hidden", False):
            continue
        yield f'.SS "{roff(path)} {roff(name)}"'
        if path == "leveret":
            # Each command has its own page.
            yield f"{roff(_summary(one))}: see leveret\\-{roff(name)}(1)."
            continue
        yield from _synopsis(f"{path} {name}", one)
        yield ".PP"
        yield from _paragraphs(one.help or name)
        yield from _options(one, ".PP\n")


def _metavar(parameter: Any) -> str:
    """Return the placeholder for the value of a parameter."""
    metavar = parameter.metavar or parameter.name.upper()
    is_argument = parameter.param_type_name == "argument"
    if is_argument and not parameter.required and not metavar.startswith("["):
        return f"[{metavar}]"
    return str(metavar)


def app() -> typer.Typer:
    """Return the command."""
    made = typer.Typer(rich_markup_mode=None, add_completion=False)
    made.command("man")(man)
    return made
