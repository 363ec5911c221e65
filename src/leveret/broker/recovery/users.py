"""Restores users, permissions and limits from their records; see `restore`.

Nothing is checked against existing objects, because a snapshot may be newer than the records
replayed over it, and records that delete a user or a vhost come later.  A permission with patterns
that are no longer accepted is dropped, so that it allows nothing.
"""

from __future__ import annotations

import contextlib
from typing import Final

from leveret.broker.users.permissions import Permission, TopicPermission
from leveret.broker.users.users import SHA256, User, Users
from leveret.errors import PreconditionFailed
from leveret.store.records.fields import text

#: The kinds of records about users.
USER_KINDS: Final = ("user", "permission", "topic_permission", "user_limits")


def define_user(users: Users, kind: str, definition: dict[str, object]) -> None:
    """Apply a definition of one of `USER_KINDS`."""
    if kind == "user":
        _define_user(users, definition)
        return
    user = text(definition, "user")
    if kind == "user_limits":
        limits = definition.get("limits")
        if isinstance(limits, dict):
            users.limits[user] = {str(name): int(value) for name, value in limits.items()}
        return
    key = (user, text(definition, "vhost"))
    write = text(definition, "write")
    read = text(definition, "read")
    with contextlib.suppress(PreconditionFailed):
        if kind == "permission":
            permission = Permission(text(definition, "configure"), write, read)
            users.keep_permission(*key, permission)
        else:
            exchange = text(definition, "exchange")
            topic_permission = TopicPermission(write, read, *key)
            users.keep_topic_permission(*key, exchange, topic_permission)


def _define_user(users: Users, definition: dict[str, object]) -> None:
    password_hash = definition.get("password_hash")
    tags = definition.get("tags")
    if isinstance(password_hash, bytes):
        names = [str(tag) for tag in tags] if isinstance(tags, list) else []
        algorithm = text(definition, "hashing_algorithm") or SHA256
        user = User(text(definition, "name"), password_hash, names, algorithm)
        number = definition.get("number")
        user.number = number if isinstance(number, int) else 0
        users.restore_user(user)


def delete_user(users: Users, kind: str, definition: dict[str, object]) -> None:
    """Delete the object of a record of one of `USER_KINDS`."""
    user = text(definition, "user")
    key = (user, text(definition, "vhost"))
    if kind == "user":
        users.restore_deleted_user(text(definition, "name"))
    elif kind == "user_limits":
        users.limits.pop(user, None)
    elif kind == "permission":
        users.drop_permission(key)
    else:
        users.drop_topic_permission(key, text(definition, "exchange"))
