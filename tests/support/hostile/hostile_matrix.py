"""The permission matrix: each method and each route, tried on a broker with different users.

The required permissions are declared by hand in `hostile/matrix.toml`.  The methods and routes come
from the broker's own tables, so that `undeclared` reports one without a row.  For each row there is
a user with exactly the required permissions, users who lack one of them, users with one permission
for every name, users with a tag and no permission, and users with all permissions in another vhost.

Three things are checked for a refusal.  The answer is the declared one.  The broker is unchanged
(definitions, queues, messages, consumers).  And the answer is byte for byte that of a broker
without the requested objects, so that it does not reveal whether they exist.

The AMQP rows are sent as bytes to sessions of a broker in memory, those of HTTP to its TCP
listener.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.ownership import key_of
from leveret.broker.policies.policy import make_policy
from leveret.broker.sinks.area import area_of
from leveret.broker.sinks.giving import give_sinks
from leveret.broker.sinks.staging import StagingQueue
from leveret.broker.stream.stream import Stream
from leveret.broker.users.users import User, hash_password
from leveret.broker.vhost.vhost import Vhost
from leveret.management.api import routes as all_routes
from leveret.management.api import users_routes
from leveret.names import Name
from leveret.wire.spec import METHODS
from support.hostile.hostile_methods import COMMIT_KEY
from support.hostile.hostile_node import HostileNode, Tally, others
from support.node.core import Node, Peer, declare_super_stream
from support.node.exporting import export_definitions
from support.node.staged import claimed
from support.wire.raw_codec import method, publish

DECLARED: Final = Path(__file__).parents[2] / "hostile" / "matrix.toml"

VHOST: Final = "canary-vhost"
ELSEWHERE: Final = "elsewhere"

TAGS: Final = ("policymaker", "monitoring", "management", "administrator", "impersonator")
RIGHTS: Final = ("configure", "write", "read")

#: The default refusal of a row.
_REFUSED: Final = "channel.close 403"

#: Names that differ only in the broker's random tokens.
_TOKENS: Final = re.compile(rb"amq\.(gen|ctag)-[0-9A-Za-z_.-]+")

_CANARY: Final = re.compile(rb"canary-[a-z0-9-]+")


#: The parts of a broker's state, each with its vhost or None, its kind, and its value.
State = list[tuple[Any, ...]]


# -- declarations ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One row of the file."""

    name: str
    case: str
    declared: dict[str, Any]

    @property
    def needs(self) -> list[str]:
        return list(self.declared.get("needs", []))

    @property
    def changes(self) -> bool:
        return bool(self.declared.get("changes", False))

    def tells(self, actor: Actor) -> bool:
        """Return whether a user who lacks a permission may still learn that the object exists."""
        return "told" in self.declared and actor.has(self.declared["told"])

    def refusal(self, need: str, default: str) -> str:
        """The refusal for a user who lacks a permission."""
        return str(self.declared.get("without", {}).get(need, default))

    def __str__(self) -> str:
        return f"{self.name} ({self.case})" if self.case else self.name


@dataclass(frozen=True)
class Matrix:
    """All declared rows."""

    methods: list[Row]
    #: Methods that no client sends on an open connection.
    never: list[Row]
    routes: list[Row]
    #: The tags of which each HTTP permission needs one, and the tags of users who see every vhost.
    rights: dict[str, dict[str, list[str]]]
    operator_routes: list[str]
    operator_status: int


def read_matrix() -> Matrix:
    """Read the file."""
    found = tomllib.loads(DECLARED.read_text())
    amqp, http = found["amqp"], found["http"]
    return Matrix(
        [Row(row["method"], row.get("case", ""), row) for row in amqp["row"]],
        [Row(name, "", group) for group in amqp["never"] for name in group["methods"]],
        [Row(row["route"], row.get("case", ""), row) for row in http["row"]],
        http["rights"],
        http["operator"]["routes"],
        http["operator"]["status"],
    )


