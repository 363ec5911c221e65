"""The shell's commands for queues, exchanges and bindings: declare, delete, purge, bind, list."""

from __future__ import annotations

from typing import Final

from leveret.cli import exits, options
from leveret.cli.listing import COLUMNS
from leveret.cli.printing import output
from leveret.cli.shell.grammar import Given, Option, ShellCommand, Word
from leveret.cli.shell.session import ShellState
from leveret.sizes import counted, read_size

_NAME: Final = Word("NAME")
_ARGUMENT: Final = Option(
    "--argument", "an argument; VALUE is JSON, or else text", "KEY=VALUE", many=True
)
_TRANSIENT: Final = Option("--transient", "deleted when the broker stops")
_AUTO_DELETE: Final = Option("--auto-delete", "deleted with its last consumer or binding")
_KEY: Final = Option("--key", "the binding key", "KEY")
_TO_EXCHANGE: Final = Option("--to-exchange", "DESTINATION is an exchange")
_FORMAT: Final = Option("--format", "the format", "FORMAT", choices=("table", "json", "tsv"))


def _arguments(given: Given) -> dict[str, object]:
    return options.read_pairs(given.texts("--argument"), "--argument")


def _declare_queue(session: ShellState, given: Given) -> int:
    arguments = _arguments(given)
    kind = given.text("--type", "classic")
    if kind != "classic":
        arguments["x-queue-type"] = kind
    with session.channel() as channel:
        declared = channel.queue_declare(
            given.word("NAME"),
            durable=not given.flag("--transient"),
            auto_delete=given.flag("--auto-delete"),
            arguments=arguments,
        )
    output.say(declared.queue)
    return exits.OK


def _declare_stream(session: ShellState, given: Given) -> int:
    arguments = _arguments(given) | {"x-queue-type": "stream"}
    if size := given.text("--max-bytes"):
        try:
            arguments["x-max-length-bytes"] = read_size(size)
        except ValueError as error:
            raise exits.Failure(f"--max-bytes: {size!r}: {error}", exits.USAGE) from None
    if age := given.text("--max-age"):
        arguments["x-max-age"] = age
    with session.channel() as channel:
        declared = channel.queue_declare(given.word("NAME"), durable=True, arguments=arguments)
    output.say(declared.queue)
    return exits.OK


def _declare_exchange(session: ShellState, given: Given) -> int:
    with session.channel() as channel:
        channel.exchange_declare(
            given.word("NAME"),
            given.text("--type", "direct"),
            durable=not given.flag("--transient"),
            auto_delete=given.flag("--auto-delete"),
            internal=given.flag("--internal"),
            arguments=_arguments(given),
        )
    output.say(given.word("NAME"))
    return exits.OK


def _delete_queue(session: ShellState, given: Given) -> int:
    with session.channel() as channel:
        # A broker silently accepts the deletion of a missing queue, but a user expects an error.
        channel.queue_declare(given.word("QUEUE"), passive=True)
        count = channel.queue_delete(
            given.word("QUEUE"),
            if_unused=given.flag("--if-unused"),
            if_empty=given.flag("--if-empty"),
        )
    output.say(f"{counted(count, 'message')} deleted", err=True)
    return exits.OK


def _delete_exchange(session: ShellState, given: Given) -> int:
    with session.channel() as channel:
        channel.exchange_declare(given.word("EXCHANGE"), passive=True)
        channel.exchange_delete(given.word("EXCHANGE"), if_unused=given.flag("--if-unused"))
    return exits.OK


def _purge(session: ShellState, given: Given) -> int:
    with session.channel() as channel:
        count = channel.queue_purge(given.word("QUEUE"))
    output.say(f"{counted(count, 'message')} purged", err=True)
    return exits.OK


def _bind(session: ShellState, given: Given) -> int:
    source, destination, key = _binding(given)
    with session.channel() as channel:
        bind = channel.exchange_bind if given.flag("--to-exchange") else channel.queue_bind
        bind(destination, source, key, _arguments(given))
    output.say(f"{source} -> {destination}")
    return exits.OK


def _unbind(session: ShellState, given: Given) -> int:
    source, destination, key = _binding(given)
    with session.channel() as channel:
        unbind = channel.exchange_unbind if given.flag("--to-exchange") else channel.queue_unbind
        unbind(destination, source, key, _arguments(given))
    return exits.OK


def _binding(given: Given) -> tuple[str, str, str]:
    return given.word("SOURCE"), given.word("DESTINATION"), given.text("--key")


def _list(session: ShellState, given: Given) -> int:
    what = given.word("WHAT")
    path = [what] if what == "connections" else [what, session.parameters.vhost]
    columns = given.all_words("COLUMN") or COLUMNS[what]
    from leveret.cli.printing.rows import print_rows

    found = session.api_target().ask("GET", *path)
    if not isinstance(found, list):
        raise exits.Failure("the broker's answer is not a list", exits.PROTOCOL)
    match given.text("--format"):
        case "json":
            # JSON shows all fields unless columns are given.
            print_rows(found, given.all_words("COLUMN") or None, "json")
        case "tsv":
            print_rows(found, columns, "tsv")
        case _:
            print_rows(found, columns, "table")
    return exits.OK


_ENDS: Final = (Word("SOURCE", "exchange"), Word("DESTINATION", "queue"))

COMMANDS: Final = (
    ShellCommand(
        "declare queue",
        "declare a queue",
        _declare_queue,
        (_NAME,),
        (
            Option("--type", "its type", "TYPE", choices=("classic", "quorum", "stream")),
            _TRANSIENT,
            _AUTO_DELETE,
            _ARGUMENT,
        ),
    ),
    ShellCommand(
        "declare stream",
        "declare a stream",
        _declare_stream,
        (_NAME,),
        (
            Option("--max-bytes", "the maximum size, such as 5GB", "SIZE"),
            Option("--max-age", "the maximum age of messages: 7D, 12h, 30m, 45s", "AGE"),
            _ARGUMENT,
        ),
    ),
    ShellCommand(
        "declare exchange",
        "declare an exchange",
        _declare_exchange,
        (_NAME,),
        (
            Option("--type", "direct, fanout, topic, headers or another type", "TYPE"),
            _TRANSIENT,
            _AUTO_DELETE,
            Option("--internal", "only other exchanges may publish to it"),
            _ARGUMENT,
        ),
    ),
    ShellCommand(
        "delete queue",
        "delete a queue or stream with its messages",
        _delete_queue,
        (Word("QUEUE", "queue"),),
        (
            Option("--if-unused", "only if it has no consumers"),
            Option("--if-empty", "only if it has no messages"),
        ),
    ),
    ShellCommand(
        "delete exchange",
        "delete an exchange",
        _delete_exchange,
        (Word("EXCHANGE", "exchange"),),
        (Option("--if-unused", "only if it has no bindings"),),
    ),
    ShellCommand(
        "bind", "bind a queue to an exchange", _bind, _ENDS, (_KEY, _TO_EXCHANGE, _ARGUMENT)
    ),
    ShellCommand("unbind", "remove a binding", _unbind, _ENDS, (_KEY, _TO_EXCHANGE, _ARGUMENT)),
    ShellCommand(
        "purge", "drop the waiting messages of a queue", _purge, (Word("QUEUE", "queue"),)
    ),
    ShellCommand(
        "list",
        "list queues, exchanges, bindings or connections of a broker on this machine",
        _list,
        (
            Word("WHAT", choices=tuple(COLUMNS)),
            Word("COLUMN", required=False, many=True),
        ),
        (_FORMAT,),
    ),
)
