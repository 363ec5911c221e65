"""Handing over what a user owns: a sink, a publisher's name, a consumer name of a stream.

An administrator gives it to another user at once.  Its owner offers it (202), and it is the other's
when he asks for it in the same words (204): nobody gets by somebody else's act what refuses his
messages or counts among the things that he may have.

The new owner is in the path, so that the log of administrative changes names him.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.core.ownership import Owner, foreign
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.management.gate import asking_owner, is_administrator
from leveret.management.routes.shared import BROKER, Row, found_vhost

#: What comes of a request: the thing is given, taken by whom it was offered to, or offered to him.
GIVES: Final = "gives"
TAKES: Final = "takes"
OFFERS: Final = "offers"


def wanted_owner(request: web.Request) -> Owner:
    """Return the user of the path, as the owner that he is to be.

    It is for those whom `judge` let through: who may not hand the thing over does not learn from it
    which users there are.

    Raises: NotFound (404) where there is none; who is no administrator hears no more than that he
    may not enter the vhost: PreconditionFailed (400).
    """
    users = request.app[BROKER].users
    name = request.match_info["user"]
    if is_administrator(request):
        users.get(name)
    elif (name, found_vhost(request).name) not in users.permissions:
        raise PreconditionFailed(
            f"there is no user '{name}' who may enter this vhost; an administrator lets him in"
        )
    return users.owner(name)


def judge(
    request: web.Request,
    owner: Owner | None,
    offered: Owner | None,
    label: str,
    command: str,
) -> str:
    """Return what comes of a request to give a thing of `owner` to the user of the path.

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
    """Return the answer to a request that was judged and done."""
    return web.Response(status=202 if outcome == OFFERS else 204)


def owner_row(request: web.Request, owner: Owner | None) -> Row:
    """Return whose a thing is, and whether that user was deleted."""
    deleted = owner is not None and not request.app[BROKER].users.has_owner(owner)
    return {"owner": None if owner is None else owner.name, "owner_deleted": deleted}