def undeclared(matrix: Matrix) -> list[str]:
    """The methods and routes without a row, and the rows without a method or route."""
    methods = {row.name for row in [*matrix.methods, *matrix.never]}
    missing = [f"no row for the method {name}" for name in METHODS if name not in methods]
    missing += [f"there is no method {name}" for name in methods if name not in METHODS]
    every = {f"{route.method} {route.path}" for route in all_routes()}
    users = {f"{route.method} {route.path}" for route in users_routes()}
    rows, operator = {row.name for row in matrix.routes}, set(matrix.operator_routes)
    missing += [f"no row for the route {name}" for name in sorted(users - rows)]
    missing += [
        f"no row for the operator's route {name}" for name in sorted(every - users - operator)
    ]
    missing += [f"there is no route {name} for users" for name in sorted(rows - users)]
    missing += [f"{name} is no route of the operator" for name in sorted(operator - every)]
    missing += [f"users may ask for {name} too" for name in sorted(operator & users)]
    return missing


# -- users -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Actor:
    """A user, called `u`: the names of each permission (`*` for all), the tags, and the vhost."""

    name: str
    rights: dict[str, frozenset[str]]
    tags: tuple[str, ...] = ()
    vhost: str = VHOST
    enters: bool = True
    #: Whether the user owns all objects that have an owner.
    owns: bool = False

    def has(self, need: str) -> bool:
        """Return whether the user has a permission required by a row."""
        return any(self._has(one) for one in need.split(" or "))

    def _has(self, need: str) -> bool:
        right, _, what = need.partition(" ")
        if right == "enter":
            return self.enters and self.vhost == VHOST
        if right == "own":
            return self.owns
        if right == "tag":
            return what in self.tags
        name = what.partition(" ")[2]
        asked = RIGHTS if right == "any" else (right,)
        return any({"*", name} & self.rights.get(one, frozenset()) for one in asked)

    def pattern(self, right: str) -> str:
        """The regex of a permission."""
        names = self.rights.get(right, frozenset())
        if "*" in names:
            return ".*"
        parts = [name.replace(".", "\\.") for name in sorted(names)]
        ends = [part[:-1] if part.endswith("*") else part + "$" for part in parts]
        return "^(" + "|".join(ends) + ")" if ends else ""


def _exact(name: str, needs: Iterable[str], one_of_any: str, which: int = 0) -> Actor:
    """A user with exactly these permissions; if any permission will do, with `one_of_any`.

    Of alternatives, the user has the one at index `which`, or the last.
    """
    rights: dict[str, frozenset[str]] = {}
    tags: list[str] = []
    owns = False
    for need in needs:
        either = need.split(" or ")
        right, _, what = either[min(which, len(either) - 1)].partition(" ")
        if right == "tag":
            tags.append(what)
        elif right == "own":
            owns = True
        elif right != "enter":
            chosen = one_of_any if right == "any" else right
            rights[chosen] = rights.get(chosen, frozenset()) | {what.partition(" ")[2]}
    return Actor(name, rights, tuple(tags), owns=owns)


def tagged(row: Row, *, whole: bool) -> Iterator[Actor]:
    """The users to try a row with, if its permissions depend on tags; see `actors`."""
    every = dict.fromkeys(RIGHTS, frozenset({"*"}))
    for tag in ("", *TAGS):
        tags = (tag,) if tag else ()
        yield Actor(f"stranger, tag {tag}", {}, tags, enters=False)
        yield Actor(f"everything, tag {tag}", every, tags)
        if whole or tag in ("management", "administrator"):
            yield Actor(f"nothing, tag {tag}", {}, tags)
            yield Actor(f"elsewhere, tag {tag}", every, tags, ELSEWHERE)
    needs = [need for need in row.needs if not need.startswith("tag ")]
    if not needs:
        return
    for tag in TAGS if whole else ("management",):
        for count in range(len(needs) - 1, len(needs) + 1):
            for some in itertools.combinations(needs, count):
                exact = _exact(f"needs {', '.join(some)}, tag {tag}", some, "read")
                yield Actor(exact.name, exact.rights, (tag,))


