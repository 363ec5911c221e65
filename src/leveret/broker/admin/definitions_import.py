"""Putting definitions into a broker: first into a stage that nobody sees, then into the broker.

The stage is a broker of its own that holds copies of what the definitions touch.  What goes wrong
goes wrong there, with the place of the entry, so that definitions are applied as a whole or not at
all.  Both passes are the same code.

Definitions add to what is there: users, permissions, parameters and policies replace those of the
same name; a queue or an exchange that is there stays as it is, and a note tells where it differs.
What cannot be applied in any broker (RabbitMQ's files have bindings of queues that ended with their
connection) is left out with a note.  Parameters of components that are not here, and keys of
policies that are not known here, are kept with a note: they have no effect, and are exported again.

Invariants: importing the same definitions again changes nothing and journals nothing; nothing is
deleted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from typing import Final, final

from leveret.broker.admin.definitions_entry import Entry, entries
from leveret.broker.admin.definitions_values import TYPED, is_same, read_typed_arguments
from leveret.broker.node.broker import Broker
from leveret.broker.node.parameters import (
    OPERATOR_POLICY,
    ParameterComponent,
    policy_of,
)
from leveret.broker.node.users import SALT_BYTES, SHA256, User, hash_password
from leveret.broker.policy.policy import Policy
from leveret.broker.queue.queue import Queue
from leveret.broker.topology.binding import Binding, binding_identity
from leveret.broker.topology.exchange import Exchange
from leveret.broker.topology.exchanges import make_exchange
from leveret.broker.values.arguments import Arguments, check_equivalent
from leveret.broker.vhost.metadata import check_limits
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AmqpError, NotFound, PreconditionFailed
from leveret.names import Name, clean_argument, cleaned
from leveret.store.journal.journal import Journal
from leveret.store.records.definition import Definition

#: The sections of the whole broker and those of one vhost, in the order in which they are applied.
_OF_BROKER: Final = ("vhosts", "users", "permissions", "topic_permissions", "global_parameters")
_OF_VHOST: Final = ("parameters", "policies", "queues", "exchanges", "bindings")


@final
class ImportReport:
    """What an import did: how many entries changed something, and what has no effect."""

    def __init__(self) -> None:
        self.changed: dict[str, int] = {}
        #: What was left out, each with its place.
        self.notes: list[str] = []
        #: What was kept and has no effect, each with its place.
        self.kept: list[str] = []


@final
class _OnStage(ParameterComponent):
    """A component whose values are judged and come to nothing."""

    def __init__(self, component: ParameterComponent) -> None:
        self._component = component

    def check(self, vhost: str, name: str, value: object) -> None:
        """Judge a value."""
        self._component.check(vhost, name, value)


def import_definitions(
    broker: Broker, definitions: Mapping[str, object], salt: bytes, vhost: str | None = None
) -> ImportReport:
    """Add definitions to a broker, or those of one vhost to `vhost`, whatever vhost they name.

    `salt` is bytes of chance, for passwords in clear text.

    Raises: NotFound (404) without the vhost; PreconditionFailed (406), with the place, for anything
    that cannot be; then nothing is changed.
    """
    if vhost is not None and vhost not in broker.vhosts:
        raise NotFound(f"no vhost '{vhost}'")
    found: list[Entry] = []
    for section in _OF_VHOST if vhost is not None else _OF_BROKER + _OF_VHOST:
        found += entries(definitions, section, vhost)
    _check_room(broker, found)
    _Import(_stage(broker, found), salt).run(found)
    journal = broker.turn.journal
    # One record, so that a crash leaves all of it or nothing.
    journal.begin_tx()
    try:
        report = _Import(broker, salt).run(found)
    finally:
        journal.end_tx()
    for section, rows in definitions.items():
        if isinstance(rows, list) and rows and section not in _OF_BROKER + _OF_VHOST:
            report.notes.append(f"{section}: a section that is not known here")
    return report


# -- the stage -------------------------------------------------------------------------------------


def _stage(broker: Broker, found: list[Entry]) -> Broker:
    """Return a broker with copies of what is there, as far as the entries have to do with it."""
    stage = Broker(Journal(), broker.memory_bytes_max)
    for name, vhost in broker.vhosts.items():
        copy = stage.restore_vhost(name)
        copy.metadata.restore(vhost.metadata.record())
        copy.policies.by_name.update(vhost.policies.by_name)
        copy.policies.operator_by_name.update(vhost.policies.operator_by_name)
        copy.exchanges.bindings_max = vhost.exchanges.bindings_max
        copy.policies.count_max = vhost.policies.count_max
    users = broker.users
    stage.users.by_name.update(users.by_name)
    stage.users.permissions.update(users.permissions)
    for key, of_user in users.topic_permissions.items():
        stage.users.topic_permissions[key] = dict(of_user)
    for name, limits in users.limits.items():
        stage.users.limits[name] = dict(limits)
    for name, component in broker.parameters.components.items():
        stage.parameters.components[name] = _OnStage(component)
    stage.parameters.values.update(broker.parameters.values)
    stage.parameters.global_values.update(broker.parameters.global_values)
    for entry in found:
        _bring(broker, stage, entry)
    return stage


def _check_room(broker: Broker, found: list[Entry]) -> None:
    """Check that what is new has room beside what is there, of which the stage holds a part."""
    new: dict[tuple[str, str], set[str]] = {}
    for entry in found:
        if entry.section not in ("queues", "exchanges"):
            continue
        of_queues = entry.section == "queues"
        vhost = broker.vhosts.get(entry.vhost())
        name = entry.fields.get("name")
        if vhost is None or not isinstance(name, str):
            continue
        if name in (vhost.queues.by_name if of_queues else vhost.exchanges.by_name):
            continue
        names = new.setdefault((entry.section, vhost.name), set())
        names.add(name)
        there = len(vhost.queues.by_name) if of_queues else len(vhost.exchanges.by_name)
        most = vhost.queues.count_max if of_queues else vhost.exchanges.count_max
        if there + len(names) > most:
            raise entry.bad(f"a vhost has at most {most} {entry.section}")


def _bring(broker: Broker, stage: Broker, entry: Entry) -> None:
    """Copy the queues and exchanges that an entry names and that are there."""
    if entry.section not in ("queues", "exchanges", "bindings"):
        return
    name = entry.vhost()
    vhost = broker.vhosts.get(name)
    if vhost is None:
        return
    copy = stage.vhosts[name]
    fields = entry.fields
    if entry.section == "queues":
        _bring_queue(vhost, copy, fields.get("name"))
    elif entry.section == "exchanges":
        _bring_exchange(vhost, copy, fields.get("name"))
    else:
        _bring_exchange(vhost, copy, fields.get("source"))
        if fields.get("destination_type") == "exchange":
            _bring_exchange(vhost, copy, fields.get("destination"))
        else:
            _bring_queue(vhost, copy, fields.get("destination"))


def _bring_queue(vhost: Vhost, copy: Vhost, name: object) -> None:
    queue = vhost.queues.by_name.get(name) if isinstance(name, str) else None
    if queue is None or queue.name in copy.queues.by_name:
        return
    made = copy.queues.make(
        copy.ids.next_queue_id(),
        queue.name,
        queue.durable,
        queue.exclusive,
        queue.auto_delete,
        queue.arguments,
    )
    made.owner = queue.owner


def _bring_exchange(vhost: Vhost, copy: Vhost, name: object) -> None:
    """Copy an exchange with its bindings, which bound what its type takes."""
    exchange = vhost.exchanges.by_name.get(name) if isinstance(name, str) else None
    if exchange is None:
        return
    made = copy.exchanges.by_name.get(exchange.name)
    if made is None:
        made = make_exchange(
            exchange.name,
            exchange.kind,
            exchange.durable,
            exchange.auto_delete,
            exchange.internal,
            exchange.arguments,
        )
        copy.exchanges.add(made)
    if made.bindings:
        return
    for binding in exchange.bindings.values():
        # Its destination stays the broker's own: nothing is published on a stage.
        image = Binding(
            made, binding.queue, binding.exchange, binding.binding_key, binding.arguments
        )
        made.add(image)
        made.bindings[image.identity] = image


# -- one pass --------------------------------------------------------------------------------------


@final
class _Import:
    """One pass over the entries."""

    def __init__(self, broker: Broker, salt: bytes) -> None:
        self._broker: Final = broker
        self._salt: Final = salt
        self._report: Final = ImportReport()

    def run(self, found: list[Entry]) -> ImportReport:
        """Apply all entries.  Raises: PreconditionFailed (406), with the place of the bad one."""
        for entry in found:
            try:
                changed = self._apply(entry)
            except AmqpError as error:
                place = entry.place
                text = error.text if error.text.startswith(place) else f"{place}: {error.text}"
                raise PreconditionFailed(text) from None
            if changed:
                counts = self._report.changed
                counts[entry.section] = counts.get(entry.section, 0) + 1
        return self._report

    def _apply(self, entry: Entry) -> bool:
        """Apply one entry; tell whether it changed something."""
        section = entry.section
        if section == "bindings":
            return self._bind(entry)
        if section == "queues":
            return self._queue(entry)
        if section == "exchanges":
            return self._exchange(entry)
        if section == "policies":
            return self._policy(entry)
        if section == "parameters":
            return self._parameter(entry)
        if section == "permissions":
            return self._permission(entry)
        if section == "topic_permissions":
            return self._topic_permission(entry)
        if section == "users":
            return self._user(entry)
        return self._vhost(entry) if section == "vhosts" else self._global_parameter(entry)

    def _vhost_of(self, entry: Entry) -> Vhost:
        name = entry.vhost()
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise entry.bad(f"vhost '{name}' does not exist")
        return vhost

    def _note(self, entry: Entry, text: str) -> bool:
        self._report.notes.append(f"{entry.place}: {text}")
        return False

    def _kept(self, entry: Entry, why: str) -> None:
        self._report.kept.append(f"{entry.place}: {why}")

    def _keep_keys(self, entry: Entry, policy: Policy) -> None:
        """Note the keys of a policy that are kept and have no effect."""
        keys = policy.without_effect()
        if keys:
            self._kept(entry, f"no effect here: {', '.join(keys)}")

    # -- the broker's own -------------------------------------------------------------------------

    def _vhost(self, entry: Entry) -> bool:
        name = entry.name("name")
        limits = entry.table("limits")
        check_limits(limits)
        before = (
            self._broker.vhosts[name].metadata.record() if name in self._broker.vhosts else None
        )
        metadata = entry.table("metadata")
        for field in ("description", "tags", "default_queue_type"):
            if field in entry.fields:
                metadata[field] = entry.fields[field]
        return self._broker.put_vhost(name, metadata, limits).metadata.record() != before

    def _user(self, entry: Entry) -> bool:
        name = entry.name("name")
        users = self._broker.users
        known = users.by_name.get(name)
        password_hash, algorithm = self._password(entry, known)
        user = User(name, password_hash, entry.tags("tags"), algorithm)
        if known is not None:
            user.number = known.number
        changed = known is None or known.definition() != user.definition()
        if changed:
            users.put(user)
        if "limits" in entry.fields:
            limits = entry.numbers("limits")
            if limits != users.limits.get(name, {}):
                users.replace_limits(name, limits)
                changed = True
        return changed

    def _password(self, entry: Entry, known: User | None) -> tuple[bytes, str]:
        """Return the hash of an entry's password, and how it was made."""
        if entry.fields.get("password_hash") is not None:
            try:
                found = base64.b64decode(entry.text("password_hash"), validate=True)
            except (binascii.Error, ValueError):
                raise entry.bad("password_hash is not base 64") from None
            return found, entry.optional_text("hashing_algorithm") or SHA256
        if entry.fields.get("password") is None:
            if known is None:
                raise entry.bad("there is neither a password_hash nor a password")
            return known.password_hash, known.algorithm
        password = entry.text("password").encode()
        if known is not None and known.verify_fast(password):
            return known.password_hash, known.algorithm
        salt = hashlib.sha256(self._salt + entry.text("name").encode()).digest()[:SALT_BYTES]
        return hash_password(salt, password), SHA256

    def _permission(self, entry: Entry) -> bool:
        users = self._broker.users
        key = (entry.text("user"), self._vhost_of(entry).name)
        patterns = [entry.text(field) for field in ("configure", "write", "read")]
        known = users.permissions.get(key)
        if known is not None and [known.configure, known.write, known.read] == patterns:
            return False
        users.set_permission(key[0], key[1], patterns[0], patterns[1], patterns[2])
        return True

    def _topic_permission(self, entry: Entry) -> bool:
        users = self._broker.users
        key = (entry.text("user"), self._vhost_of(entry).name)
        exchange = cleaned(entry.text("exchange"))
        patterns = [entry.text(field) for field in ("write", "read")]
        known = users.topic_permissions.get(key, {}).get(exchange)
        if known is not None and [known.write, known.read] == patterns:
            return False
        users.set_topic_permission(key[0], key[1], exchange, patterns[0], patterns[1])
        return True

    def _global_parameter(self, entry: Entry) -> bool:
        parameters = self._broker.parameters
        name = entry.name("name")
        value = entry.fields.get("value")
        if name in parameters.global_values and is_same(parameters.global_values[name], value):
            return False
        parameters.set_global(name, value)
        return True

    # -- a vhost's --------------------------------------------------------------------------------

    def _parameter(self, entry: Entry) -> bool:
        parameters = self._broker.parameters
        vhost = self._vhost_of(entry)
        component = entry.name("component")
        name = entry.name("name")
        before = parameters.find(vhost.name, component, name)
        parameters.check(vhost.name, component, name, entry.fields.get("value"), True)
        value = parameters.normal(component, name, entry.fields.get("value"))
        if not parameters.runs(component):
            self._kept(entry, f"there is no component '{component}' here")
        changed = value is None or not is_same(before, value)
        if changed:
            parameters.set(vhost.name, component, name, value, True)
        if component == OPERATOR_POLICY:
            self._keep_keys(entry, vhost.policies.operator_by_name[name])
        return changed

    def _policy(self, entry: Entry) -> bool:
        vhost = self._vhost_of(entry)
        policy = policy_of(entry.name("name"), entry.fields, "all", False, True)
        self._keep_keys(entry, policy)
        known = vhost.policies.by_name.get(policy.name)
        if known is not None and is_same(known.record(""), policy.record("")):
            return False
        vhost.policies.set(policy)
        return True

    def _queue(self, entry: Entry) -> bool:
        vhost = self._vhost_of(entry)
        name = entry.name("name")
        durable = entry.switch("durable", True)
        auto_delete = entry.switch("auto_delete", False)
        arguments = self._arguments(entry)
        kind = entry.optional_text("type")
        if kind and kind != "classic" and "x-queue-type" not in arguments:
            arguments["x-queue-type"] = kind
        known = vhost.queues.by_name.get(name)
        if known is None:
            vhost.queues.create(Name(name), durable, auto_delete, arguments)
            return True
        if not _is_like(known, durable, auto_delete, arguments):
            self._note(entry, f"{vhost.queue_label(name)} is there and differs; it stays as it is")
        return False

    def _exchange(self, entry: Entry) -> bool:
        vhost = self._vhost_of(entry)
        name = entry.text("name")
        kind = entry.text("type")
        durable = entry.switch("durable", True)
        auto_delete = entry.switch("auto_delete", False)
        internal = entry.switch("internal", False)
        arguments = self._arguments(entry)
        known = vhost.exchanges.by_name.get(name)
        if known is None:
            if entry.name("name").startswith("amq."):
                return self._note(entry, "the name is the broker's own")
            vhost.exchanges.create(Name(name), kind, durable, auto_delete, internal, arguments)
            return True
        flags = (known.kind, known.durable, known.auto_delete, known.internal)
        if flags != (kind, durable, auto_delete, internal) or known.arguments != arguments:
            label = vhost.exchange_label(name)
            self._note(entry, f"{label} is there and differs; it stays as it is")
        return False

    def _bind(self, entry: Entry) -> bool:
        vhost = self._vhost_of(entry)
        source = vhost.exchanges.by_name.get(entry.text("source"))
        destination = entry.text("destination")
        kind = entry.text("destination_type")
        if kind not in ("queue", "exchange"):
            raise entry.bad("destination_type should be queue or exchange")
        key = entry.optional_text("routing_key")
        arguments = self._arguments(entry)
        if source is None:
            return self._note(entry, f"no {vhost.exchange_label(entry.text('source'))}")
        to_queue = kind == "queue"
        missing = _missing(vhost, source, destination, to_queue)
        if missing is not None:
            return self._note(entry, missing) if missing else False
        if binding_identity(to_queue, destination, key, arguments) in source.bindings:
            return False
        vhost.exchanges.bind(source.name, Name(destination), to_queue, key, arguments, None)
        return True

    def _arguments(self, entry: Entry) -> Arguments:
        arguments = entry.table("arguments")
        if typed := entry.optional_text(TYPED):
            arguments.update(read_typed_arguments(typed))
        if entry.section == "queues":
            clean_argument(arguments, "x-dead-letter-exchange")
        elif entry.section == "exchanges":
            clean_argument(arguments, "alternate-exchange")
        Definition("arguments", {"arguments": arguments})
        return arguments


def _missing(vhost: Vhost, source: Exchange, destination: str, to_queue: bool) -> str | None:
    """Return why a binding cannot be made, "" where it always is there, None where it can."""
    if not source.name:
        return ""
    if not to_queue:
        if not destination:
            return "nothing can be bound to the default exchange"
        known = destination in vhost.exchanges.by_name
        return None if known else f"no {vhost.exchange_label(destination)}"
    queue = vhost.queues.by_name.get(destination)
    if queue is None:
        return f"no {vhost.queue_label(destination)}"
    return f"{vhost.queue_label(destination)} is exclusive" if queue.exclusive else None


def _is_like(queue: Queue, durable: bool, auto_delete: bool, arguments: Arguments) -> bool:
    """Tell whether a queue is as a declare would want it."""
    if queue.exclusive or (queue.durable, queue.auto_delete) != (durable, auto_delete):
        return False
    try:
        check_equivalent(queue.arguments, arguments, "")
    except PreconditionFailed:
        return False
    return True
