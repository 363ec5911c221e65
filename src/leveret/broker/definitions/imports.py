"""Import of definitions into a broker: first into a private copy, then into the broker itself.

The copy (the stage) is a separate broker with copies of the objects that the definitions affect.
Errors occur there, with the position of the entry, so that definitions are applied as a whole or
not at all.  Both passes run the same code.

Definitions are added to the existing configuration.  Users, permissions, parameters and policies
replace those of the same name.  An existing queue or exchange is not changed, and a note reports
differences.  Entries that no broker can apply are skipped with a note, because RabbitMQ's files
contain bindings of queues that were deleted with their connection.  Parameters of unknown
components and unknown keys of policies are stored with a note.  They have no effect and are
exported again.

Invariants: importing the same definitions again changes nothing and journals nothing; nothing is
deleted.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import Arguments, check_equivalent
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.broker import Broker
from leveret.broker.definitions.entry import DefinitionsEntry, entries
from leveret.broker.definitions.typed_arguments import TYPED, is_same, read_typed_arguments
from leveret.broker.exchanges.binding import Binding, binding_identity
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.exchanges.types import make_exchange
from leveret.broker.parameters import (
    OPERATOR_POLICY,
    policy_of,
)
from leveret.broker.patterns.patterns import compile_cost
from leveret.broker.policies.policy import Policy
from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.costs import DEFINING_METHOD, IMPORT_RECORD, IMPORTED_ENTRY
from leveret.broker.users.users import (
    SALT_BYTES,
    SHA256,
    User,
    can_verify,
    default_algorithm,
    hash_password,
)
from leveret.broker.vhost.limits import checked_limits
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AmqpError, NotFound, PreconditionFailed
from leveret.names import Name, clean_argument, cleaned
from leveret.store.journal.journal import Journal
from leveret.store.records.definition import Definition

#: The sections of the whole broker and of one vhost, in the order in which they are applied.
_OF_BROKER: Final = ("vhosts", "users", "permissions", "topic_permissions", "global_parameters")
_OF_VHOST: Final = ("parameters", "policies", "queues", "exchanges", "bindings")


@final
class ImportReport:
    """The result of an import: the numbers of changes, and the entries without effect."""

    def __init__(self) -> None:
        self.changed: dict[str, int] = {}
        #: The skipped entries, each with its position.
        self.notes: list[str] = []
        #: The entries that were stored without effect, each with its position.
        self.kept: list[str] = []


def import_definitions(
    broker: Broker, definitions: Mapping[str, object], salt: bytes, vhost: str | None = None
) -> ImportReport:
    """Add definitions to a broker in one call and one record (see `add_definitions`).

    Raises: NotFound (404) if the vhost does not exist; PreconditionFailed (406), with the position,
    for an entry that cannot be applied.  In both cases nothing is changed.
    """
    operation = add_definitions(broker, definitions, salt, vhost, one_record=True)
    while True:
        try:
            cost = next(operation)
            broker.core.scheduler.spent += cost
        except StopIteration as end:
            report = end.value
            assert isinstance(report, ImportReport)
            return report


def add_definitions(
    broker: Broker,
    definitions: Mapping[str, object],
    salt: bytes,
    vhost: str | None = None,
    *,
    one_record: bool = False,
) -> Generator[int, None, ImportReport]:
    """Add definitions to a broker, or to the vhost `vhost` regardless of the vhost in them.

    All entries are tried on the stage before the first is applied, so that a refusal changes
    nothing.  If another change then prevents an entry from being applied, the entry is skipped with
    a note.

    Entries are applied in groups, each with one journal record.  A crash may lose the last groups,
    which importing the same file again adds.  With `one_record` all entries are in one group.
    `salt` is random bytes, for passwords in clear text.

    Raises: NotFound (404) if the vhost does not exist; PreconditionFailed (406), with the position,
    for an entry that cannot be applied.
    """
    found: list[DefinitionsEntry] = []
    yield from _read(broker, definitions, vhost, found)
    stage = Broker(Journal(), broker.memory_bytes_max)
    records: list[list[DefinitionsEntry]] = []
    refusal: list[AmqpError] = []
    try:
        yield from _try(broker, stage, salt, found, records)
    except AmqpError as error:
        refusal.append(error.with_traceback(None))
    yield from _take_down(stage)
    if refusal:
        # Raising it from the list avoids a reference cycle that would keep all entries in memory.
        raise refusal.pop()
    real = _Import(broker, salt)
    yield from _apply(broker, real, [found] if one_record else records, one_record)
    for section, rows in definitions.items():
        if isinstance(rows, list) and rows and section not in _OF_BROKER + _OF_VHOST:
            real.report.notes.append(f"{section}: unknown section")
    return real.report


def _read(
    broker: Broker,
    definitions: Mapping[str, object],
    vhost: str | None,
    found: list[DefinitionsEntry],
) -> Iterator[int]:
    """Find the entries, and check the limits of queues and exchanges."""
    if vhost is not None and vhost not in broker.vhosts:
        raise NotFound(f"no vhost '{vhost}'")
    room = _Room(broker)
    for section in _OF_VHOST if vhost is not None else _OF_BROKER + _OF_VHOST:
        for entry in entries(definitions, section, vhost):
            found.append(entry)
            room.check(entry)
            yield IMPORTED_ENTRY


def _try(
    broker: Broker,
    stage: Broker,
    salt: bytes,
    found: list[DefinitionsEntry],
    records: list[list[DefinitionsEntry]],
) -> Iterator[int]:
    """Apply all entries to a stage; fill `records` with groups of entries to apply at once."""
    yield from _stage(broker, stage, found)
    trial = _Import(stage, salt)
    size: i64 = IMPORT_RECORD
    for entry in found:
        if size >= IMPORT_RECORD:
            size = 0
            records.append([])
        before: i64 = stage.core.scheduler.spent
        trial.take(entry)
        cost = DEFINING_METHOD + stage.core.scheduler.spent - before
        records[-1].append(entry)
        size += cost
        yield cost


def _apply(
    broker: Broker, real: _Import, records: list[list[DefinitionsEntry]], must_apply: bool
) -> Iterator[int]:
    """Apply all entries; skip those that fail now, unless `must_apply` is set."""
    journal = broker.core.journal
    for entries_at_once in records:
        journal.begin_tx()
        try:
            for entry in entries_at_once:
                try:
                    real.take(entry)
                except PreconditionFailed as error:
                    if must_apply:
                        raise
                    real.report.notes.append(error.text)
        finally:
            journal.end_tx()
        yield DEFINING_METHOD * len(entries_at_once)
    for exchange in real.bound:
        # Complete the index of its bindings before the import ends.
        yield from exchange.index_on()


# -- the stage -------------------------------------------------------------------------------------


def _stage(broker: Broker, stage: Broker, found: list[DefinitionsEntry]) -> Iterator[int]:
    """Copy all existing objects that the entries affect to a stage."""
    for name, vhost in list(broker.vhosts.items()):
        yield DEFINING_METHOD
        copy = stage.restore_vhost(name)
        copy.metadata.restore(vhost.metadata.record())
        copy.policies.by_name.update(vhost.policies.by_name)
        copy.policies.operator_by_name.update(vhost.policies.operator_by_name)
        copy.exchanges.bindings_max = vhost.exchanges.bindings_max
        copy.policies.count_max = vhost.policies.count_max
    # Names of vhosts being deleted are still in use.
    stage.dissolving.update(broker.dissolving)
    users = broker.users
    stage.users.by_name.update(users.by_name)
    stage.users.permissions.update(users.permissions)
    for key, of_user in list(users.topic_permissions.items()):
        stage.users.topic_permissions[key] = dict(of_user)
        yield 1
    for name, limits in list(users.limits.items()):
        stage.users.limits[name] = dict(limits)
        yield 1
    stage.parameters.values.update(broker.parameters.values)
    stage.parameters.global_values.update(broker.parameters.global_values)
    for entry in found:
        before: i64 = stage.core.scheduler.spent
        yield from _bring(broker, stage, entry)
        # The cost includes applying policies to copied queues.
        yield IMPORTED_ENTRY + stage.core.scheduler.spent - before
    # Existing definitions count as they do in the broker.
    theirs, ours = broker.core.accounts, stage.core.accounts
    ours.definition_bytes = theirs.definition_bytes
    ours.definition_bytes_max = theirs.definition_bytes_max


def _take_down(stage: Broker) -> Iterator[int]:
    """Free the objects on the stage one by one, as deletions do, before the import needs memory.

    Otherwise they would stay in memory, because they are in reference cycles, and the garbage
    collector hardly ever examines old objects.
    """
    core = stage.core
    for vhost in stage.vhosts.values():
        vhost.end()
        before: i64 = core.scheduler.spent
        for cost in vhost.dissolve():
            yield cost + core.scheduler.spent - before
            before = core.scheduler.spent
    # Free the records that the stage journaled.
    core.journal.seal()


@final
class _Room:
    """Checks limits for new and existing objects together; many of these are not on the stage."""

    def __init__(self, broker: Broker) -> None:
        self._broker: Final = broker
        self._new: dict[tuple[str, str], set[str]] = {}

    def check(self, entry: DefinitionsEntry) -> None:
        """Count a new queue or exchange.  Raises: PreconditionFailed (406) for too many."""
        if entry.section not in ("queues", "exchanges"):
            return
        of_queues = entry.section == "queues"
        vhost = self._broker.vhosts.get(entry.vhost())
        name = entry.fields.get("name")
        if vhost is None or not isinstance(name, str):
            return
        if name in (vhost.queues.by_name if of_queues else vhost.exchanges.by_name):
            return
        names = self._new.setdefault((entry.section, vhost.name), set())
        names.add(name)
        there = len(vhost.queues.by_name) if of_queues else len(vhost.exchanges.by_name)
        most = vhost.queues.count_max if of_queues else vhost.exchanges.count_max
        if there + len(names) > most:
            raise entry.bad(f"a vhost has at most {most} {entry.section}")


def _bring(broker: Broker, stage: Broker, entry: DefinitionsEntry) -> Iterator[int]:
    """Copy the existing queues and exchanges that an entry names."""
    if entry.section not in ("queues", "exchanges", "bindings"):
        return
    name = entry.vhost()
    vhost = broker.vhosts.get(name)
    copy = stage.vhosts.get(name)
    if vhost is None or copy is None:
        return
    fields = entry.fields
    if entry.section == "queues":
        _bring_queue(vhost, copy, fields.get("name"))
    elif entry.section == "exchanges":
        yield from _bring_exchange(vhost, copy, fields.get("name"))
    else:
        yield from _bring_exchange(vhost, copy, fields.get("source"))
        if fields.get("destination_type") == "exchange":
            yield from _bring_exchange(vhost, copy, fields.get("destination"))
        else:
            _bring_queue(vhost, copy, fields.get("destination"))


def _bring_queue(vhost: Vhost, copy: Vhost, name: object) -> None:
    queue = vhost.queues.by_name.get(name) if isinstance(name, str) else None
    if queue is None or queue.name in copy.queues.by_name:
        return
    made = copy.queues.make(
        copy.ids.next_queue_id(),
        queue.name,
        QueueAttributes(queue.durable, queue.exclusive, queue.auto_delete, queue.arguments),
    )
    made.owner = queue.owner


def _bring_exchange(vhost: Vhost, copy: Vhost, name: object) -> Iterator[int]:
    """Copy an exchange with its bindings, because new bindings are checked together with them."""
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
    for binding in list(exchange.bindings.values()):
        yield IMPORTED_ENTRY
        if binding.has_ended():
            continue
        # The copy has the broker's destination, because nothing is published on a stage.
        image = Binding(
            made, binding.queue, binding.exchange, binding.binding_key, binding.arguments
        )
        # Do not create the points of a hash ring, because nothing is looked up on a stage.
        made.add(image)
        made.bindings[image.identity] = image


# -- one pass --------------------------------------------------------------------------------------


@final
class _Import:
    """One pass over the entries."""

    def __init__(self, broker: Broker, salt: bytes) -> None:
        self._broker: Final = broker
        self._salt: Final = salt
        self.report: Final = ImportReport()
        #: Exchanges with new bindings that are not indexed yet.
        self.bound: Final[dict[Exchange, None]] = {}

    def take(self, entry: DefinitionsEntry) -> None:
        """Apply an entry.  Raises: PreconditionFailed (406), with its position."""
        try:
            changed = self._apply(entry)
        except AmqpError as error:
            place = entry.place
            text = error.text if error.text.startswith(place) else f"{place}: {error.text}"
            raise PreconditionFailed(text) from None
        if changed:
            counts = self.report.changed
            counts[entry.section] = counts.get(entry.section, 0) + 1

    def _apply(self, entry: DefinitionsEntry) -> bool:
        """Apply one entry; return whether it changed something."""
        apply: dict[str, Callable[[DefinitionsEntry], bool]] = {
            "vhosts": self._vhost,
            "users": self._user,
            "permissions": self._permission,
            "topic_permissions": self._topic_permission,
            "global_parameters": self._global_parameter,
            "parameters": self._parameter,
            "policies": self._policy,
            "queues": self._queue,
            "exchanges": self._exchange,
            "bindings": self._bind,
        }
        return apply[entry.section](entry)

    def _vhost_of(self, entry: DefinitionsEntry) -> Vhost:
        name = entry.vhost()
        vhost = self._broker.vhosts.get(name)
        if vhost is None:
            raise entry.bad(f"vhost '{name}' does not exist")
        return vhost

    def _note(self, entry: DefinitionsEntry, text: str) -> bool:
        self.report.notes.append(f"{entry.place}: {text}")
        return False

    def _kept(self, entry: DefinitionsEntry, why: str) -> None:
        self.report.kept.append(f"{entry.place}: {why}")

    def _keep_keys(self, entry: DefinitionsEntry, policy: Policy) -> None:
        """Note the keys of a policy that are stored without effect."""
        keys = policy.without_effect()
        if keys:
            self._kept(entry, f"no effect here: {', '.join(keys)}")

    # -- entries of the broker ---------------------------------------------------------------------

    def _vhost(self, entry: DefinitionsEntry) -> bool:
        name = entry.name("name")
        limits = entry.table("limits")
        checked_limits(limits)
        before = (
            self._broker.vhosts[name].metadata.record() if name in self._broker.vhosts else None
        )
        metadata = entry.table("metadata")
        for field in ("description", "tags", "default_queue_type"):
            if field in entry.fields:
                metadata[field] = entry.fields[field]
        return self._broker.put_vhost(name, metadata, limits).metadata.record() != before

    def _user(self, entry: DefinitionsEntry) -> bool:
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

    def _password(self, entry: DefinitionsEntry, known: User | None) -> tuple[bytes, str]:
        """Return the hash of an entry's password, and its algorithm."""
        if entry.fields.get("password_hash") is not None:
            try:
                found = base64.b64decode(entry.text("password_hash"), validate=True)
            except (binascii.Error, ValueError):
                raise entry.bad("password_hash is not base 64") from None
            algorithm = entry.optional_text("hashing_algorithm") or default_algorithm(found)
            if can_verify(algorithm):
                return found, algorithm
            kept = "no password" if known is None else "the password is unchanged"
            self._kept(entry, f"{kept}: the algorithm '{algorithm[:64]}' is not supported")
            return (b"", SHA256) if known is None else (known.password_hash, known.algorithm)
        if entry.fields.get("password") is None:
            if known is None:
                raise entry.bad("password_hash or password is missing")
            return known.password_hash, known.algorithm
        password = entry.text("password").encode()
        if known is not None and known.verify_fast(password):
            return known.password_hash, known.algorithm
        salt = hashlib.sha256(self._salt + entry.text("name").encode()).digest()[:SALT_BYTES]
        return hash_password(salt, password), SHA256

    def _permission(self, entry: DefinitionsEntry) -> bool:
        users = self._broker.users
        key = (entry.text("user"), self._vhost_of(entry).name)
        patterns = [entry.text(field) for field in ("configure", "write", "read")]
        known = users.permissions.get(key)
        if known is not None and [known.configure, known.write, known.read] == patterns:
            return False
        users.set_permission(key[0], key[1], patterns[0], patterns[1], patterns[2])
        return True

    def _topic_permission(self, entry: DefinitionsEntry) -> bool:
        users = self._broker.users
        key = (entry.text("user"), self._vhost_of(entry).name)
        exchange = cleaned(entry.text("exchange"))
        patterns = [entry.text(field) for field in ("write", "read")]
        known = users.topic_permissions.get(key, {}).get(exchange)
        if known is not None and [known.write, known.read] == patterns:
            return False
        users.set_topic_permission(key[0], key[1], exchange, patterns[0], patterns[1])
        return True

    def _global_parameter(self, entry: DefinitionsEntry) -> bool:
        parameters = self._broker.parameters
        name = entry.name("name")
        value = entry.fields.get("value")
        if name in parameters.global_values and is_same(parameters.global_values[name], value):
            return False
        parameters.set_global(name, value)
        return True

    # -- entries of a vhost ------------------------------------------------------------------------

    def _parameter(self, entry: DefinitionsEntry) -> bool:
        parameters = self._broker.parameters
        vhost = self._vhost_of(entry)
        component = entry.name("component")
        name = entry.name("name")
        before = parameters.find(vhost.name, component, name)
        if component == OPERATOR_POLICY:
            self._count_pattern(entry.fields.get("value"))
        value = parameters.check(component, name, entry.fields.get("value"), True)
        if not parameters.runs(component):
            self._kept(entry, f"unknown component '{component}'")
        changed = value is None or not is_same(before, value)
        if changed:
            parameters.set(vhost.name, component, name, value, True)
        if component == OPERATOR_POLICY:
            self._keep_keys(entry, vhost.policies.operator_by_name[name])
        return changed

    def _count_pattern(self, policy: object) -> None:
        """Count the cost of compiling the pattern of a policy."""
        pattern = policy.get("pattern") if isinstance(policy, dict) else None
        if isinstance(pattern, str):
            self._broker.core.scheduler.spent += compile_cost(pattern)

    def _policy(self, entry: DefinitionsEntry) -> bool:
        vhost = self._vhost_of(entry)
        self._count_pattern(entry.fields)
        policy = policy_of(entry.name("name"), entry.fields, "all", False, True)
        self._keep_keys(entry, policy)
        known = vhost.policies.by_name.get(policy.name)
        if known is not None and is_same(known.record(""), policy.record("")):
            return False
        vhost.policies.set(policy)
        return True

    def _queue(self, entry: DefinitionsEntry) -> bool:
        vhost = self._vhost_of(entry)
        name = entry.name("name")
        durable = entry.switch("durable", True)
        auto_delete = entry.switch("auto_delete", False)
        arguments = self._arguments(entry)
        kind = entry.optional_text("type")
        if kind and kind != "classic" and not arguments.get("x-queue-type"):
            arguments["x-queue-type"] = kind
        attributes = QueueAttributes(durable, False, auto_delete, arguments)
        known = vhost.queues.by_name.get(name)
        if known is None:
            vhost.queues.create(Name(name), attributes)
            return True
        if not _is_like(known, attributes):
            self._note(
                entry, f"{vhost.queue_label(name)} already exists and differs; it is not changed"
            )
        return False

    def _exchange(self, entry: DefinitionsEntry) -> bool:
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
                return self._note(entry, "names that begin with 'amq.' are reserved")
            vhost.exchanges.create(Name(name), kind, durable, auto_delete, internal, arguments)
            return True
        flags = (known.kind, known.durable, known.auto_delete, known.internal)
        if flags != (kind, durable, auto_delete, internal) or known.arguments != arguments:
            label = vhost.exchange_label(name)
            self._note(entry, f"{label} already exists and differs; it is not changed")
        return False

    def _bind(self, entry: DefinitionsEntry) -> bool:
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
        known = source.bindings.get(binding_identity(to_queue, destination, key, arguments))
        if known is not None and not known.has_ended():
            return False
        vhost.exchanges.bind(source.name, Name(destination), to_queue, key, arguments, None)
        if source.owes():
            self.bound[source] = None
        return True

    def _arguments(self, entry: DefinitionsEntry) -> Arguments:
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
    """Return the reason why a binding cannot be created, "" if it always exists, or None."""
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


def _is_like(queue: Queue, attributes: QueueAttributes) -> bool:
    """Return whether a queue has the attributes of a declare."""
    same_flags = queue.durable == attributes.durable and queue.auto_delete == attributes.auto_delete
    if queue.exclusive or not same_flags:
        return False
    try:
        check_equivalent(queue.arguments, attributes.arguments, "")
    except PreconditionFailed:
        return False
    return True