def actors(row: Row, *, whole: bool) -> Iterator[Actor]:
    """The users to try a row with; `whole` takes every subset of its needs and of permissions."""
    if "right" in row.declared:
        yield from tagged(row, whole=whole)
        return
    every = frozenset({"*"})
    yield Actor("nothing", {})
    yield Actor("everything", dict.fromkeys(RIGHTS, every))
    yield Actor("stranger", {}, enters=False)
    yield Actor("elsewhere", dict.fromkeys(RIGHTS, every), vhost=ELSEWHERE)
    for right in RIGHTS:
        yield Actor(f"all {right}", {right: every})
        yield Actor(f"other names to {right}", {right: frozenset({"other"})})
    for tag in TAGS:
        yield Actor(f"tag {tag}", {}, (tag,))
    needs = row.needs
    for right in RIGHTS if any(need.startswith("any ") for need in needs) else ("read",):
        yield _exact(f"what it needs ({right})", needs, right)
    for which in range(1, max((len(need.split(" or ")) for need in needs), default=1)):
        yield _exact(f"what it needs (the other, {which})", needs, "read", which)
    if whole or any("own" in need.split(" or ") for need in needs):
        yield Actor("owner", {}, owns=True)
        yield Actor("owner with everything", dict.fromkeys(RIGHTS, every), owns=True)
    counts = range(len(needs)) if whole else range(max(len(needs) - 1, 0), len(needs))
    for count in counts:
        for some in itertools.combinations(needs, count):
            lacked = [need for need in needs if need not in some]
            yield _exact(f"what it needs but {', '.join(lacked)}", some, "read")
    if whole:
        for some in itertools.combinations(RIGHTS, 2):
            yield Actor(f"all {' and '.join(some)}", dict.fromkeys(some, every))
        for tag in TAGS:
            yield Actor(f"elsewhere, tag {tag}", dict.fromkeys(RIGHTS, every), (tag,), ELSEWHERE)
            yield Actor(f"everything, tag {tag}", dict.fromkeys(RIGHTS, every), (tag,))


# -- brokers ---------------------------------------------------------------------------------------


def furnish(node: Node, *, things: bool = True, vhost: bool = True) -> None:
    """Create the vhosts, and in one of them the objects of the rows."""
    broker = node.broker
    broker.add_vhost(ELSEWHERE)
    if vhost:
        broker.add_vhost(VHOST)
        broker.users.set_permission("guest", VHOST, ".*", ".*", ".*")
    if things:
        _furnish(node)
    node.sync()


def _furnish(node: Node) -> None:
    vhost = node.broker.vhosts[VHOST]
    for name, kind, arguments in (
        ("canary-topic", "topic", {}),
        ("canary-fanout", "fanout", {}),
        ("canary-delayed", "x-delayed-message", {"x-delayed-type": "direct"}),
    ):
        vhost.exchanges.declare(Name(name), kind, True, False, False, dict(arguments))
    vhost.exchanges.declare(Name("canary-internal"), "fanout", True, False, True, {})
    staging: dict[str, object] = {"x-staging-sink": "canary-sink", "x-staging-batch": 5}
    stream: dict[str, object] = {"x-queue-type": "stream"}
    vhost.queues.declare(None, Name("canary-queue"), QueueAttributes(True))
    vhost.queues.declare(None, Name("canary-stream"), QueueAttributes(True, arguments=stream))
    declare_super_stream(vhost, Name("canary-super"), {"x-super-stream-partitions": 2})
    _furnish_settings(node)
    owner = node.connect_as("guest", vhost=VHOST)
    owner.declare("canary-staging", arguments=staging)
    owner.declare("canary-locked", exclusive=True)
    owner.declare("canary-watched", exclusive=True)
    owner.call(1, "basic.consume", queue="canary-watched")
    topic = Name("canary-topic")
    for queue in ("canary-queue", "canary-locked"):
        vhost.exchanges.bind(topic, Name(queue), True, "canary-key", {}, owner.connection)
    vhost.exchanges.bind(topic, Name("canary-delayed"), False, "canary-between", {}, None)
    staged = {"x-staged-exchange": "canary-topic", "x-staged-routing-key": "canary-key"}
    committed = {"sink": "canary-sink", "batch": 0, "queues": []}
    numbered = {"x-publisher": "canary-publisher", "x-publishing-id": 1}
    owner.send(
        publish(1, "", "canary-queue", b"canary-body", delivery_mode=2, headers=numbered),
        publish(1, "", "canary-locked", b"canary-body"),
        publish(1, "", "canary-stream", b"canary-body"),
        publish(1, "", "canary-super-0", b"canary-body"),
        publish(1, "", "canary-staging", b"canary-body", delivery_mode=2, headers=staged),
        publish(1, "canary-delayed", "canary-key", b"canary-body", headers={"x-delay": 1_000_000}),
        publish(1, "", COMMIT_KEY, json.dumps(committed).encode()),
    )  # fmt: skip
    node.sync()
    assert not owner.take()
    found = vhost.queues.by_name["canary-stream"]
    assert isinstance(found, Stream)
    found.offsets.set("canary-reader", 0, node.broker.users.owner("guest"))


