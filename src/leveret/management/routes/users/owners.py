"""Transfers of owned objects: sinks, publisher names and the consumer names of streams.

A transfer by an administrator takes effect at once.  The owner can only offer an object (202), and
the other user accepts it with the same request (204).  Otherwise a user could be given an object
that refuses their messages or counts against their limits.

The new owner is in the path, so that the log of administrative changes contains the name.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.ownership import Owner, foreign
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.management.gate import asking_owner, is_administrator
from leveret.management.routes.shared import BROKER, Row, found_vhost

#: Outcomes of a request: an administrator transfers, a user accepts an offer, the owner offers.
GIVES: Final = "gives"
TAKES: Final = "takes"
OFFERS: Final = "offers"


def wanted_owner(request: web.Request) -> Owner:
    """Return the user in the path as the new owner.

    Call this only after `judge` has allowed the request, because a caller without the right to
    transfer the object must not learn which users exist.

    Raises: NotFound (404) for an administrator if the user does not exist; PreconditionFailed (400)
    for other callers if the user does not exist or has no access to the vhost.
    """
    users = request.app[BROKER].users
    name = request.match_info["user"]
    if is_administrator(request):
        users.get(name)
    elif (name, found_vhost(request).name) not in users.permissions:
        raise PreconditionFailed(
            f"no user '{name}' with permissions in this vhost; an administrator can give them"
        )
    return users.owner(name)


def judge(
    request: web.Request,
    owner: Owner | None,
    offered: Owner | None,
    label: str,
    command: str,
) -> str:
    """Return the outcome of a request to transfer an object of `owner` to the user in the path.

    Raises: AccessRefused (403 in HTTP).
    """
    if is_administrator(request):
        return GIVES
    by = asking_owner(request)
    if owner is not None and owner.is_same(by):
        return OFFERS
    asked = request.match_info["user"]
    if by is not None and by.name == asked and by.is_same(offered):
        return TAKES
    raise AccessRefused(foreign(label, command))


def answer(outcome: str) -> web.Response:
    """Return the answer to a completed request."""
    return web.Response(status=202 if outcome == OFFERS else 204)


def owner_row(request: web.Request, owner: Owner | None) -> Row:
    """Return the owner of an object, and whether the owner has been deleted."""
    deleted = owner is not None and not request.app[BROKER].users.has_owner(owner)
    return {"owner": None if owner is None else owner.name, "owner_deleted": deleted}
