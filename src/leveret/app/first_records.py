"""Journals the start of a broker, its first user and its definitions before clients connect."""

from __future__ import annotations

import secrets
from typing import Final

from leveret import __version__
from leveret.app.ground import Ground
from leveret.broker.attributes.arguments import Arguments
from leveret.broker.definitions.imports import import_definitions
from leveret.broker.parameters import DEFAULT_USER_LIMITS
from leveret.broker.quotas import MAX_BINDINGS, MAX_MESSAGES, MAX_QUEUES
from leveret.broker.users.users import MAX_CONNECTIONS
from leveret.errors import PreconditionFailed
from leveret.limits import (
    BINDINGS_PER_USER,
    CONNECTIONS_PER_USER,
    MESSAGE_BYTES_PER_USER_PERCENT,
    MESSAGES_PER_USER,
    QUEUES_PER_USER,
)
from leveret.management.definitions import read_definitions
from leveret.server.authentication import PasswordAuthenticator
from leveret.store.disk import UNBOUNDED

#: The maximum size of a definitions file, enough for some hundred thousand queues.  It also limits
#: the read if the path is an endless device.
DEFINITIONS_BYTES_MAX: Final = 256 * 1024 * 1024


#: The default limits of users in a new data directory; for message bytes, a share of the disk.
NEW_USER_LIMITS: Final = {
    MAX_CONNECTIONS: CONNECTIONS_PER_USER,
    MAX_QUEUES: QUEUES_PER_USER,
    MAX_BINDINGS: BINDINGS_PER_USER,
    MAX_MESSAGES: MESSAGES_PER_USER,
}


class BadDefinitions(Exception):
    """The definitions file in the settings cannot be loaded; the text gives the reason."""


def journal_start(ground: Ground, authenticator: PasswordAuthenticator, uuid: bytes) -> None:
    """Journal the start, the first user and the definitions in the settings.

    After the record of the start, an earlier record of a clean stop is no longer the last one, and
    so no longer counts.  `uuid` is that of the data directory.

    Raises: BadDefinitions.
    """
    settings = ground.settings
    broker = ground.broker
    journal = broker.core.journal
    # With the uuid, the journal can be read even if the file `format` is lost.
    start = {"version": __version__, "time_ms": ground.clock.wall_ms(), "uuid": uuid}
    journal.define("start", start)
    capacity = ground.disk.capacity()
    if capacity < UNBOUNDED:
        broker.core.quotas.message_bytes = capacity * MESSAGE_BYTES_PER_USER_PERCENT // 100
        broker.parameters.apply_defaults()
    definitions = _definitions(ground)
    # In one transaction, because a crash must not leave a user without access to any vhost.
    journal.begin_tx()
    if not broker.vhosts and not broker.users.by_name:
        # Data directories from earlier releases continue without limits.
        broker.parameters.set_global(DEFAULT_USER_LIMITS, dict(NEW_USER_LIMITS))
    if not broker.vhosts and not definitions.get("vhosts"):
        broker.add_vhost(settings.default_vhost)
    if not broker.users.by_name and not definitions.get("users"):
        password = settings.default_pass.get_secret_value().encode()
        user = ground.parts.first_user(settings.default_user, password)
        broker.users.put(user)
        authenticator.remember(user.name, password, user.password_hash)
        vhost = broker.add_vhost(settings.default_vhost)
        broker.users.set_permission(user.name, vhost.name, ".*", ".*", ".*")
    journal.end_tx()
    if definitions:
        _load(ground, definitions)


def _definitions(ground: Ground) -> Arguments:
    """Read the definitions file in the settings, or return {} if none is set."""
    path = ground.settings.load_definitions
    if path is None:
        return {}
    try:
        with path.open("rb") as file:
            data = file.read(DEFINITIONS_BYTES_MAX + 1)
        if len(data) > DEFINITIONS_BYTES_MAX:
            text = f"{path} is larger than {DEFINITIONS_BYTES_MAX} bytes"
            raise BadDefinitions(f"load_definitions: {text}")
        return read_definitions(data)
    except PreconditionFailed as error:
        raise BadDefinitions(f"load_definitions: {path}: {error.text}") from None
    except OSError as failed:
        reason = failed.strerror
        raise BadDefinitions(f"load_definitions: cannot read {path}: {reason}") from None


def _load(ground: Ground, definitions: Arguments) -> None:
    """Add the definitions in the file to existing ones, all or none.  Raises: BadDefinitions."""
    path = ground.settings.load_definitions
    log = ground.log
    try:
        report = import_definitions(ground.broker, definitions, secrets.token_bytes(16))
    except PreconditionFailed as error:
        raise BadDefinitions(f"load_definitions: {path}: {error.text}") from None
    for note in report.notes:
        log.warning("definition skipped", place=note)
    for note in report.kept:
        log.warning("definition kept without effect", place=note)
    log.info("definitions loaded", path=str(path), changed=report.changed)