def _furnish_settings(node: Node) -> None:
    """Create each kind of policies, parameters and limits, and a user with permissions."""
    broker, users = node.broker, node.broker.users
    vhost = broker.vhosts[VHOST]
    vhost.policies.set(make_policy("canary-policy", "^none$", {"max-length": 5}))
    policy = make_policy("canary-policy", "^none$", {"max-length": 5}, operator=True)
    vhost.policies.set(policy)
    vhost.limits.set({"max-queues": 1000})
    broker.parameters.set(VHOST, "canary-component", "canary-parameter", 1, True)
    broker.parameters.set_global("canary-global", 1)
    users.put(User("canary-user", b"", []))
    users.set_limits("canary-user", {"max-channels": 5})
    users.set_permission("canary-user", VHOST, "", "", "")
    users.set_topic_permission("canary-user", VHOST, "canary-topic", "", "")


def state(node: Node) -> State:
    """All state of a broker that a user could change, without the user's own connection."""
    rows = [
        (row.get("vhost"), section, repr(row))
        for section, listed in export_definitions(node.broker).items()
        if isinstance(listed, list)
        for row in listed
    ]
    return [*rows, *(item for vhost in node.broker.vhosts.values() for item in _held(vhost))]


def elsewhere(found: State, vhost: str) -> State:
    """The part of a state that is outside a vhost."""
    return [item for item in found if item[0] != vhost]


def _held(vhost: Vhost) -> State:
    """The content of a vhost in addition to its definitions."""
    alone = SimpleNamespace(broker=SimpleNamespace(vhosts={vhost.name: vhost}))
    found: State = [(vhost.name, "others", others(alone))]  # type: ignore[arg-type]
    for queue in vhost.queues.by_name.values():
        counts = (int(queue.ready_count()), int(queue.unacked_count), len(queue.consumers))
        bound = len(vhost.exchanges.bindings_to(queue))
        found.append((vhost.name, queue.name, (counts, bound)))
    found.append((vhost.name, "exchanges", sorted(vhost.exchanges.by_name)))
    found.append((vhost.name, "owners", _owners(vhost)))
    return found


def _owners(vhost: Vhost) -> list[tuple[str, str, str]]:
    """The owner of each object of a vhost that has one."""
    found: list[tuple[str, str, str]] = [
        (queue.name, str(name), key_of(one.owner))
        for queue in vhost.queues.by_name.values()
        if queue.target.publishers is not None
        for name, one in queue.target.publishers.by_name.items()
    ]
    found += [
        ("sink", str(place), key_of(one.owner))
        for place, one in area_of(vhost).sinks.by_place.items()
    ]
    for queue in vhost.queues.by_name.values():
        if isinstance(queue, Stream):
            found += [(queue.name, name, key_of(one)) for name, one in queue.offsets.owners.items()]
        if isinstance(queue, StagingQueue):
            found.append((queue.name, "staging", key_of(queue.staged_by)))
    return sorted(found)


def hand_over(node: Node, user: str) -> None:
    """Make a user the owner of all objects that have one."""
    vhost = node.broker.vhosts.get(VHOST)
    to = node.broker.users.owner(user)
    if vhost is None or all(key == to.key for _, _, key in _owners(vhost)):
        return
    area = area_of(vhost)
    for sink in {place[0] for place in area.sinks.by_place}:
        give_sinks(area, sink, claimed(area.sinks, sink), to)
    for queue in vhost.queues.by_name.values():
        for name in (
            [] if queue.target.publishers is None else list(queue.target.publishers.by_name)
        ):
            queue.target.give_publisher(name, to)
        if isinstance(queue, Stream):
            for reader in list(queue.offsets.owners):
                queue.offsets.give(reader, to)
        if isinstance(queue, StagingQueue):
            queue.staged_by = to
    node.sync()


