"""Users: their passwords, their limits, and their permissions in each vhost.

Only a hash of a password is stored.  New hashes are Argon2id.  RabbitMQ's hashes are four bytes of
salt, then a SHA-2 (until version 3.5 an MD5) of salt and password; they are kept unchanged, so that
they can be moved between brokers.  Argon2id is slow, so a shell hashes and verifies in a thread and
passes in the result.

Every change is journaled and affects open connections: deleting a user closes their connections,
and after a change of permissions each of them checks its permissions at once.  A caller that makes
a change outside a connection's input must have the shell run the effects afterwards.

Invariants: a permission belongs to an existing user and vhost.
"""

from __future__ import annotations

import hashlib
import hmac
import sys
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.attributes.arguments import NUMBER_MAX, is_int
from leveret.broker.ownership import MAX_PUBLISHERS, MAX_SINKS, MAX_STREAM_CONSUMERS, Owner
from leveret.broker.patterns.patterns import compile_cost
from leveret.broker.policies.keys import utf8_size
from leveret.broker.quotas import QUOTAS
from leveret.broker.scheduler.accounts import (
    PERMISSION_BYTES,
    TOPIC_PERMISSION_BYTES,
    USER_BYTES,
    Account,
)
from leveret.broker.scheduler.costs import LOOKED_AT_PER_COST
from leveret.broker.scheduler.link import close_links
from leveret.broker.users.permissions import Permission, TopicPermission
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import (
    ARGON2_KIB_MAX,
    ARGON2_ROUNDS_MAX,
    PASSWORD_HASH_BYTES_MAX,
    SHORT_STRING_BYTES_MAX,
    TOPIC_PERMISSIONS_MAX,
    USER_TAGS_MAX,
    USERS_MAX,
)

if TYPE_CHECKING:
    from leveret.broker.core import Core
    from leveret.broker.scheduler.link import Link
    from leveret.broker.scheduler.task import Task
    from leveret.broker.vhost.vhost import Vhost

SALT_BYTES: Final = 4


#: The tag of users who may list the vhosts.
ADMINISTRATOR: Final = "administrator"

#: The names of the hashing algorithms: RabbitMQ's, and Argon2id in its standard text form.
MD5: Final = "rabbit_password_hashing_md5"
SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
ARGON2: Final = "leveret_password_hashing_argon2id"

#: The length of each RabbitMQ hash, including its salt.
_SALTED_BYTES: Final = {MD5: SALT_BYTES + 16, SHA256: SALT_BYTES + 32, SHA512: SALT_BYTES + 64}

#: Their names in `hashlib`.
_DIGESTS: Final = {MD5: "md5", SHA256: "sha256", SHA512: "sha512"}

MAX_CONNECTIONS: Final = "max-connections"

#: The limits of a user.
USER_LIMITS: Final = (
    MAX_CONNECTIONS,
    "max-channels",
    *QUOTAS,
    MAX_SINKS,
    MAX_PUBLISHERS,
    MAX_STREAM_CONSUMERS,
)


#: The limits that can have a default for all users.
DEFAULT_LIMITS: Final = (MAX_CONNECTIONS, "max-channels", *QUOTAS)


def hash_password(salt: bytes, password: bytes) -> bytes:
    """Return RabbitMQ's hash of `password`; `salt` is four random bytes."""
    if len(salt) != SALT_BYTES:
        raise PreconditionFailed("a salt has four bytes")
    return salt + hashlib.sha256(salt + password).digest()


def default_algorithm(password_hash: bytes) -> str:
    """Return the algorithm of a RabbitMQ hash that names none, as before version 3.6."""
    return MD5 if len(password_hash) == _SALTED_BYTES[MD5] else SHA256


def can_verify(algorithm: str) -> bool:
    """Return whether hashes of an algorithm can be verified."""
    return algorithm == ARGON2 or algorithm in _SALTED_BYTES


