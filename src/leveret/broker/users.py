"""Users and their passwords, kept as RabbitMQ keeps them: salted SHA-256, so hashes move freely.

A hash is four bytes of salt and the SHA-256 of salt and password (RabbitMQ's
`rabbit_password_hashing_sha256`).
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Final, final

from leveret.errors import PreconditionFailed

SALT_BYTES: Final = 4

#: Checked for users that are not there, so that they cost as much as those that are.
_NOBODY: Final = bytes(SALT_BYTES + 32)


def hash_password(salt: bytes, password: bytes) -> bytes:
    """Return the hash of `password`; `salt` has four bytes of chance."""
    if len(salt) != SALT_BYTES:
        raise PreconditionFailed("a salt has four bytes")
    return salt + hashlib.sha256(salt + password).digest()


@final
class User:
    """A user: a name, the hash of its password, and tags such as `administrator`."""

    def __init__(self, name: str, password_hash: bytes, tags: list[str]) -> None:
        self.name = name
        self.password_hash = password_hash
        self.tags = tags

    def definition(self) -> dict[str, object]:
        """Return the user as its journal record holds it."""
        return {"name": self.name, "password_hash": self.password_hash, "tags": self.tags}


@final
class Users:
    """All users of the broker."""

    def __init__(self) -> None:
        self.by_name: dict[str, User] = {}

    def put(self, user: User) -> None:
        """Add a user or replace the one of that name."""
        self.by_name[user.name] = user

    def verify(self, name: str, password: bytes) -> bool:
        """Tell whether `password` is the user's; takes the same time for unknown ones."""
        user = self.by_name.get(name)
        known = user.password_hash if user is not None else _NOBODY
        found = hash_password(known[:SALT_BYTES], password)
        return hmac.compare_digest(found, known) and user is not None