def seat(node: Node, actor: Actor) -> None:
    """Create the user again."""
    users = node.broker.users
    if "u" in users.by_name:
        users.delete("u")
    users.put(User("u", hash_password(b"salt", b"u"), list(actor.tags)))
    if actor.enters and actor.vhost in node.broker.vhosts:
        patterns = [actor.pattern(right) for right in RIGHTS]
        users.set_permission("u", actor.vhost, *patterns)
    hand_over(node, "u" if actor.owns else "guest")
    node.run()


# -- AMQP ------------------------------------------------------------------------------------------


@dataclass
class Outcome:
    """The outcome of one try: the answer in the format of the rows, its bytes, and the changes.

    `spread` is True if anything changed outside the vhost of the user's permissions.
    """

    answer: str
    raw: bytes
    changed: bool
    spread: bool


@dataclass
class Report:
    """The outcome of all tries."""

    tries: int = 0
    refused: int = 0
    compared: int = 0
    differences: list[str] = field(default_factory=list)

    def differs(self, row: Row, actor: Actor, text: str) -> None:
        self.differences.append(f"{row}, {actor.name}: {text}")


def encoded(name: str, declared: dict[str, Any]) -> bytes:
    """The bytes of a method of a row."""
    fields = declared.get("fields", {})
    if name == "basic.publish":
        body = declared.get("body", "body")
        body = (body if isinstance(body, str) else json.dumps(body)).encode()
        return publish(1, **fields, body=body, **declared.get("publish", {}))
    return method(0 if name.startswith("connection.") else 1, name, **fields)


def try_method(node: Node, row: Row, actor: Actor) -> Outcome:
    """Send a row's method as a user."""
    seat(node, actor)
    before = state(node)
    if _opens(row):
        peer = node.dial()
        peer.ask_open("u", VHOST)
        return _outcome(node, peer, before, actor, 0)
    peer = node.connect_as("u", 1, vhost=actor.vhost)
    for step in row.declared.get("first", []):
        peer.send(encoded(step["method"], step))
    node.sync()
    peer.take()
    start = len(peer.sent_by_broker)
    peer.send(encoded(row.name, row.declared))
    node.sync()
    return _outcome(node, peer, before, actor, start)


def _opens(row: Row) -> bool:
    """Return whether a row is the opening of a connection itself."""
    return row.name == "connection.open" and not row.declared.get("fields")


def _outcome(
    node: Node,
    peer: Peer,
    before: State,
    actor: Actor,
    start: int,
) -> Outcome:
    answer = ""
    if got := peer.take():
        first = got[0]
        answer = f"{first.name} {first.code}" if first.name.endswith(".close") else first.name
    raw = _TOKENS.sub(b"*", peer.sent_by_broker[start:])
    after = state(node)
    changed = after != before
    spread = elsewhere(after, actor.vhost) != elsewhere(before, actor.vhost)
    peer.lose()
    node.sync()
    return Outcome(answer, raw, changed, spread)


