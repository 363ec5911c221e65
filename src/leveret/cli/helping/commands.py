"""The classes of all commands and groups: help in sections, and suggestions for unknown words.

The help is plain text of at most 80 columns, like that of `psql --help`.  A command or an option is
in the section that its `rich_help_panel` names, typer's word for it.  Placeholders are words in
capitals, and `a|b` are the choices; `...` follows what may be repeated, or an open list of choices.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup

from leveret.cli.exits import USAGE
from leveret.cli.printing import output

#: The names of the help option.  Commands inherit them from `leveret`.
HELP_NAMES: Final = ["-h", "--help"]

#: The maximum length of a command's first sentence, so that its line in a list fits 80 columns.
SUMMARY_CHARACTERS_MAX: Final = 50

#: The prefixes of destructive commands.
_DESTROYING: Final = ("delete", "purge", "clear", "cancel", "rewind", "restore")

#: The indentation of a long option without a short one, and the widest column of options.
_NO_SHORT: Final = "    "
_NAMES_MAX: Final = 28


def summary_of(command: Any) -> str:
    """Return the first sentence of a command's help, in one line and without its period."""
    text = " ".join((command.help or command.name or "").split("\n\n")[0].split())
    return text.partition(". ")[0].removesuffix(".")


def placeholder(parameter: Any) -> str:
    """Return the placeholder for the value of a parameter; an optional argument is in brackets."""
    word = parameter.metavar or parameter.name.upper()
    if parameter.param_type_name == "argument" and not parameter.required:
        word = f"[{word}]"
    repeated = parameter.nargs == -1 or getattr(parameter, "multiple", False)
    return f"{word}..." if repeated else word


def names_of(option: Any) -> str:
    """Return the names of an option, such as `-p, --vhost` or `--[no-]http`."""
    names = sorted(option.opts, key=len)
    for positive, negative in zip(option.opts, option.secondary_opts, strict=False):
        if negative == f"--no-{positive.removeprefix('--')}":
            names = [f"--[no-]{positive.removeprefix('--')}"]
        else:
            names.append(negative)
    return ", ".join(names)


def text_of(parameter: Any) -> str:
    """Return the help of a parameter, with its environment variable and its default."""
    notes = [f"environment: {parameter.envvar}"] if parameter.envvar else []
    default = parameter.default
    if parameter.show_default and default is not False and default not in (None, ""):
        notes.append(
            f"default: {default:g}" if isinstance(default, float) else f"default: {default}"
        )
    text = " ".join((parameter.help or "").split())
    return f"{text.removesuffix('.')} ({'; '.join(notes)})." if notes else text


def usage_words(command: Any) -> list[str]:
    """Return the placeholders of a command line, after the names of the commands."""
    words = [placeholder(one) for one in command.params if one.param_type_name == "argument"]
    return ["[OPTION]...", *words, *(["COMMAND ..."] if hasattr(command, "commands") else [])]


def _write_help(command: Any, context: Any, formatter: Any) -> None:
    """Write the sections of a command's help: arguments, commands and options."""
    arguments: list[tuple[str, str]] = []
    options: dict[str, list[tuple[str, str]]] = {}
    for one in command.get_params(context):
        if one.hidden:
            continue
        if one.param_type_name == "argument":
            if one.help:
                arguments.append((placeholder(one).strip("[]."), text_of(one)))
            continue
        names = names_of(one) if one.is_flag else f"{names_of(one)} {placeholder(one)}"
        names = names if names[1] != "-" else _NO_SHORT + names
        options.setdefault(one.rich_help_panel or "", []).append((names, text_of(one)))
    _write_rows(formatter, "Arguments", arguments, arguments)
    _write_commands(command, formatter)
    all_options = [row for rows in options.values() for row in rows]
    last = options.pop("", [])
    for title, rows in options.items():
        _write_rows(formatter, title, rows, all_options)
    _write_rows(formatter, "Other options" if options else "Options", last, all_options)


def _write_rows(
    formatter: Any, title: str, rows: list[tuple[str, str]], aligned: Iterable[tuple[str, str]]
) -> None:
    """Write a section of names and texts; the texts of all `aligned` rows begin in one column."""
    if rows:
        lengths = [len(name) for name, _ in aligned]
        width = max((size for size in lengths if size <= _NAMES_MAX), default=0)
        with formatter.section(title):
            formatter.write_dl([(name.ljust(width), text) for name, text in rows], width)


def _write_commands(command: Any, formatter: Any) -> None:
    """Write the sections of a group's commands, each command on one line."""
    inner = getattr(command, "commands", {}).items()
    width = max((len(name) for name, _ in inner), default=0)
    sections: dict[str, list[str]] = {}
    for name, one in inner:
        if not one.hidden:
            line = f"  {name:<{width}}  {summary_of(one)}\n"
            sections.setdefault(one.rich_help_panel or "Commands", []).append(line)
    for title, lines in sections.items():
        formatter.write_paragraph()
        formatter.write_heading(title)
        formatter.write("".join(lines))


class _HelpInSections:
    """The help of a command or of a group, in sections."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Return the words of the usage line after the name."""
        return usage_words(self)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the sections of the help."""
        _write_help(self, ctx, formatter)

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return the first sentence of the help, which completion shows."""
        return summary_of(self)


class HelpfulCommand(_HelpInSections, TyperCommand):
    """A command whose help has sections."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; `-h URI` means `--uri URI`, as for RabbitMQ's PerfTest."""
        for place, following in enumerate(args[1:]):
            if args[place] == "-h" and following.startswith(("amqp:", "amqps:")):
                args[place] = "--uri"
        return super().parse_args(ctx, args)


class SafeGroup(_HelpInSections, TyperGroup):
    """A command group whose help has sections, and that never suggests a destructive command."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.suggest_commands = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, or print the help if there are none."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            # typer would print the help as an error, in which line feeds are escaped.
            output.say_lines(ctx.get_help(), err=True)
            raise typer.Exit(USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments name.  Raises: typer's error if it is unknown."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            harmless = [name for name in self.commands if not name.startswith(_DESTROYING)]
            near = difflib.get_close_matches(args[0], harmless) if args else []
            message = getattr(error, "message", "")
            if near and message:
                names = ", ".join(repr(name) for name in near)
                error.message = f"{message.rstrip('.')}; did you mean {names}?"
            raise


def group(text: str | None = None, *, cls: type[SafeGroup] = SafeGroup) -> typer.Typer:
    """Return an empty group of commands, which prints its help if no command is given."""
    more: dict[str, Any] = {} if text is None else {"help": text}
    return typer.Typer(
        cls=cls, rich_markup_mode=None, add_completion=False, no_args_is_help=True, **more
    )


def add(
    made: typer.Typer, function: Callable[..., Any], name: str = "", section: str | None = None
) -> None:
    """Add a command, by default under the function's name, to a section of the group's help."""
    name = name or function.__name__
    made.command(name, cls=HelpfulCommand, rich_help_panel=section)(function)


def single(name: str, function: Callable[..., Any], **attributes: Any) -> typer.Typer:
    """Return one command.  `attributes` are those of typer's commands."""
    made = typer.Typer(rich_markup_mode=None, add_completion=False)
    made.command(name, cls=HelpfulCommand, **attributes)(function)
    return made
