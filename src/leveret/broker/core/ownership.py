"""Owners of what clients create by use: sinks, names of publishers, stored offsets of streams.

Nobody declares such a thing: it is there from the first commit, publish or store on, and who did
that owns it.  Only its owner changes it from then on; an administrator may remove it or give it to
another user.  The owner may offer it to another user, who owns it once he has said that he takes
it: a name that has seen the highest number there is would drop all that he sends, and many names
would fill his quota.  An offer is not recorded; a restart forgets it.

A user is more than a name: one who was deleted and one of the same name made later are two owners,
told apart by a number (`User.number`), so that nobody comes into what was another's by his name.

What was recorded without an owner, by an earlier release or by who operates the broker, has None;
the first who may use it takes it.

Invariant: an owner is judged by name and number, never by the name alone.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import AccessRefused, PreconditionFailed

#: The limits of a user that bound how many of these things he has: see `Quota`.
MAX_SINKS: Final = "max-sinks"
MAX_PUBLISHERS: Final = "max-publishers"
MAX_STREAM_CONSUMERS: Final = "max-stream-consumers"


@final
class Owner:
    """A user as an owner: his name, and his number among all users that ever were."""

    def __init__(self, name: str, number: i64) -> None:
        self.name: Final = name
        self.number: Final[i64] = number
        #: What tells him from all others, for counts.
        self.key: Final = f"{int(number)}:{name}"

    def is_same(self, other: Owner | None) -> bool:
        """Return whether both are one user."""
        return other is not None and self.number == other.number and self.name == other.name


def owner_fields(owner: Owner | None, field: str = "owner") -> dict[str, object]:
    """Return the fields of a record that name an owner; none without one."""
    if owner is None:
        return {}
    return {field: owner.name, f"{field}_number": int(owner.number)}


def recorded_owner(definition: dict[str, object], field: str = "owner") -> Owner | None:
    """Return the owner that a record tells; None where it tells none.

    Users of earlier releases have the number 0, and so have the owners that these recorded.
    """
    name = definition.get(field)
    if isinstance(name, bytes):
        name = name.decode("utf-8", "surrogateescape")
    if not isinstance(name, str) or not name:
        return None
    number = definition.get(f"{field}_number")
    return Owner(name, number if isinstance(number, int) else 0)


def key_of(owner: Owner | None) -> str:
    """Return what an owner is counted under; empty for none."""
    return "" if owner is None else owner.key


def is_free_for(owner: Owner | None, by: Owner | None) -> bool:
    """Return whether `by` owns a thing of `owner`, or may take it because nobody does."""
    return owner is None or owner.is_same(by)


def check_owned(owner: Owner | None, by: Owner | None, label: str, command: str) -> None:
    """Check that a thing is `by`'s, or nobody's.

    `label` names the thing and its kind, `command` what hands it over.  The owner is not named: who
    may do nothing with the thing does not learn whose it is.

    Raises: AccessRefused (403).
    """
    if not is_free_for(owner, by):
        raise AccessRefused(foreign(label, command))


def foreign(label: str, command: str) -> str:
    """Return the error text for a user who does not own a thing."""
    return (
        f"{label} belongs to another user; its owner or an administrator can hand it over "
        f"(leveret ctl {command})"
    )


@final
class Quota:
    """How many things of a kind each owner has in one place, and how many he may have.

    A quota refuses what is new, and nothing that is there.  It is a part of what the place holds in
    all, so that no user can fill it.
    """

    def __init__(self, user_limits: dict[str, dict[str, int]], limit: str, most: int) -> None:
        #: The limits of each user that has any.
        self.user_limits: Final = user_limits
        #: The user limit that stands for `most` where it is set; a negative one is none.
        self.limit: Final = limit
        self.most: Final = most
        self.counts: dict[str, int] = {}

    def add(self, owner: Owner | None) -> None:
        """Count one more."""
        key = key_of(owner)
        self.counts[key] = self.counts.get(key, 0) + 1

    def remove(self, owner: Owner | None) -> None:
        """Count one less."""
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
        """Return how many a user may have; negative if only the limit of the place holds."""
        limits = self.user_limits.get(owner.name)
        return self.most if limits is None else limits.get(self.limit, self.most)

    def has_room(self, owner: Owner | None, count: int = 1) -> bool:
        """Return whether a user may have so many more."""
        if owner is None or count == 0:
            return True
        most = self.most_of(owner)
        return most < 0 or self.counts.get(owner.key, 0) + count <= most

    def check(self, owner: Owner | None, things: str, remedy: str, count: int = 1) -> None:
        """Check that a user may have so many more of some `things`.

        Raises: PreconditionFailed (406).
        """
        if owner is not None and not self.has_room(owner, count):
            raise PreconditionFailed(
                f"user '{owner.name}' may have {self.most_of(owner)} {things} and has them: "
                f"{remedy}, or have his limit {self.limit} raised"
            )
