"""Complete the names of queues, exchanges and vhosts in a shell, from the running broker.

The broker is the one that the command line names so far.  If it does not answer in time, or
refuses, nothing is completed and nothing is printed, because the user is typing.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import typer

from leveret.cli.place import BrokerOptions, is_local

#: The time limit for an answer, after which a shell seems to hang.
SECONDS_MAX: Final = 1.0

#: First characters of names that are not completed; zsh replaces `=NAME` by a command's path.
_LEADING: Final = "-="

#: The maximum number of names; more would not help.
NAMES_MAX: Final = 100


def queue_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of queues that begin with `incomplete`."""
    return _in_time(context, "queues", incomplete)


def exchange_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of exchanges that begin with `incomplete`."""
    return _in_time(context, "exchanges", incomplete)


def vhost_names(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of vhosts that begin with `incomplete`."""
    return _in_time(context, "vhosts", incomplete)


def _in_time(context: typer.Context, kind: str, incomplete: str) -> list[str]:
    """Return the names, or [] if the broker does not answer in time."""
    found: list[str] = []

    def ask() -> None:
        # Whatever fails, a user who presses Tab sees no error.
        with contextlib.suppress(Exception):
            found.extend(_names(context, kind, incomplete))

    # A thread, because a resolver cannot be interrupted; the process does not wait for it.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(SECONDS_MAX)
    return [] if thread.is_alive() else found


def _names(context: typer.Context, kind: str, incomplete: str) -> Iterator[str]:
    """Yield the names that the API of the command's broker lists.  Raises: Failure.

    A command that connects uses the vhost of its URI; others have an option for the vhost.
    """
    from leveret.cli.management_client import get_json
    from leveret.cli.options import DEFAULT_URI
    from leveret.client.uri import parse_uri

    given = _given(context)
    place = BrokerOptions(
        **{one.name: given[one.name] for one in fields(BrokerOptions) if one.name in given}
    )
    if any(one.name == "uri" for one in context.command.params):
        there = parse_uri(place.find_uri(DEFAULT_URI)[0])
        vhost = there.vhost
        api = place.find_api_beside_uri()
        if isinstance(api, Path) and not is_local(there.host):
            # The names are those of another machine.
            return
    else:
        vhost = given.get("vhost", "/")
        api = place.find_api()
    path = f"/api/{kind}"
    if kind == "vhosts":
        path += "?columns=name"
    else:
        pattern = f"^{re.escape(incomplete)}"
        query = {"page": 1, "page_size": NAMES_MAX, "name": pattern, "use_regex": "true"}
        path += f"/{quote(vhost, safe='')}?{urlencode(query)}&columns=name"
    found = get_json(api, path)
    rows = found["items"] if isinstance(found, dict) else found
    assert isinstance(rows, list)
    for row in rows:
        name = row["name"]
        # A shell would insert other names without the quotes that they need, and the command would
        # parse a name with a dash as an option.
        if name.startswith(incomplete) and shlex.quote(name) == name and name[0] not in _LEADING:
            yield name


def _given(context: typer.Context) -> dict[str, Any]:
    """Return the options so far, by their long names; those nearest to the end count."""
    given: dict[str, Any] = {}
    place: Any = context
    while place is not None:
        for one in place.command.params:
            source = place.get_parameter_source(one.name)
            if source is not None and source.name == "COMMANDLINE":
                name = max(one.opts, key=len).removeprefix("--").replace("-", "_")
                given.setdefault(name, place.params[one.name])
        place = place.parent
    return given