class Amqp:
    """The tries of methods, on brokers that are replaced when one was changed."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._full: Node | None = None
        #: Brokers without the objects, and without the vhost too.
        self._blind: dict[bool, Node | None] = {True: None, False: None}

    def try_row(self, row: Row, actor: Actor) -> None:
        """Try a row with a user, and check the outcome."""
        opens = _opens(row)
        if not actor.enters and not opens:
            return
        if self._full is None:
            self._full = Node()
            furnish(self._full)
        outcome = try_method(self._full, row, actor)
        self.report.tries += 1
        if outcome.changed:
            self._full = None
        if outcome.spread:
            self.report.differs(row, actor, "it changed something outside the user's vhost")
        if actor.vhost == ELSEWHERE and not opens:
            self._compare(row, actor, outcome, bare=False)
            return
        lacked = [need for need in row.needs if not actor.has(need)]
        expected = str(row.declared.get("answer", f"{row.name}-ok"))
        if lacked:
            self.report.refused += 1
            expected = row.refusal(lacked[0], _REFUSED)
        if outcome.answer != expected:
            self.report.differs(row, actor, f"{outcome.answer!r}, not {expected!r}")
        if outcome.changed != (row.changes and not lacked):
            self.report.differs(row, actor, f"changed: {outcome.changed}")
        if lacked and not row.tells(actor):
            self._compare(row, actor, outcome, bare=not opens)

    def _compare(self, row: Row, actor: Actor, outcome: Outcome, *, bare: bool) -> None:
        """Check that the answer is that of a broker without the objects.

        Unless `bare`, the vhost is missing too; an administrator may be told that.
        """
        if not bare and "administrator" in actor.tags and _opens(row):
            return
        self.report.compared += 1
        node = self._blind[bare]
        if node is None:
            node = self._blind[bare] = Node()
            furnish(node, things=False, vhost=bare)
        blind = try_method(node, row, actor)
        if blind.changed:
            self._blind[bare] = None
        if blind.raw != outcome.raw:
            self.report.differs(
                row, actor, f"it tells what is there: {outcome.raw!r}, else {blind.raw!r}"
            )


def try_methods(matrix: Matrix, *, whole: bool) -> Report:
    """Try all rows of AMQP."""
    report = Report()
    tries = Amqp(report)
    for row in [*matrix.methods, *matrix.never]:
        for actor in actors(row, whole=whole):
            tries.try_row(row, actor)
    return report


# -- HTTP ------------------------------------------------------------------------------------------


@dataclass
class Http:
    """The tries of routes, on one broker with all objects and one without."""

    report: Report
    full: HostileNode
    bare: HostileNode
    rights: dict[str, dict[str, list[str]]]

    async def try_tagged(self, row: Row, actor: Actor) -> bool:
        """Try a row with permissions by tags; return whether the broker was replaced."""
        outcome = await self._ask(self.full, row, actor)
        self.report.tries += 1
        right = self.rights[row.declared["right"]]
        everywhere = any(tag in right["everywhere"] for tag in actor.tags)
        sees = everywhere or (actor.has("enter") and not row.declared.get("own", False))
        sees = sees or row.declared.get("global", False)
        allowed = any(tag in right["tags"] for tag in actor.tags)
        allowed = allowed and (everywhere or actor.has("enter") or "{vhost}" not in row.name)
        for need in row.needs:
            allowed = allowed and actor.has(need) and (actor.has("enter") or need[:4] == "tag ")
        # For a user who cannot see it, another user's object looks like a missing one.
        unseen = allowed and not sees and "unseen" in row.declared
        status = str(row.declared.get("status", 200)) if allowed else "401"
        if unseen:
            told = row.declared.get("unseen_of", {})
            status = str(
                next((told[tag] for tag in actor.tags if tag in told), row.declared["unseen"])
            )
        if outcome.answer != status:
            text = f"{outcome.answer}, not {status}: {outcome.raw[:200]!r}"
            self.report.differs(row, actor, text)
        if outcome.changed != (row.changes and allowed and not unseen):
            self.report.differs(row, actor, f"changed: {outcome.changed}")
        shows = str(row.declared.get("shows", ""))
        if allowed and sees and shows.encode() not in outcome.raw:
            self.report.differs(row, actor, f"it does not show {shows}: {outcome.raw[:200]!r}")
        if allowed and not sees and (found := _CANARY.findall(outcome.raw)):
            self.report.differs(row, actor, f"it tells of {found}")
        if not allowed or unseen:
            self.report.refused += 1
            self.report.compared += 1
            blind = await self._ask(self.bare, row, actor)
            if blind.raw != outcome.raw:
                text = f"it tells what is there: {outcome.raw!r}, else {blind.raw!r}"
                self.report.differs(row, actor, text)
        return outcome.changed

    async def try_row(self, row: Row, actor: Actor) -> bool:
        """Try a row with a user; return whether the broker was replaced."""
        if "right" in row.declared:
            return await self.try_tagged(row, actor)
        outcome = await self._ask(self.full, row, actor)
        self.report.tries += 1
        lacked = [need for need in row.needs if not actor.has(need)]
        enters = actor.has("enter")
        lists = row.declared.get("lists", False) and enters
        status = str(row.declared.get("status", 200))
        for need, other in row.declared.get("status_of", {}).items():
            status = str(other) if actor.has(need) else status
        if lacked or not enters:
            self.report.refused += 1
            status = "200" if lists else "403"
            if lists and outcome.raw != b"[]":
                self.report.differs(row, actor, f"it lists {outcome.raw!r}")
        if outcome.answer != status:
            self.report.differs(
                row, actor, f"{outcome.answer}, not {status}: {outcome.raw[:200]!r}"
            )
        if outcome.changed != (row.changes and enters and not lacked):
            self.report.differs(row, actor, f"changed: {outcome.changed}")
        if lacked or not enters:
            self.report.compared += 1
            blind = await self._ask(self.bare, row, actor)
            told = self._is_told(actor, enters) or row.tells(actor)
            if blind.raw != outcome.raw and not told:
                self.report.differs(
                    row, actor, f"it tells what is there: {outcome.raw!r}, else {blind.raw!r}"
                )
        return outcome.changed

    def _is_told(self, actor: Actor, enters: bool) -> bool:
        """Return whether the user is an administrator, who may learn which vhosts exist."""
        return "administrator" in actor.tags and not enters

    async def try_operator(self, route: str, status: int, actor: Actor) -> None:
        """Try a route of the operator, on TCP."""
        row = Row(route, "", {"names": {}})
        outcome = await self._ask(self.full, row, actor)
        self.report.tries += 1
        self.report.refused += 1
        if outcome.answer != str(status) or outcome.changed:
            self.report.differs(row, actor, f"{outcome.answer}, not {status}")
        if found := _CANARY.findall(outcome.raw):
            self.report.differs(row, actor, f"it tells of {found}")

    async def try_strangers(self, row: Row) -> None:
        """Try a row without credentials, with a wrong password, and as an unknown user."""
        told = set()
        for login in (b"u:wrong", b"nobody:u", b""):
            actor = Actor(f"who logs in by {login!r}", dict.fromkeys(RIGHTS, frozenset({"*"})))
            outcome = await self._ask(self.full, row, actor, login)
            self.report.tries += 1
            self.report.refused += 1
            if login:
                told.add(outcome.raw)
            if outcome.answer != "401" or outcome.changed:
                self.report.differs(row, actor, f"{outcome.answer}, not 401")
            if found := _CANARY.findall(outcome.raw):
                self.report.differs(row, actor, f"it tells of {found}")
        if len(told) != 1:
            self.report.differences.append(f"{row}: who is there is told: {told}")

    async def _ask(
        self, hostile: HostileNode, row: Row, actor: Actor, login: bytes = b"u:u"
    ) -> Outcome:
        node = hostile.node
        seat(node, actor)
        before = state(node)
        verb, _, path = row.name.partition(" ")
        names = {"vhost": VHOST, **row.declared.get("names", {})}
        path = re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "canary-queue"), path)
        if query := row.declared.get("query"):
            path += f"?{query}"
        body = row.declared.get("body")
        raw = None if body is None else json.dumps(body).encode()
        credentials = b"Basic " + base64.b64encode(login) if login else b""
        status, answer = await hostile.tcp.ask(verb, path.encode(), raw, credentials)
        node.sync()
        after = state(node)
        changed = after != before
        spread = elsewhere(after, actor.vhost) != elsewhere(before, actor.vhost)
        return Outcome(str(status), answer, changed, spread)


async def _try_routes(matrix: Matrix, directory: Path, report: Report, *, whole: bool) -> None:
    rows = [(row, actor) for row in matrix.routes for actor in actors(row, whole=whole)]
    operators = [Row(name, "", {}) for name in matrix.operator_routes]
    left: list[tuple[Row, Actor]] = rows
    number = 0
    while left:
        number += 1
        full = _hostile(directory / f"full{number}", things=True)
        bare = _hostile(directory / f"bare{number}", things=False)
        async with full.serving(), bare.serving():
            http = Http(report, full, bare, matrix.rights)
            while left:
                row, actor = left.pop(0)
                full.keep_backup("canary-backup")
                if await http.try_row(row, actor):
                    break
            if not left:
                for row in [*matrix.routes, *operators]:
                    await http.try_strangers(row)
                for row in operators:
                    for actor in actors(row, whole=whole):
                        await http.try_operator(row.name, matrix.operator_status, actor)


def _hostile(directory: Path, *, things: bool) -> HostileNode:
    directory.mkdir()
    hostile = HostileNode(directory, Tally())
    furnish(hostile.node, things=things, vhost=True)
    return hostile


def try_routes(matrix: Matrix, directory: Path, *, whole: bool) -> Report:
    """Try all rows of HTTP."""
    report = Report()
    asyncio.run(_try_routes(matrix, directory, report, whole=whole))
    return report
