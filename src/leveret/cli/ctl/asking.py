"""Shared by the commands of `leveret ctl`: requests to the broker, and common options."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, cast
from urllib.parse import quote, urlencode

import typer

from leveret.cli import exits
from leveret.cli.helping.completing import exchange_names, queue_names, vhost_names
from leveret.cli.options import read_json
from leveret.cli.place import BrokerOptions
from leveret.limits import SHORT_STRING_BYTES_MAX

#: The number of characters that an error quotes of a name that is too long.
_QUOTED = 40

Vhost = Annotated[
    str,
    typer.Option("--vhost", "-p", metavar="VHOST", autocompletion=vhost_names, help="The vhost."),
]
Queue = Annotated[str, typer.Argument(metavar="QUEUE", autocompletion=queue_names)]
Exchange = Annotated[str, typer.Argument(metavar="EXCHANGE", autocompletion=exchange_names)]
NewOwner = Annotated[str, typer.Argument(metavar="USER", help="The new owner.")]


@dataclass(frozen=True)
class BrokerAddress:
    """The broker that a command calls."""

    place: BrokerOptions
    #: Whether the command, such as a shell, also connects to this broker over AMQP.
    beside_uri: bool = False

    def ask(
        self,
        method: str,
        *path: str,
        body: object = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> object:
        """Send a request, and return the answer's JSON.  Raises: Failure.

        `path` has the names below `/api/`, not yet quoted.
        """
        from leveret.cli.management_client import ask

        where = "/api/" + "/".join(quote(_name(part), safe="") for part in path)
        if query:
            where += "?" + urlencode({name: _name(value) for name, value in query.items()})
        place = self.place.find_api_beside_uri() if self.beside_uri else self.place.find_api()
        return ask(place, method, where, body, headers)

    def show(
        self,
        form: Literal["table", "json", "tsv"],
        usual: Sequence[str],
        *path: str,
        columns: Sequence[str] | None = None,
        named: Mapping[str, str] | None = None,
    ) -> None:
        """Print the listing at a path of the API.  Raises: Failure.

        Without `columns`, JSON shows all fields, and other formats the usual ones.  `named` has
        further names of fields.
        """
        from leveret.cli.printing.rows import print_rows

        found = self.ask("GET", *path)
        if not isinstance(found, list):
            raise exits.Failure("the broker's answer is not a list", exits.PROTOCOL)
        if named:
            found = [{name: row[field] for name, field in named.items()} | row for row in found]
        print_rows(found, columns or (None if form == "json" else usual), form)


def _name(text: str) -> str:
    """Return a name if it is UTF-8 and not too long.  Raises: Failure."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise exits.Failure(
            f"the name {text!a} is not UTF-8, as all names in a broker are", exits.USAGE
        ) from None
    if size > SHORT_STRING_BYTES_MAX:
        raise exits.Failure(
            f"the name {text[:_QUOTED]!r}... has {size} bytes; a name has at most "
            f"{SHORT_STRING_BYTES_MAX}",
            exits.USAGE,
        )
    return text


def target(context: typer.Context) -> BrokerAddress:
    """Return the broker that the group's options name."""
    return cast("BrokerAddress", context.obj)


def json_of(text: str, what: str) -> object:
    """Return the value of a JSON document.  Raises: Failure."""
    try:
        return read_json(text)
    except ValueError as error:
        raise exits.Failure(f"{what} is not JSON: {error}", exits.USAGE) from None


def secret(given: str) -> str:
    """Return a password: the given one, or the first line of standard input.

    Raises: Failure for an empty password.
    """
    password = given
    if not password:
        if sys.stdin.isatty():
            password = typer.prompt("password", hide_input=True)
        else:
            password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise exits.Failure("the password is empty, and nobody could log in with it", exits.USAGE)
    return password
