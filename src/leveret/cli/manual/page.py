"""One manual page, in the language of man(7), generated from a command and its options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from leveret import __version__

#: The beginning of a line that man(7) would interpret as a request.
_REQUEST: Final = re.compile(r"^([.'])", re.MULTILINE)

#: A character that is not ASCII.
_FOREIGN: Final = re.compile(r"[^\x00-\x7f]")

#: The text of the last section of each page.
_SEE_ALSO: Final = "leveret(1), and docs/ in the sources, which describe each command in full."


def page_of(path: str, command: Any) -> str:
    """Return the page of a command; `path` is its command line: `leveret list queues`."""
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
    """Return a text escaped so that man(7) shows it unchanged."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    # By number, independent of the encoding in which a page is read.
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
    """Yield the paragraphs of a text, which are separated by empty lines."""
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
