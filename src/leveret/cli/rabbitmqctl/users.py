"""`authenticate_user`: check a user's password."""

from __future__ import annotations

from dataclasses import replace
from http import HTTPStatus
from typing import Final

from leveret.cli import exits
from leveret.cli.contexts.remote import Remote
from leveret.cli.ctl.asking import BrokerAddress, secret
from leveret.cli.printing import output
from leveret.cli.rabbitmqctl.checks import ANYWHERE, listeners_of
from leveret.cli.rabbitmqctl.options import CommandLine

#: A path that any logged-in user can request; without permissions the answer is 403 or 404.
_FOR_ALL_USERS: Final = "/api/streams/%2F"


def authenticate_user(line: CommandLine, broker: BrokerAddress) -> int:
    """Log in as a user over HTTP, and report whether the login was accepted."""
    from leveret.cli.management_client import answer_of

    words = [word for word in line.arguments if word != "--"]
    if len(words) not in (1, 2):
        raise exits.Failure("authenticate_user takes a user and optionally a password", exits.USAGE)
    user, password = words[0], secret(words[1] if len(words) > 1 else "")
    if line.banner:
        output.say(f'Authenticating user "{user}" ...')
    place = replace(_http_of(broker), user=user, password=password)
    status, reason, _ = answer_of(place, "GET", _FOR_ALL_USERS)
    if status in {HTTPStatus.OK, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
        output.say("Success")
        return exits.OK
    if status == HTTPStatus.UNAUTHORIZED:
        text = f'failed to authenticate user "{user}"'
        raise exits.Failure(text, exits.REFUSED)
    raise exits.Failure(f"{place} answers {status}: {reason}", exits.UNAVAILABLE)


def _http_of(broker: BrokerAddress) -> Remote:
    """Return the address of a broker's API over TCP, which requires a login.  Raises: Failure."""
    place = broker.place.find_api()
    if isinstance(place, Remote):
        return place
    for one in listeners_of(broker):
        if one["protocol"] == "http":
            host = str(one["interface"])
            host = "localhost" if host in ANYWHERE else host
            return Remote("http", host, int(str(one["port"])), "", "", "")
    text = "the broker has no HTTP listener without TLS for the login; name its API with --api"
    raise exits.Failure(text, exits.UNAVAILABLE)