def check_hash(algorithm: str, password_hash: bytes) -> None:
    """Check that a hash can be verified; an empty one is valid, and disables login.

    Raises: PreconditionFailed (406).
    """
    if not can_verify(algorithm):
        raise PreconditionFailed(
            f"unknown hashing algorithm '{algorithm[:64]}': use {_either((*_SALTED_BYTES, ARGON2))}"
        )
    if not password_hash:
        return
    if len(password_hash) > PASSWORD_HASH_BYTES_MAX:
        raise PreconditionFailed(f"a password hash has at most {PASSWORD_HASH_BYTES_MAX} bytes")
    if algorithm == ARGON2:
        right = _is_bounded_argon2(password_hash)
    else:
        right = len(password_hash) == _SALTED_BYTES[algorithm]
    if not right:
        raise PreconditionFailed(f"the password hash is not a valid {algorithm} hash")


def _is_bounded_argon2(password_hash: bytes) -> bool:
    """Return whether a hash is `$argon2id$v=19$m=…,t=…,p=…$salt$hash` of acceptable cost."""
    parts = password_hash.split(b"$")
    if len(parts) != 6 or parts[0] or parts[1] != b"argon2id" or parts[2] != b"v=19":
        return False
    costs: dict[bytes, int] = {}
    for field in parts[3].split(b","):
        name, _, digits = field.partition(b"=")
        if not digits.isdigit() or len(digits) > 9:
            return False
        costs[name] = int(digits)
    if set(costs) != {b"m", b"t", b"p"}:
        return False
    memory, rounds, lanes = costs[b"m"], costs[b"t"], costs[b"p"]
    return (
        8 * lanes <= memory <= ARGON2_KIB_MAX
        and 1 <= rounds <= ARGON2_ROUNDS_MAX
        and 1 <= lanes <= 16
    )


def check_user_limits(limits: Mapping[str, object]) -> None:
    """Check a user's limits.  Raises: PreconditionFailed (406)."""
    for name, value in limits.items():
        if name not in USER_LIMITS:
            raise PreconditionFailed(
                f"Unrecognised term '{name}' in user-limits: use {_either(USER_LIMITS)}"
            )
        if not is_int(value) or not isinstance(value, int) or abs(value) > NUMBER_MAX:
            raise PreconditionFailed(
                f"{name} of a user should be a whole number of at most {NUMBER_MAX}, or -1 for no "
                f"limit; actually was {value}"
            )


def check_default_limits(limits: Mapping[str, object]) -> None:
    """Check the default limits of users.  Raises: PreconditionFailed (406)."""
    check_user_limits(limits)
    for name in limits:
        if name not in DEFAULT_LIMITS:
            raise PreconditionFailed(f"{name} has no default: use {_either(DEFAULT_LIMITS)}")


def _either(names: tuple[str, ...]) -> str:
    """Join names with commas and "or"."""
    return f"{', '.join(names[:-1])} or {names[-1]}"


@final
class User:
    """A user: a name, a password hash, and tags such as `administrator`."""

    def __init__(
        self, name: str, password_hash: bytes, tags: list[str], algorithm: str = SHA256
    ) -> None:
        self.name: Final = name
        self.password_hash: Final = password_hash
        self.tags: Final = tags
        self.algorithm: Final = algorithm
        #: A number that no other user of that name has ever had; 0 for users from earlier releases.
        self.number: i64 = 0

    def memory(self) -> i64:
        """Return the memory of the user in bytes, including an allowance for limits."""
        size: i64 = USER_BYTES + sys.getsizeof(self.name) + sys.getsizeof(self.password_hash)
        for tag in self.tags:
            size += i64(sys.getsizeof(tag)) + 8
        return size

    def definition(self) -> dict[str, object]:
        """Return the fields of the user's journal record."""
        return {
            "name": self.name,
            "password_hash": self.password_hash,
            "hashing_algorithm": self.algorithm,
            "tags": self.tags,
            "number": int(self.number),
        }

    def verify_fast(self, password: bytes) -> bool:
        """Return whether `password` is correct; always False if the hash is slow to verify."""
        known = self.password_hash
        if not known or not password or self.algorithm == ARGON2:
            return False
        salt = known[:SALT_BYTES]
        digest = _DIGESTS.get(self.algorithm, "sha256")
        found = hashlib.new(digest, salt + password, usedforsecurity=False).digest()
        return hmac.compare_digest(salt + found, known)


