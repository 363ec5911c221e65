"""`leveret context`: names for brokers on other machines, like `kubectl config` for clusters."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Final

import typer

from leveret.cli import exits
from leveret.cli.contexts.kept import FIELDS, Context, Contexts, check_text
from leveret.cli.helping.commands import add, group
from leveret.cli.printing import output
from leveret.cli.printing.rows import print_rows

#: Shown instead of a password, and of an invalid address, which may contain a password.
_SET: Final = "(set)"
_UNREADABLE: Final = "(cannot be read)"

_COLUMNS: Final = ("current", "name", "api", "uri", "user")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The context.")]


def show_all() -> None:
    """List the contexts. The current one has a star."""
    contexts = Contexts.load()
    # `print_rows` refuses a column that no row has.
    rows = [
        {
            **dict.fromkeys(_COLUMNS, ""),
            **_shown(context),
            "current": "*" if name == contexts.current else "",
            "name": name,
        }
        for name, context in sorted(contexts.by_name.items())
    ]
    print_rows(rows, _COLUMNS, "table")


def use(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The context; without it, none is current.")
    ] = "",
) -> None:
    """Make a context the default of all commands."""
    contexts = Contexts.load()
    if name:
        contexts.get(name)
    contexts.current = name
    contexts.save()


def put(
    name: Name,
    api: Annotated[str, typer.Option(metavar="URL", help="Its API: https://host:15671.")] = "",
    uri: Annotated[str, typer.Option(metavar="URI", help="Its AMQP URI.")] = "",
    user: Annotated[str, typer.Option(metavar="USER", help="The user for the API.")] = "",
    password_file: Annotated[
        str, typer.Option(metavar="FILE", help="A file whose first line is the password.")
    ] = "",
    ask_password: Annotated[
        bool, typer.Option("--ask-password", help="Read the password, and store it in the file.")
    ] = False,
    ca_file: Annotated[str, typer.Option(metavar="FILE", help="Trusted authorities (PEM).")] = "",
    certificate_file: Annotated[
        str, typer.Option(metavar="FILE", help="The client's certificate (PEM).")
    ] = "",
    key_file: Annotated[str, typer.Option(metavar="FILE", help="Its key (PEM).")] = "",
) -> None:
    """Create a context, or change the given fields of it."""
    from leveret.cli.contexts.remote import Remote
    from leveret.cli.ctl.asking import secret
    from leveret.cli.options import read_uri

    contexts = Contexts.load()
    given = {
        "api": api,
        "uri": uri,
        "user": user,
        "password_file": password_file,
        "ca_file": ca_file,
        "certificate_file": certificate_file,
        "key_file": key_file,
        "password": secret("") if ask_password else "",
    }
    for field in FIELDS:
        check_text(given[field], field)
    changes = {field: value for field, value in given.items() if value}
    context = replace(contexts.by_name.get(name, Context()), **changes)
    if context.api:
        Remote.of(replace(context, password_file=""))
    if context.uri:
        read_uri(context.uri)
    contexts.by_name[check_text(name, "the name")] = context
    contexts.save()


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The context; by default the current one.")
    ] = "",
) -> int:
    """Print a context, without its password."""
    contexts = Contexts.load()
    if not (name or contexts.current):
        return exits.NOTHING
    for field, value in _shown(contexts.get(name or contexts.current)).items():
        output.say(f"{field} = {value}")
    return exits.OK


def delete(name: Name) -> None:
    """Delete a context."""
    contexts = Contexts.load()
    contexts.get(name)
    del contexts.by_name[name]
    if contexts.current == name:
        contexts.current = ""
    contexts.save()


def _shown(context: Context) -> dict[str, str]:
    """Return the set fields of a context, without secrets."""
    from leveret.cli.contexts.remote import Remote
    from leveret.client.uri import parse_uri

    found = {name: value for name, value in asdict(context).items() if value}
    if "password" in found:
        found["password"] = _SET
    if "api" in found:
        try:
            found["api"] = str(Remote.of(Context(api=context.api)))
        except exits.Failure:
            found["api"] = _UNREADABLE
    if "uri" in found:
        try:
            found["uri"] = str(parse_uri(context.uri))
        except ValueError:
            found["uri"] = _UNREADABLE
    return found


def app() -> typer.Typer:
    """Return the group."""
    made = group("Name brokers on other machines.")
    add(made, show_all, "list")
    add(made, use)
    add(made, put, "set")
    add(made, show)
    add(made, delete)
    return made
