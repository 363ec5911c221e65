"""Owners of objects that clients create by use: sinks, publisher names, stored stream offsets.

Such an object is not declared: it exists from the first commit, publish or store on, and the user
of that operation owns it.  From then on only its owner changes it; an administrator may remove it
or give it to another user.  The owner may offer it to another user, who owns it once they have
accepted.  Acceptance is required because a name with the highest possible number would drop all
messages of its new owner, and many names would fill their quota.  Offers are not recorded, and a
restart drops them.

A user is more than a name: a deleted user and a later one of the same name are two owners with
different numbers (`User.number`), so a user never inherits another's objects by name.  Objects
recorded without an owner, by an earlier release or by the operator, have None; the first permitted
user to use such an object takes it.

Invariant: an owner is compared by name and number, never by the name alone.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import AccessRefused, PreconditionFailed

#: The user limits for the number of these objects: see `Quota`.
MAX_SINKS: Final = "max-sinks"
MAX_PUBLISHERS: Final = "max-publishers"
MAX_STREAM_CONSUMERS: Final = "max-stream-consumers"


@final
class Owner:
    """A user as an owner: the name, and the number that no other user ever has."""

    def __init__(self, name: str, number: i64) -> None:
        self.name: Final = name
        self.number: Final[i64] = number
        #: A unique key for counters.
        self.key: Final = f"{int(number)}:{name}"

    def is_same(self, other: Owner | None) -> bool:
        """Return whether both are the same user."""
        return other is not None and self.number == other.number and self.name == other.name


def owner_fields(owner: Owner | None, field: str = "owner") -> dict[str, object]:
    """Return the fields of a record that name an owner; none if there is no owner."""
    if owner is None:
        return {}
    return {field: owner.name, f"{field}_number": int(owner.number)}


def recorded_owner(definition: dict[str, object], field: str = "owner") -> Owner | None:
    """Return the owner named in a record, or None.

    Users of earlier releases have the number 0, as have owners recorded by those releases.
    """
    name = definition.get(field)
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    if not isinstance(name, str) or not name:
        return None
    number = definition.get(f"{field}_number")
    return Owner(name, number if isinstance(number, int) else 0)


def key_of(owner: Owner | None) -> str:
    """Return the key that an owner is counted under; empty for None."""
    return "" if owner is None else owner.key


def is_free_for(owner: Owner | None, by: Owner | None) -> bool:
    """Return whether `by` is `owner`, or may become the owner because there is none."""
    return owner is None or owner.is_same(by)


def check_owned(owner: Owner | None, by: Owner | None, label: str, command: str) -> None:
    """Check that an object belongs to `by` or to nobody.

    `label` names the object and its kind, `command` the command that transfers it.  The error does
    not name the owner, because users without permission must not learn it.

    Raises: AccessRefused (403).
    """
    if not is_free_for(owner, by):
        raise AccessRefused(foreign(label, command))


def foreign(label: str, command: str) -> str:
    """Return the error text for a user who does not own an object."""
    return (
        f"{label} belongs to another user; its owner or an administrator can hand it over "
        f"(leveret ctl {command})"
    )


@final
class Quota:
    """The number of objects of a kind that each owner has in one place, and its limit.

    A quota refuses new objects and never removes existing ones.  It is a part of the place's total
    capacity, so no user can fill the place alone.
    """

    def __init__(self, user_limits: dict[str, dict[str, int]], limit: str, most: int) -> None:
        #: The limits of each user that has any.
        self.user_limits: Final = user_limits
        #: The user limit that overrides `most` if it is set; negative: no limit.
        self.limit: Final = limit
        self.most: Final = most
        self.counts: dict[str, int] = {}

    def add(self, owner: Owner | None) -> None:
        """Count one more object."""
        key = key_of(owner)
        self.counts[key] = self.counts.get(key, 0) + 1

    def remove(self, owner: Owner | None) -> None:
        """Count one object fewer."""
        key = key_of(owner)
        left = self.counts.get(key, 0) - 1
        if left > 0:
            self.counts[key] = left
        else:
            self.counts.pop(key, None)

    def clear(self) -> None:
        """Reset all counts."""
        self.counts.clear()

    def most_of(self, owner: Owner) -> int:
        """Return how many objects a user may have; if negative, only the place's limit applies."""
        limits = self.user_limits.get(owner.name)
        return self.most if limits is None else limits.get(self.limit, self.most)

    def has_room(self, owner: Owner | None, count: int = 1) -> bool:
        """Return whether a user may have `count` more objects."""
        if owner is None or count == 0:
            return True
        most = self.most_of(owner)
        return most < 0 or self.counts.get(owner.key, 0) + count <= most

    def check(self, owner: Owner | None, things: str, remedy: str, count: int = 1) -> None:
        """Check that a user may have `count` more `things`.

        Raises: PreconditionFailed (406).
        """
        if owner is not None and not self.has_room(owner, count):
            raise PreconditionFailed(
                f"user '{owner.name}' may have {self.most_of(owner)} {things} at most: "
                f"{remedy}, or have the limit {self.limit} raised"
            )
