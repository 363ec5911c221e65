"""The root of the command line: all commands, their common options, and their exit codes.

Invariants: a command's module is imported only for the command, its help or the list of all
commands.  A failure is printed as lines on standard error, never as a traceback.  Text arguments
are checked to be UTF-8 before a command runs; paths and bodies may contain any bytes.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, Final, TextIO, cast

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from leveret.cli.exits import INTERNAL, INTERRUPTED, IO_FAILED, NOT_READ, OK, SYSTEM, USAGE, Failure
from leveret.cli.helping.commands import HELP_NAMES, SafeGroup, placeholder
from leveret.cli.hints import hint_for
from leveret.cli.place import (
    LINE,
    Api,
    BrokerOptions,
    Config,
    ContextName,
    DataDir,
    contexts,
    option_of,
)
from leveret.cli.printing import output
from leveret.cli.printing.pipe import leave_broken_pipe

#: The commands and their modules, by the sections of the help.
SECTIONS: Final = {
    "Broker": {
        "serve": "leveret.cli.serve",
        "config": "leveret.cli.settings.command",
        "ping": "leveret.cli.ping",
        "status": "leveret.cli.watching.status",
        "top": "leveret.cli.watching.top",
    },
    "Messages": {
        "declare": "leveret.cli.declare",
        "publish": "leveret.cli.publish",
        "consume": "leveret.cli.consume",
        "get": "leveret.cli.get",
        "shell": "leveret.cli.shell",
    },
    "Administration": {
        "list": "leveret.cli.listing",
        "ctl": "leveret.cli.ctl",
        "rabbitmqctl": "leveret.cli.rabbitmqctl.command",
        "context": "leveret.cli.contexts.command",
    },
    "Data": {
        "backup": "leveret.cli.backup.backup",
        "restore": "leveret.cli.backup.restore",
        "store": "leveret.cli.store.store",
        "pipeline": "leveret.cli.pipeline.group",
    },
    "More": {
        "perf": "leveret.cli.perf",
        "demo": "leveret.cli.demo",
        "man": "leveret.cli.helping.manual",
    },
}

COMMANDS: Final = {name: place for places in SECTIONS.values() for name, place in places.items()}
_SECTION_OF: Final = {name: section for section, places in SECTIONS.items() for name in places}

#: Fields of `BrokerOptions` by which a command can name its broker.
_BY_URI: Final = frozenset({"uri", "context"})
_HERE: Final = frozenset({"data_dir", "config"})
_BY_API: Final = _HERE | {"api", "context"}

#: The commands that use a broker, and which of these options each can use.
NAMED_BY: Final = {
    **dict.fromkeys(("serve", "restore", "store"), _HERE),
    **dict.fromkeys(("status", "top", "list", "ctl", "rabbitmqctl", "backup"), _BY_API),
    **dict.fromkeys(("declare", "publish", "consume", "get", "perf", "pipeline"), _BY_URI),
    "ping": _BY_URI | _HERE,
    "shell": _BY_API | _BY_URI,
}

#: The end of pydantic's sentence on a text that is not a number.
_NO_NUMBER: Final = re.compile(r", unable to parse string as an? \w+")

#: click's exit code for a wrong command line.
_CLICK_USAGE: Final = 2

#: If set, a bug in the command is shown with its traceback.
TRACEBACK_VARIABLE: Final = "LEVERET_TRACEBACK"


Command = TyperCommand | TyperGroup


class LazyCommands(MutableMapping[str, Any]):
    """The commands by name; a command's module is imported on first use."""

    def __init__(self, places: dict[str, str]) -> None:
        self._places = places
        self._loaded: dict[str, Command] = {}

    def __getitem__(self, name: str) -> Command:
        """Return a command.  Raises: KeyError."""
        if name not in self._loaded:
            self._loaded[name] = load(name, self._places[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Command) -> None:
        """Add a command."""
        self._places.setdefault(name, "")
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        """Remove a command."""
        del self._places[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


@functools.cache
def load(name: str, place: str) -> Command:
    """Import the module of a command, and return the command.

    It is made once in a process: typer reads the signatures of all functions of a group.
    """
    command = command_of(importlib.import_module(place).app())
    command.name, command.rich_help_panel = name, _SECTION_OF[name]
    return command


def command_of(app: typer.Typer) -> Command:
    """Return an app's only command, or the group of its commands."""
    command = cast("Command", typer.main.get_command(app))
    _take_utf8(command)
    return command


def _take_utf8(command: Any) -> None:
    """Make a command and its subcommands refuse text that is not UTF-8."""
    for inner in getattr(command, "commands", {}).values():
        _take_utf8(inner)
    if command.callback is not None:
        command.callback = functools.partial(_call, command.callback, command.params)


def _call(callback: Callable[..., Any], parameters: Sequence[Any], **values: Any) -> Any:
    """Call a command after checking that all text is UTF-8.  Raises: Failure."""
    for parameter in parameters:
        value = values.get(parameter.name)
        for text in value if isinstance(value, list | tuple) else (value,):
            # Python decodes arguments that are not UTF-8 to surrogates.
            if isinstance(text, str) and not _is_utf8(text):
                name = placeholder(parameter).strip("[].")
                if parameter.param_type_name == "option":
                    name = parameter.opts[-1]
                # A URI may contain a password.
                shown = "" if "@" in text else f": {os.fsencode(text)!r}"
                raise Failure(f"{name} is not UTF-8{shown}", USAGE)
    return callback(**values)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Root(SafeGroup):
    """The group of all commands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = LazyCommands(dict(COMMANDS))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command in `args` and exit with its code."""
        if not standalone_mode:
            return super().main(
                args, prog_name, complete_var, standalone_mode, windows_expand_args, **extra
            )
        sys.exit(self._code(args, prog_name, complete_var, extra))

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # typer's name for it
        """Run a command.  Raises: Failure if the reader of its output has closed it."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Otherwise, typer would exit with 1.
            raise Failure("", NOT_READ) from None

    def _code(
        self,
        args: Sequence[str] | None,
        prog_name: str | None,
        complete_var: str | None,
        extra: dict[str, Any],
    ) -> int:
        """Run a command; return the exit code."""
        try:
            result = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
            if sys.stdout is not None:
                # Flush here, where a failed write is still reported.
                sys.stdout.flush()
        except Failure as failure:
            if failure.code == NOT_READ:
                _write_no_more()
            hint = failure.hint or hint_for(str(failure))
            return _fail(failure.code, *failure.lines, hint=hint)
        except typer.Abort:
            return INTERRUPTED
        except typer.TyperException as error:
            code: int = error.exit_code
            return _fail_usage(USAGE if code == _CLICK_USAGE else code, error)
        except BrokenPipeError:
            _write_no_more()
            return NOT_READ
        except OSError as error:
            _write_no_more()
            return _fail(IO_FAILED, _refusal(error))
        except MemoryError:
            return _fail(SYSTEM, "not enough memory for this command")
        except Exception as fault:  # noqa: BLE001 (a user gets one line)
            return _fail(INTERNAL, *_fault(fault))
        return result if isinstance(result, int) else OK


def _fail(code: int, *lines: str, hint: str = "") -> int:
    """Print a failure and its remedy on standard error; return its code."""
    for line in (*lines, f"hint: {hint}") if hint else lines:
        with contextlib.suppress(OSError):
            output.say(f"leveret: {line}", err=True)
    return code


def _fail_usage(code: int, error: Any) -> int:
    """Print an error of the command line, with the usage of the command; return `code`."""
    text = " ".join(error.format_message().split()).removesuffix(".")
    # pydantic's words, with which typer checks numbers and choices.
    text = text.replace(": Value error, ", ": ").replace(": Input should", ": it should")
    text = _NO_NUMBER.sub("", text)
    context = getattr(error, "ctx", None)
    _fail(code, text[:1].lower() + text[1:])
    if context is not None:
        with contextlib.suppress(OSError):
            output.say_lines(context.get_usage(), err=True)
        _fail(code, hint=f"try {context.command_path} --help")
    return code


def _refusal(error: OSError) -> str:
    """Return the text for a failed system call, which names the file or standard output."""
    if error.filename is None:
        return f"cannot write to standard output: {error.strerror or error}"
    return f"{os.fsdecode(error.filename)}: {error.strerror}"


def _fault(fault: Exception) -> list[str]:
    """Return the text for a bug: one line, or a traceback if `LEVERET_TRACEBACK` is set."""
    if os.environ.get(TRACEBACK_VARIABLE):
        return "".join(traceback.format_exception(fault)).split("\n")
    frame = traceback.extract_tb(fault.__traceback__)[-1]
    place = f"{os.path.basename(frame.filename)}:{frame.lineno}"  # noqa: PTH119
    text = str(fault).partition("\n")[0]
    line = (
        f"this is a bug in leveret, please report it: {type(fault).__name__}: {text} ({place}); "
        f"with {TRACEBACK_VARIABLE}=1 it shows the traceback"
    )
    return [line]


def _write_no_more() -> None:
    """Discard pending output, so that no further error is printed at exit."""
    with contextlib.suppress(OSError, ValueError):
        leave_broken_pipe()


app = typer.Typer(
    name="leveret",
    cls=Root,
    help="Leveret, an AMQP 0-9-1 message broker whose streams are tables to Spark.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": HELP_NAMES},
    epilog="leveret COMMAND --help prints the options of a command.",
)


def version_text() -> str:
    """Return the version and the loaded build, such as `leveret 0.1.0 (compiled, Python …)`."""
    import platform

    from leveret import __version__
    from leveret.wire.buffer import BUILD

    return f"leveret {__version__} ({BUILD}, Python {platform.python_version()})"


def _print_version(asked: bool) -> None:
    """Print the version and end."""
    if asked:
        output.say(version_text())
        raise typer.Exit


@app.callback()
def _root(
    context: typer.Context,
    _version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print version and build."
    ),
    data_dir: DataDir = None,
    config: Config = None,
    uri: str = typer.Option(
        "", "--uri", "-U", metavar="URI", help="The broker, for every command that connects."
    ),
    api: Api = "",
    broker: ContextName = "",
) -> None:
    """Leveret, an AMQP 0-9-1 message broker whose streams are tables to Spark."""
    said = BrokerOptions(data_dir, config, api, broker, uri)
    LINE.add(context, said)
    said.checked()
    if broker:
        # Report an unknown context even if the command does not use it.
        contexts().get(broker)
    usable = NAMED_BY.get(context.invoked_subcommand or "")
    if usable is not None and said.said and not said.said & usable:
        given = ", ".join(sorted(map(option_of, said.said)))
        text = (
            f"leveret {context.invoked_subcommand} does not use {given}: name the broker with "
            f"{' or '.join(sorted(map(option_of, usable)))}"
        )
        raise Failure(text, USAGE)


def _open_streams() -> None:
    """Replace closed standard streams, and escape characters that a stream cannot encode.

    Otherwise, the next opened file or socket would get the number of a closed stream.  Writes to a
    closed standard output and reads from a closed standard input fail.  The log is discarded if
    standard error is closed.
    """
    for number, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, flags)
    sys.stdin = sys.stdin or _stream(0, "r")
    sys.stdout = sys.stdout or _stream(1, "w")
    sys.stderr = sys.stderr or _stream(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Printing must not fail for an encoding other than UTF-8, or a path that is not UTF-8.
            stream.reconfigure(errors="backslashreplace")


def _stream(number: int, mode: str) -> TextIO:
    return cast("TextIO", open(number, mode, encoding="utf-8", closefd=False))


def main() -> None:
    """Run the command line of this process."""
    _open_streams()
    # Help shows the same name for `python -m leveret`.
    app(prog_name="leveret")
