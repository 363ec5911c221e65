"""Replacing the tags of a user."""

from __future__ import annotations

from leveret.broker.users.users import User, Users


def set_tags(users: Users, name: str, tags: list[str]) -> None:
    """Give a user these tags and no others.  Raises: NotFound (404)."""
    user = users.get(name)
    users.put(User(name, user.password_hash, tags, user.algorithm))
