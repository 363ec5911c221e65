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
from leveret.cli.helping.commands import placeholder, single, summary_of, text_of, usage_words
from leveret.cli.options import write_file
from leveret.cli.printing import output
from leveret.sizes import counted

#: All users of a machine can read the pages.
_MODE: Final = 0o644

#: The beginning of a line that man(7) would interpret as a request.
_REQUEST: Final = re.compile(r"^([.'])", re.MULTILINE)

#: The beginning of a paragraph whose lines stay as they are, as in typer.
_AS_IT_IS: Final = "\b\n"

#: A character that is not ASCII.
_FOREIGN: Final = re.compile(r"[^\x00-\x7f]")

#: The text of the last section of each page.
_SEE_ALSO: Final = "leveret(1), and docs/ in the sources, which describe each command in full."


def man(
    command: Annotated[
        str, typer.Argument(metavar="COMMAND", help="The command; by default leveret itself.")
    ] = "",
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Write all pages there, such as share/man/man1."),
    ] = None,
) -> None:
    """Print a manual page, or write all of them.

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
    summary = summary_of(command)
    lines = [
        f'.TH "{roff(name.upper())}" "1" "" "Leveret {roff(__version__)}" "Leveret"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(summary)}",
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


def _synopsis(path: str, command: Any) -> Iterator[str]:
    """Yield the command line with its arguments."""
    yield f".B {roff(path)}"
    yield roff(" ".join(usage_words(command)))


def _paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of `text`, which are separated by empty lines."""
    for place, paragraph in enumerate(text.strip().split("\n\n")):
        if place:
            yield ".PP"
        if paragraph.startswith(_AS_IT_IS):
            yield f".nf\n{roff(paragraph.removeprefix(_AS_IT_IS))}\n.fi"
        else:
            yield roff(" ".join(paragraph.split()))


def _options(command: Any, heading: str) -> Iterator[str]:
    """Yield the arguments and options that have a help text."""
    told = [one for one in command.params if getattr(one, "help", None)]
    if told:
        yield f"{heading} OPTIONS"
    for one in told:
        yield ".TP"
        if one.param_type_name == "argument":
            yield f".I {roff(placeholder(one))}"
        else:
            value = "" if one.is_flag else f" \\fI{roff(placeholder(one))}\\fR"
            names = ", ".join([*one.opts, *one.secondary_opts])
            yield f"\\fB{roff(names)}\\fR{value}"
        yield roff(text_of(one))


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
            yield f"{roff(summary_of(one))}: see leveret\\-{roff(name)}(1)."
            continue
        yield from _synopsis(f"{path} {name}", one)
        yield ".PP"
        yield from _paragraphs(one.help or name)
        yield from _options(one, ".PP\n")


def app() -> typer.Typer:
    """Return the command."""
    return single("man", man)
