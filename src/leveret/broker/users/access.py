"""The permissions of one connection in its vhost, cached by name.

The permission checked for each operation follows RabbitMQ: declare and delete need *configure*;
publishing and being bound need *write*; consume, get, purge and binding from an exchange need
*read*; the default exchange is checked as `amq.default`.  A passive declare needs any of the three,
so that users without permissions learn nothing from names.

Invariants: the cache agrees with the current permissions, because `forget` is called when they
change; its memory is bounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.scheduler.costs import PATTERN_WALK_PER_COST
from leveret.broker.users.permissions import CONFIGURE, READ, WRITE
from leveret.errors import AccessRefused
from leveret.limits import SHORT_STRING_BYTES_MAX
from leveret.names import Name

if TYPE_CHECKING:
    from leveret.broker.patterns.patterns import Pattern
    from leveret.broker.users.permissions import TopicPermission
    from leveret.broker.users.users import Users

#: The maximum number of names with cached permissions of a connection; a full cache is cleared.
ACCESS_CACHED_MAX: Final = 1024


_WORDS: Final = {CONFIGURE: "configure", WRITE: "write", READ: "read"}

#: Distance in bits from a checked permission to the same permission as granted.
_GRANTED: Final = 3

#: The name under which the default exchange is checked.
_DEFAULT_EXCHANGE: Final = Name("amq.default")


@final
class Access:
    """The permissions of one connection."""

    def __init__(self, users: Users, user: str, vhost: str) -> None:
        self._users = users
        self.user: Final = user
        self.vhost: Final = vhost
        #: The user as the owner of objects created by use.
        self.owner: Final = users.owner(user)
        #: By name: the permissions already checked, and `_GRANTED` bits above them the granted
        #: ones.
        self._known: dict[Name, int] = {}
        #: The number of permission changes, by which a long operation detects a change.
        self.revision: i64 = 0
        #: Pattern positions examined so far, some 0.1 µs each.
        self.walked: i64 = 0

    def forget(self) -> None:
        """Clear the cache, because the permissions changed."""
        self.revision += 1
        self._known.clear()

    def has_tag(self, tag: str) -> bool:
        """Return whether the user has a tag."""
        return self._users.has_tag(self.user, tag)

    def allows(self, what: int, name: Name) -> bool:
        """Return whether `CONFIGURE`, `WRITE` or `READ` is allowed for a queue or an exchange."""
        known = self._known.get(name, 0)
        if known & what:
            return known & what << _GRANTED != 0
        permission = self._users.permissions.get((self.user, self.vhost))
        allowed = permission is not None and self._finds(permission.pattern(what), name)
        if len(name) <= SHORT_STRING_BYTES_MAX:
            if len(self._known) >= ACCESS_CACHED_MAX:
                self._known.clear()
            self._known[name] = known | what | (what << _GRANTED if allowed else 0)
        return allowed

    def check(self, what: int, kind: str, name: Name) -> None:
        """Check a permission (`CONFIGURE`, `WRITE` or `READ`) for a `queue` or an `exchange`.

        Raises: AccessRefused (403).
        """
        asked = _asked(kind, name)
        if not self.allows(what, asked):
            raise AccessRefused(f"{_WORDS[what]} access to {self._where(kind, asked)}")

    def configure(self, kind: str, name: Name) -> None:
        """Check that a `queue` or `exchange` may be declared or deleted.

        Raises: AccessRefused (403).
        """
        self.check(CONFIGURE, kind, name)

    def write(self, kind: str, name: Name) -> None:
        """Check write permission.  Raises: AccessRefused (403)."""
        self.check(WRITE, kind, name)

    def read(self, kind: str, name: Name) -> None:
        """Check read permission.  Raises: AccessRefused (403)."""
        self.check(READ, kind, name)

    def see(self, kind: str, name: Name) -> None:
        """Check that the user has any permission for a name.  Raises: AccessRefused (403)."""
        asked = _asked(kind, name)
        if not (
            self.allows(CONFIGURE, asked) or self.allows(WRITE, asked) or self.allows(READ, asked)
        ):
            raise AccessRefused(f"access to {self._where(kind, asked)}")

    def is_limited(self, exchange: Name) -> bool:
        """Return whether a topic permission restricts the user for an exchange."""
        return self._topic_permission(exchange) is not None

    def has_topic_limits(self) -> bool:
        """Return whether topic permissions restrict the user in this vhost."""
        return (self.user, self.vhost) in self._users.topic_permissions

    def check_topic(self, what: int, exchange: Name, routing_key: str) -> None:
        """Check `WRITE` for the routing key of a publish, or `READ` for a binding key.

        The exchange matches keys by words.  Without a topic permission for it, everything is
        allowed.

        Raises: AccessRefused (403).
        """
        permission = self._topic_permission(exchange)
        if permission is not None and not self._finds(permission.pattern(what), routing_key):
            raise AccessRefused(
                f"{_WORDS[what]} access to topic '{routing_key}' in "
                f"{self._where('exchange', exchange)}"
            )

    def write_topics(self, exchange: Name, start: str) -> None:
        """Check that every key that begins with `start` may be published to a topic exchange.

        Raises: AccessRefused (403).
        """
        permission = self._topic_permission(exchange)
        if permission is None or self._finds(permission.every_write, start):
            return
        keys = f"all topics that begin with '{start}'" if start else "all topics"
        raise AccessRefused(f"write access to {keys} in {self._where('exchange', exchange)}")

    def _topic_permission(self, exchange: Name) -> TopicPermission | None:
        permissions = self._users.topic_permissions
        if not permissions:
            # Most brokers have no topic permissions, and this runs for each new routing key.
            return None
        of_user = permissions.get((self.user, self.vhost))
        return of_user.get(exchange) if of_user is not None else None

    def _finds(self, pattern: Pattern | None, text: str) -> bool:
        """Return whether `pattern`, if any, is found in `text`; count the cost."""
        if pattern is None:
            return False
        before = pattern.walked
        found = pattern.matches(text)
        self.walked += pattern.walked - before
        self._users.core.scheduler.spent += (pattern.walked - before) // PATTERN_WALK_PER_COST
        return found

    def _where(self, kind: str, name: str) -> str:
        return f"{kind} '{name}' in vhost '{self.vhost}' refused for user '{self.user}'"


def _asked(kind: str, name: Name) -> Name:
    """Return the name under which a permission is checked."""
    return name if name or kind != "exchange" else _DEFAULT_EXCHANGE