@mypyc_attr(allow_interpreted_subclasses=True)
class RightsWatcher:
    """A callback for changed permissions, for user sessions without a connection."""

    @abstractmethod
    def rights_changed(self, user: str) -> None:
        """Handle a change of a user, their password or their permissions."""


@final
class Users:
    """All users of the broker, their permissions and their limits."""

    def __init__(self, core: Core, vhosts: dict[str, Vhost], links: dict[Link, None]) -> None:
        self.core = core
        self._vhosts = vhosts
        self._links = links
        #: Notified of changes in addition to the connections.
        self.watchers: list[RightsWatcher] = []
        self.by_name: dict[str, User] = {}
        #: By user and vhost.
        self.permissions: dict[tuple[str, str], Permission] = {}
        #: By user and vhost, then by exchange.
        self.topic_permissions: dict[tuple[str, str], dict[str, TopicPermission]] = {}
        #: The limits (`USER_LIMITS`) by user; a negative number means no limit.
        self.limits = core.quotas.user_limits
        #: The memory of users and their permissions.
        self.account: Final = Account(core.accounts)
        #: The highest number ever assigned to a user.
        self.last_number: i64 = 0
        #: Connections whose permissions have changed, and whether a task checks their consumers.
        self._unchecked: dict[Link, None] = {}
        self._is_checking = False

    def owner(self, name: str) -> Owner:
        """Return a user as an owner; an unknown user owns nothing."""
        user = self.by_name.get(name)
        return Owner(name, -1 if user is None else user.number)

    def has_owner(self, owner: Owner) -> bool:
        """Return whether an owner still exists."""
        user = self.by_name.get(owner.name)
        return user is not None and user.number == owner.number

    def used(self, number: i64) -> None:
        """Never assign `number` or a lower one to a new user."""
        self.last_number = max(self.last_number, number)

    def get(self, name: str) -> User:
        """Return a user.  Raises: NotFound (404)."""
        user = self.by_name.get(name)
        if user is None:
            raise NotFound(f"no user '{name}'")
        return user

    def verify(self, name: str, password: bytes) -> bool:
        """Return whether `password` is correct; always False if the hash is slow to verify."""
        user = self.by_name.get(name)
        return user is not None and user.verify_fast(password)

    # -- users ------------------------------------------------------------------------------------

    def put(self, user: User) -> None:
        """Add a user, or replace the password and tags of an existing one.

        Raises: PreconditionFailed (406) for an invalid name, hash or tag, or too many users.
        """
        if not 0 < utf8_size(user.name) <= SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(f"a user's name has 1 to {SHORT_STRING_BYTES_MAX} bytes")
        if len(user.tags) > USER_TAGS_MAX:
            raise PreconditionFailed(f"a user has at most {USER_TAGS_MAX} tags")
        for tag in user.tags:
            if utf8_size(tag) > SHORT_STRING_BYTES_MAX:
                raise PreconditionFailed(f"a tag has at most {SHORT_STRING_BYTES_MAX} bytes")
        check_hash(user.algorithm, user.password_hash)
        if user.name not in self.by_name and len(self.by_name) >= USERS_MAX:
            raise PreconditionFailed(f"there are at most {USERS_MAX} users")
        current = self.by_name.get(user.name)
        self._check_room(user.memory(), 0 if current is None else current.memory())
        # Higher than all numbers ever assigned, including those forgotten by a restart.
        user.number = (
            max(self.last_number + 1, self.core.now_ms) if current is None else current.number
        )
        self.core.journal.define("user", user.definition())
        self.restore_user(user)
        self._changed(user.name, "")

    def change_password(self, name: str, password_hash: bytes, algorithm: str) -> None:
        """Change a user's password.  Open connections stay open, as in RabbitMQ.

        Raises: NotFound (404); PreconditionFailed (406) for an invalid hash.
        """
        self.put(User(name, password_hash, self.get(name).tags, algorithm))

    def delete(self, name: str) -> Task:
        """Delete a user with their permissions, and begin to close their connections (320).

        Raises: NotFound (404).
        """
        self.get(name)
        self.core.scheduler.changes += 1
        use = self.core.quotas.users.get(self.owner(name).key)
        if use is not None:
            use.is_gone = True
            use.limit({})
        self.restore_deleted_user(name)
        self.core.journal.delete("user", {"name": name})
        self._notify_watchers(name)
        return self.core.scheduler.start(
            close_links(list(self._links), f"user '{name}' is deleted", user=name)
        )

    def has_tag(self, name: str, tag: str) -> bool:
        """Return whether a user has a tag."""
        user = self.by_name.get(name)
        return user is not None and tag in user.tags

    # -- permissions ------------------------------------------------------------------------------

    def set_permission(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Set a user's permission for a vhost.

        Raises: NotFound (404) if the user or the vhost does not exist; PreconditionFailed (406) for
        an invalid pattern.
        """
        self._check_there(user, vhost)
        for pattern in (configure, write, read):
            self.core.scheduler.spent += compile_cost(pattern)
        permission = Permission(configure, write, read)
        before = self.permissions.get((user, vhost))
        self._check_room(_memory(permission), 0 if before is None else _memory(before))
        self.core.journal.define("permission", permission.definition(user, vhost))
        self.keep_permission(user, vhost, permission)
        self._changed(user, vhost)

    def check_new_permission(self) -> None:
        """Check that there is room for a short permission.  Raises: PreconditionFailed (406)."""
        self._check_room(_memory(Permission(".*", ".*", ".*")), 0)

    def clear_permission(self, user: str, vhost: str) -> None:
        """Remove a user's permission for a vhost.  Raises: NotFound (404) if there is none."""
        self._check_there(user, vhost)
        if (user, vhost) not in self.permissions:
            raise NotFound(f"user '{user}' has no permissions in vhost '{vhost}'")
        self.core.scheduler.changes += 1
        self.drop_permission((user, vhost))
        self.core.journal.delete("permission", {"user": user, "vhost": vhost})
        self._changed(user, vhost)

    def set_topic_permission(
        self, user: str, vhost: str, exchange: str, write: str, read: str
    ) -> None:
        """Restrict the routing keys that a user may use with a topic exchange.

        Raises: NotFound (404); PreconditionFailed (406) for an invalid pattern, an exchange name
        that is too long, or too many permissions.
        """
        self._check_there(user, vhost)
        # Count each twice, because a pattern is compiled again after `{username}` is replaced.
        self.core.scheduler.spent += 2 * (compile_cost(write) + compile_cost(read))
        permission = TopicPermission(write, read, user, vhost)
        if utf8_size(exchange) > SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(
                f"the exchange of a topic permission has a name of at most {SHORT_STRING_BYTES_MAX}"
                " bytes"
            )
        of_user = self.topic_permissions.get((user, vhost), {})
        if exchange not in of_user and len(of_user) >= TOPIC_PERMISSIONS_MAX:
            raise PreconditionFailed(
                f"a user has at most {TOPIC_PERMISSIONS_MAX} topic permissions in a vhost"
            )
        before = of_user.get(exchange)
        self._check_room(
            _topic_memory(exchange, permission),
            0 if before is None else _topic_memory(exchange, before),
        )
        definition = permission.definition(user, vhost, exchange)
        self.core.journal.define("topic_permission", definition)
        self.keep_topic_permission(user, vhost, exchange, permission)
        self._changed(user, vhost)

    def clear_topic_permission(self, user: str, vhost: str, exchange: str | None = None) -> None:
        """Remove a user's topic permission for an exchange, or for None all in the vhost.

        Raises: NotFound (404) if there is none.
        """
        self._check_there(user, vhost)
        of_user = self.topic_permissions.get((user, vhost), {})
        names = list(of_user) if exchange is None else [exchange]
        if not names or names[0] not in of_user:
            raise NotFound(f"user '{user}' has no such topic permission in vhost '{vhost}'")
        journal = self.core.journal
        journal.begin_tx()
        for name in names:
            definition: dict[str, object] = {"user": user, "vhost": vhost, "exchange": name}
            journal.delete("topic_permission", definition)
            self.drop_topic_permission((user, vhost), name)
        journal.end_tx()
        self._changed(user, vhost)

    def forget_vhost(self, vhost: str) -> None:
        """Remove the permissions in a deleted vhost; the record of its deletion covers them."""
        self._count_look()
        for key in [key for key in self.topic_permissions if key[1] == vhost]:
            self._drop_topic_permissions(key)
        for key in [key for key in self.permissions if key[1] == vhost]:
            self.drop_permission(key)
            self._notify_watchers(key[0])

    def _notify_watchers(self, user: str) -> None:
        for watcher in self.watchers:
            watcher.rights_changed(user)

    def _check_there(self, user: str, vhost: str) -> None:
        self.get(user)
        if vhost not in self._vhosts:
            raise NotFound(f"no vhost '{vhost}'")

    def _changed(self, user: str, vhost: str) -> None:
        """Have the connections of `user` in `vhost` ("" for all) check their permissions again."""
        if vhost:
            # The new revision invalidates routes that were resolved under the old permissions.
            self._vhosts[vhost].revision += 1
        links = list(self._links)
        self.core.scheduler.spent += len(links) // LOOKED_AT_PER_COST
        for link in links:
            if link.user == user and vhost in ("", link.vhost_name):
                self.core.scheduler.spent += 1
                link.access_changed()
                self._unchecked[link] = None
        if not self._is_checking:
            self._is_checking = True
            self.core.scheduler.start(self._check_consumers())
        self._notify_watchers(user)

    def _check_consumers(self) -> Iterator[int]:
        """Have connections cancel the consumers of queues that their users may no longer read.

        A connection whose permissions change in the meantime is checked again.
        """
        while self._unchecked:
            yield from self._unchecked.popitem()[0].check_consumers()
        self._is_checking = False

    # -- limits -----------------------------------------------------------------------------------

    def set_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Set the given limits of a user, for objects opened from now on; other limits stay.

        Raises: NotFound (404); PreconditionFailed (406), without setting any, for an unknown limit
        or for a value that is not a number or too large.
        """
        self.replace_limits(name, {**self.limits.get(name, {}), **limits})

    def replace_limits(self, name: str, limits: Mapping[str, int]) -> None:
        """Replace all limits of a user, with one record.

        Raises: as `set_limits`.
        """
        self.get(name)
        check_user_limits(limits)
        self._keep_limits(name, dict(limits))

    def clear_limits(self, name: str, limit: str | None = None) -> None:
        """Remove one limit of a user, or all; ignore a limit that is not set.

        Raises: NotFound (404) if the user does not exist.
        """
        self.get(name)
        left: dict[str, int] = {}
        if limit is not None:
            left.update(self.limits.get(name, {}))
            left.pop(limit, None)
        self._keep_limits(name, left)

    def _keep_limits(self, name: str, limits: dict[str, int]) -> None:
        if limits:
            self.core.journal.define("user_limits", {"user": name, "limits": dict(limits)})
            self.limits[name] = limits
        else:
            self.core.journal.delete("user_limits", {"user": name})
            self.limits.pop(name, None)
        self._apply_quotas(name)

    def _apply_quotas(self, name: str) -> None:
        """Apply a user's limits to their quotas; deleted users of the same name get no limits."""
        use = self.core.quotas.users.get(self.owner(name).key)
        if use is not None:
            use.limit(self.core.quotas.limits_of(name))

    def restore_quotas(self) -> None:
        """Apply the limits of all users to their quotas, once everything is restored."""
        for use in list(self.core.quotas.users.values()):
            self.core.quotas.forget_unused(use)
            if use.owner is not None:
                use.is_gone = not self.has_owner(use.owner)
                use.limit({} if use.is_gone else self.core.quotas.limits_of(use.owner.name))
        for vhost in self._vhosts.values():
            vhost.use.limit(vhost.limits.by_name)

    def limit(self, name: str, limit: str) -> int:
        """Return a limit of a user, or the default; a negative number means no limit."""
        default = self.core.quotas.defaults.get(limit, -1)
        limits = self.limits.get(name)
        return default if limits is None else limits.get(limit, default)

    # -- restoring, without journal and checks -----------------------------------------------------

    def restore_user(self, user: User) -> None:
        """Restore a user, without a record."""
        before = self.by_name.get(user.name)
        self.account.book(user.memory() - (0 if before is None else before.memory()))
        self.by_name[user.name] = user
        self.used(user.number)

    def restore_deleted_user(self, name: str) -> None:
        """Remove a user with their permissions and limits, without a record."""
        user = self.by_name.pop(name, None)
        if user is not None:
            self.account.book(-user.memory())
        self.limits.pop(name, None)
        self._count_look()
        for key in [key for key in self.permissions if key[0] == name]:
            self.drop_permission(key)
        for key in [key for key in self.topic_permissions if key[0] == name]:
            self._drop_topic_permissions(key)

    def keep_permission(self, user: str, vhost: str, permission: Permission) -> None:
        """Restore a permission, without a record."""
        self.drop_permission((user, vhost))
        self.account.book(_memory(permission))
        self.permissions[user, vhost] = permission

    def drop_permission(self, key: tuple[str, str]) -> None:
        """Remove the permission of a user in a vhost, if there is one, without a record."""
        before = self.permissions.pop(key, None)
        if before is not None:
            self.core.scheduler.spent += 1
            self.account.book(-_memory(before))

    def keep_topic_permission(
        self, user: str, vhost: str, exchange: str, permission: TopicPermission
    ) -> None:
        """Restore a topic permission, without a record."""
        self.drop_topic_permission((user, vhost), exchange)
        self.account.book(_topic_memory(exchange, permission))
        self.topic_permissions.setdefault((user, vhost), {})[exchange] = permission

    def drop_topic_permission(self, key: tuple[str, str], exchange: str) -> None:
        """Remove a topic permission of a user in a vhost, if there is one, without a record."""
        of_user = self.topic_permissions.get(key)
        if of_user is None or exchange not in of_user:
            return
        self.core.scheduler.spent += 1
        self.account.book(-_topic_memory(exchange, of_user.pop(exchange)))
        if not of_user:
            del self.topic_permissions[key]

    def _count_look(self) -> None:
        """Count the cost of iterating over all permissions."""
        all_of_them = len(self.permissions) + len(self.topic_permissions)
        self.core.scheduler.spent += all_of_them // LOOKED_AT_PER_COST

    def _drop_topic_permissions(self, key: tuple[str, str]) -> None:
        for exchange in list(self.topic_permissions.get(key, ())):
            self.drop_topic_permission(key, exchange)

    def _check_room(self, size: i64, before: i64) -> None:
        """Check that there is room for a change from `before` to `size` bytes.

        Raises: PreconditionFailed (406).
        """
        if size > before:
            self.core.accounts.check_definition(size - before)


def _memory(permission: Permission) -> i64:
    """Return the memory of a permission in bytes."""
    return PERMISSION_BYTES + permission.memory()


def _topic_memory(exchange: str, permission: TopicPermission) -> i64:
    """Return the memory of a topic permission in bytes."""
    return TOPIC_PERMISSION_BYTES + permission.memory() + i64(sys.getsizeof(exchange))
