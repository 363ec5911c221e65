"""Definitions: what is exported comes back, all or nothing, once, and with every place named.

`definitions/rabbitmq_3_10_8.json` was exported by `rabbitmqctl export_definitions` of RabbitMQ
3.10.8, and has its ways: lists of pairs for objects, bindings of an exclusive queue and of an
internal exchange that it does not export.  `definitions/rabbitmq_4_3_6.json` was exported by
RabbitMQ 4.3.6, with a shovel, a federation and hashes of three algorithms.
"""

from __future__ import annotations

import base64
import copy
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.definitions.imports import ImportReport, import_definitions
from leveret.broker.exchanges.types import EXCHANGE_TYPES
from leveret.broker.policies.policy import effective_definition, make_policy, restored_policy
from leveret.broker.users.users import ARGON2, MD5, User
from leveret.errors import NotFound, PreconditionFailed
from leveret.management.definitions import read_definitions, write_definitions
from leveret.names import Name
from support.brokers.broker_restarts import RESTARTS
from support.node.core import Node
from support.node.exporting import export_definitions, export_vhost

RABBITMQ = Path(__file__).parent / "definitions" / "rabbitmq_3_10_8.json"
RABBITMQ_4 = RABBITMQ.with_name("rabbitmq_4_3_6.json")
SALT = bytes(range(16))
ARGON2_HASH = b"$argon2id$v=19$m=65536,t=3,p=4$c29tZXNhbHQ$RdescudvJCsgt3ub+b2dWRWJTmaaJObG"

#: The smallest of each, to be made bad.
SMALL: dict[str, Any] = {
    "vhosts": [{"name": "v"}],
    "users": [{"name": "u", "password_hash": "", "tags": []}],
    "permissions": [{"user": "u", "vhost": "v", "configure": "", "write": "", "read": ""}],
    "topic_permissions": [{"user": "u", "vhost": "v", "exchange": "e", "write": "", "read": ""}],
    "global_parameters": [{"name": "g", "value": 1}],
    "parameters": [
        {"vhost": "v", "component": "vhost-limits", "name": "limits", "value": {"max-queues": 1}}
    ],
    "policies": [{"vhost": "v", "name": "p", "pattern": "a", "definition": {"expires": 1}}],
    "queues": [{"vhost": "v", "name": "q", "durable": True, "arguments": {}}],
    "exchanges": [{"vhost": "v", "name": "e", "type": "headers", "arguments": {}}],
    "bindings": [
        {
            "vhost": "v",
            "source": "e",
            "destination": "q",
            "destination_type": "queue",
            "routing_key": "",
            "arguments": {},
        }
    ],
}


def load(node: Node, definitions: dict[str, Any], vhost: str | None = None) -> ImportReport:
    return import_definitions(node.broker, definitions, SALT, vhost)


def rabbitmq() -> dict[str, object]:
    return read_definitions(RABBITMQ.read_bytes())


def journaled(node: Node) -> int:
    """How many groups the journal has begun, after all that is known was synced."""
    node.sync()
    return int(node.journal.group)


# -- RabbitMQ's file -------------------------------------------------------------------------------


def test_b75_a_file_of_rabbitmq_comes_in(node: Node) -> None:
    report = load(node, rabbitmq())
    broker = node.broker
    shop = broker.vhosts["shop"]
    assert shop.metadata.record() == {
        "name": "shop",
        "metadata": {
            "description": "the shop",
            "tags": ["eu", "prod"],
            "default_queue_type": "quorum",
        },
        "limits": {"max-connections": 100, "max-queues": 50},
    }
    assert broker.users.verify("anna", b"anna-pass")
    assert broker.users.verify("bob", b"bob-pass")
    assert not broker.users.verify("bob", b"")
    assert not broker.users.verify("nobody", b"")
    assert broker.users.by_name["bob"].tags == ["management", "policymaker"]
    assert broker.users.limits["bob"] == {"max-connections": 10, "max-channels": 20}
    assert broker.users.permissions["bob", "/"].write == r"^(bob|shared)\."
    assert broker.users.topic_permissions["bob", "shop"]["events"].write == r"^{username}\."
    assert {name: queue.kind for name, queue in shop.queues.by_name.items()} == {
        "orders": "classic",
        "orders-q": "quorum",
        "default-type": "quorum",
        "log": "stream",
        "lost": "classic",
        "auto": "classic",
        "dead": "classic",
        "transient-q": "classic",
    }
    orders = shop.queues.by_name["orders"]
    assert orders.arguments["x-message-ttl"] == 60_000
    assert (orders.policy, orders.operator_policy) == (
        shop.policies.by_name["orders"],
        shop.policies.operator_by_name["cap"],
    )
    assert not shop.queues.by_name["transient-q"].durable
    assert shop.exchanges.existing(Name("events")).alternate == "lost"
    assert sorted(
        key for *_, key, _ in shop.exchanges.existing(Name("events")).bindings if key[:1] == "o"
    ) == [
        "order.#",
        "order.created",
    ]
    bound = next(iter(shop.exchanges.existing(Name("by-header")).bindings.values()))
    assert bound.arguments["n"] == 5
    assert broker.vhosts["/"].policies.by_name["ha"].definition == {
        "ha-mode": "all",
        "message-ttl": 60_000,
    }
    left_out = sorted(note.partition(": ")[2] for note in report.notes)
    assert left_out[0] == "no exchange 'internal' in vhost 'shop'"
    assert left_out[1].startswith("no queue 'amq.gen-")
    assert len(left_out) == 2


def test_a_file_of_rabbitmq_4_comes_in(node: Node) -> None:
    """Users log in with their passwords, and entries without effect are named."""
    report = load(node, read_definitions(RABBITMQ_4.read_bytes()))
    users = node.broker.users
    assert users.verify("ann", "ann's pässword".encode())  # SHA-256
    assert users.verify("old512", b"five12")
    assert users.verify("old5", b"five")  # MD5
    assert not users.verify("certonly", b"")
    shop = node.broker.vhosts["shop"]
    assert {queue.kind for queue in shop.queues.by_name.values()} == {"classic", "quorum", "stream"}
    assert shop.queues.by_name["work.default"].kind == "quorum"
    assert shop.queues.by_name["work.quorum"].policy is shop.policies.by_name["dlx"]
    assert report.changed["queues"] == 14
    assert report.notes == [
        "exchanges[0] 'amq.rabbitmq.log': names that begin with 'amq.' are reserved"
    ]
    assert report.kept == [
        "parameters[0] 'move': unknown component 'shovel'",
        "parameters[3] 'origin': unknown component 'federation-upstream'",
        "policies[1] 'fed': no effect here: federation-upstream-set",
    ]


def test_b75_the_same_again_changes_nothing(node: Node) -> None:
    load(node, rabbitmq())
    before, groups = export_definitions(node.broker), journaled(node)
    report = load(node, rabbitmq())
    assert report.changed == {}
    assert len(report.notes) == 2
    assert export_definitions(node.broker) == before
    assert journaled(node) == groups, "nothing was journaled"


@pytest.mark.parametrize("restart", RESTARTS)
def test_b75_what_came_in_survives_and_goes_out_as_it_came(
    node: Node, restart: Callable[[Node], Node]
) -> None:
    load(node, rabbitmq())
    exported = export_definitions(node.broker)
    again = restart(node)
    durable = export_definitions(again.broker)
    gone = ("transient", "transient-q")
    for section, rows in exported.items():
        assert isinstance(rows, list)
        kept = [row for row in rows if not {*gone} & {*map(str, row.values())}]
        found = durable[section]
        assert isinstance(found, list)
        assert sorted(kept, key=str) == sorted(found, key=str), section
    other = Node()
    as_file = write_definitions(exported, "3.13.7")
    assert load(other, read_definitions(as_file)).notes == []
    assert export_definitions(other.broker) == exported


def test_rabbitmq_would_find_what_it_wrote(node: Node) -> None:
    """Entry by entry, apart from the forms that it took two of."""
    load(node, rabbitmq())
    mine, theirs = export_definitions(node.broker), rabbitmq()
    for section in ("permissions", "topic_permissions", "queues", "policies"):
        rows, wanted = mine[section], theirs[section]
        assert isinstance(rows, list)
        assert isinstance(wanted, list)
        found = [{k: v for k, v in row.items() if k in wanted[0]} for row in rows]
        assert sorted(found, key=str) == sorted(
            [{k: row[k] for k in sorted(row, key=list(found[0]).index)} for row in wanted], key=str
        )


# -- all or nothing --------------------------------------------------------------------------------


def bad(section: str, **fields: object) -> dict[str, Any]:
    """The smallest definitions with one more entry, whose fields are changed."""
    made = copy.deepcopy(SMALL)
    made[section].append({**made[section][0], **fields})
    return made


BAD: list[tuple[dict[str, Any], str]] = [
    (bad("vhosts", name=""), "vhosts[1] '': name has 1 to 255 bytes"),
    (bad("vhosts", name=5), "vhosts[1]: name should be a string"),
    (bad("vhosts", name="w", limits={"x": 1}), "vhosts[1] 'w': Validation failed: Unrecognised"),
    (
        bad("vhosts", name="w", metadata={"tags": 5}),
        "vhosts[1] 'w': tags must be a list of strings",
    ),
    (bad("vhosts", name="w", default_queue_type="bag"), "'bag' is not a queue type"),
    (bad("users", name="w" * 256), "name has 1 to 255 bytes"),
    (bad("queues", name="a\nb"), "name must not contain a line end"),
    (bad("users", name="\ud800"), "a text is not Unicode"),
    (bad("users", name="w", password_hash="!"), "users[1] 'w': password_hash is not base 64"),
    (
        bad("users", name="w", password_hash="QUJD"),
        "users[1] 'w': the password hash is not a valid",
    ),
    (bad("users", name="w", password_hash=None), "password_hash or password is missing"),
    (bad("users", name="w", tags=[5]), "users[1] 'w': tags must be a list of strings"),
    (bad("users", name="w", limits={"max-channels": "a"}), "max-channels in limits should be a"),
    (bad("users", name="w", limits={"x": 1}), "users[1] 'w': Unrecognised term 'x'"),
    (bad("vhosts", name="w", description="\ud800"), "a text is not Unicode"),
    (bad("policies", name="r", pattern="\ud800"), "a text is not Unicode"),
    (bad("policies", name="r", definition={"dead-letter-exchange": "\ud800"}), "is not Unicode"),
    (bad("global_parameters", name="h", value="\ud800"), "cannot be kept"),
    (bad("queues", name="r", arguments={"\ud800": 1}), "cannot be kept"),
    (bad("bindings", routing_key="\ud800"), "a text is not Unicode"),
    (bad("permissions", read="\ud800"), "a text is not Unicode"),
    (bad("users", name="w", tags=["\ud800"]), "a text is not Unicode"),
    (bad("users", name="w", password_hash=None, password="\ud800"), "a text is not Unicode"),
    (bad("permissions", user="nobody"), "permissions[1] 'nobody': no user 'nobody'"),
    (bad("permissions", vhost="no"), "permissions[1] 'u': vhost 'no' does not exist"),
    (bad("permissions", read="("), "permissions[1] 'u': not a valid regular expression"),
    (bad("topic_permissions", write="(", exchange="x"), "topic_permissions[1] 'u': not a valid"),
    (bad("global_parameters", name=""), "global_parameters[1] '': name has 1 to 255 bytes"),
    (bad("global_parameters", name="h", value=2**70), "cannot be kept"),
    (bad("parameters", component="shovel", value=2**70), "parameters[1] 'limits': the value"),
    (bad("parameters", component="policy"), "policies may not be set using this method"),
    (bad("parameters", vhost="no"), "parameters[1] 'limits': vhost 'no' does not exist"),
    (bad("parameters", value={"max-queues": []}), "max-queues should be a number"),
    (bad("policies", pattern="("), "policies[1] 'p': not a valid regular expression"),
    (bad("policies", name="r", definition={"x": 2**70}), "policies[1] 'r': the value cannot be"),
    (bad("policies", name="r", definition={"\ud800": 1}), "policies[1] 'r': the value cannot be"),
    (bad("policies", name="r", definition={"x": "y" * 65536}), "has at most 65536 bytes"),
    (
        bad("policies", name="r", definition={"federation-upstream-set": "all", "expires": 0}),
        "policies[1] 'r': Validation failed: 0 is not a valid queue expiry",
    ),
    (bad("policies", name="r", definition={}), "policies[1] 'r': Validation failed: no policy"),
    (bad("policies", name="r", priority="x"), "priority should be a number"),
    (bad("queues", vhost="no"), "queues[1] 'q': vhost 'no' does not exist"),
    (bad("queues", vhost=None), "queues[1] 'q': vhost should be a string"),
    (bad("queues", name="r", arguments={"x-max-length": -1}), "queues[1] 'r': invalid arg 'x-max"),
    (bad("queues", name="r", type="quorum", durable=False), "invalid property 'non-durable'"),
    (bad("queues", name="r", durable="yes"), "durable should be true or false"),
    (bad("queues", name="r", arguments=5), "queues[1] 'r': Validation failed: arguments should be"),
    (bad("queues", name="r", arguments={"a": 2**70}), "cannot be kept"),
    (bad("exchanges", name="f", type="bag"), "exchanges[1] 'f': unknown exchange type 'bag'"),
    (
        bad("exchanges", name="f", arguments={"alternate-exchange": 5}),
        "for arg 'alternate-exchange'",
    ),
    (bad("bindings", arguments={"x-match": "some"}), "bindings[1] 'e': "),
    (bad("bindings", destination_type="bag"), "destination_type should be queue or exchange"),
    (bad("bindings", routing_key=5), "routing_key should be a string"),
    ({**SMALL, "queues": {}}, "queues should be a list"),
    ({**SMALL, "queues": ["q"]}, "queues[0] should be an object"),
]


@pytest.mark.parametrize(("definitions", "text"), BAD, ids=lambda value: str(value)[:40])
def test_bad_definitions_change_nothing_and_name_the_place(
    node: Node, definitions: dict[str, Any], text: str
) -> None:
    before, groups = export_definitions(node.broker), journaled(node)
    with pytest.raises(PreconditionFailed) as caught:
        load(node, definitions)
    assert text in caught.value.text
    assert export_definitions(node.broker) == before
    assert journaled(node) == groups
    load(node, SMALL)


def test_what_is_too_much_together_is_refused_as_a_whole(node: Node) -> None:
    """Limits count what is there and what comes."""
    load(node, SMALL)
    node.broker.vhosts["v"].queues.count_max = 3
    more = [{"vhost": "v", "name": f"q{number}", "arguments": {}} for number in range(3)]
    with pytest.raises(PreconditionFailed, match=r"queues\[2\] 'q2': a vhost has at most 3 queues"):
        load(node, {"queues": more})
    load(node, {"queues": [*more[:2], SMALL["queues"][0]]})
    node.broker.vhosts["v"].exchanges.count_max = len(node.broker.vhosts["v"].exchanges.by_name) + 1
    more = [{"vhost": "v", "name": f"e{number}", "type": "fanout"} for number in range(2)]
    with pytest.raises(PreconditionFailed, match=r"exchanges\[1\] 'e1': a vhost has at most 8"):
        load(node, {"exchanges": more})
    node.broker.vhosts["v"].exchanges.bindings_max = 1
    again = SMALL["bindings"][0]
    with pytest.raises(PreconditionFailed, match=r"bindings\[1\] 'e': an exchange has at most 1"):
        load(node, {"bindings": [again, {**again, "routing_key": "other"}]})
    load(node, {"bindings": [again]})


# -- merging ---------------------------------------------------------------------------------------


def test_definitions_add_and_replace_and_take_nothing_away(node: Node) -> None:
    load(node, SMALL)
    vhost = node.broker.vhosts["v"]
    vhost.policies.set(make_policy("mine", ".*", {"expires": 9}))
    vhost.queues.create(Name("mine"), QueueAttributes(True))
    changed = copy.deepcopy(SMALL)
    changed["users"][0]["tags"] = "administrator,monitoring"
    changed["permissions"][0]["read"] = ".*"
    changed["policies"][0]["definition"] = {"expires": 2}
    changed["global_parameters"][0]["value"] = [2]
    report = load(node, changed)
    assert report.changed == {
        "users": 1,
        "permissions": 1,
        "policies": 1,
        "global_parameters": 1,
    }
    assert set(vhost.queues.by_name) == {"q", "mine"}
    assert set(vhost.policies.by_name) == {"p", "mine"}
    assert vhost.policies.by_name["p"].definition == {"expires": 2}
    assert node.broker.users.by_name["u"].tags == ["administrator", "monitoring"]
    assert node.broker.users.permissions["u", "v"].read == ".*"


def test_queues_and_exchanges_that_differ_stay_with_a_note(node: Node) -> None:
    load(node, SMALL)
    changed = copy.deepcopy(SMALL)
    changed["queues"][0]["arguments"] = {"x-max-length": 5}
    changed["exchanges"][0]["type"] = "fanout"
    report = load(node, changed)
    assert report.changed == {}
    assert report.notes == [
        "queues[0] 'q': queue 'q' in vhost 'v' already exists and differs; it is not changed",
        "exchanges[0] 'e': exchange 'e' in vhost 'v' already exists and differs; it is not changed",
    ]
    assert node.broker.vhosts["v"].queues.by_name["q"].arguments == {}


def test_what_no_broker_can_take_is_left_out_with_a_note(node: Node) -> None:
    load(node, SMALL)
    peer = node.connect()
    peer.call(1, "queue.declare", queue="mine", exclusive=True)
    binding = {**SMALL["bindings"][0], "vhost": "/", "source": "amq.topic"}
    report = load(
        node,
        {
            "exchanges": [
                {"vhost": "/", "name": "amq.own", "type": "fanout"},
                {"vhost": "/", "name": "amq.topic", "type": "topic"},
            ],
            "bindings": [
                {**binding, "source": "", "destination": "q"},
                {**binding, "source": "no"},
                {**binding, "destination": "no"},
                {**binding, "destination": "no", "destination_type": "exchange"},
                {**binding, "destination": "", "destination_type": "exchange"},
                {**binding, "destination": "mine"},
            ],
        },
    )
    assert report.changed == {}
    assert report.notes == [
        "exchanges[0] 'amq.own': names that begin with 'amq.' are reserved",
        "bindings[1] 'no': no exchange 'no' in vhost '/'",
        "bindings[2] 'amq.topic': no queue 'no' in vhost '/'",
        "bindings[3] 'amq.topic': no exchange 'no' in vhost '/'",
        "bindings[4] 'amq.topic': nothing can be bound to the default exchange",
        "bindings[5] 'amq.topic': queue 'mine' in vhost '/' is exclusive",
    ]


def test_queues_come_in_beyond_the_operators_limit_and_with_any_name(node: Node) -> None:
    """An export of a vhost that is over its limit can be put back."""
    node.vhost.limits.set({"max-queues": 0})
    node.vhost.metadata.set({"default_queue_type": "quorum"})
    queues = [{"vhost": "/", "name": name} for name in ("a", "amq.gen-x")]
    assert load(node, {"queues": queues}).changed == {"queues": 2}
    assert node.vhost.queues.by_name["amq.gen-x"].kind == "classic", "the file says what it is"


def test_a_queue_of_an_empty_type_is_what_its_file_says(node: Node) -> None:
    """RabbitMQ 4.3 exports a queue so that was declared with an empty `x-queue-type`."""
    row = {"vhost": "/", "name": "q", "type": "quorum", "arguments": {"x-queue-type": ""}}
    assert load(node, {"queues": [row]}).changed == {"queues": 1}
    assert node.vhost.queues.by_name["q"].arguments == {"x-queue-type": "quorum"}


@pytest.mark.parametrize("restart", RESTARTS)
def test_exchanges_of_every_type_come_and_go(node: Node, restart: Callable[[Node], Node]) -> None:
    rows = [
        {"vhost": "/", "name": f"{kind}-{number}", "type": kind, "arguments": {}}
        for kind in sorted({*EXCHANGE_TYPES, "x-delayed-message"})
        for number in range(2)
    ]
    for row in rows:
        if row["type"] == "x-delayed-message":
            row["arguments"] = {"x-delayed-type": "topic"}
    bindings = [
        {
            "vhost": "/",
            "source": row["name"],
            "destination": "q",
            "destination_type": "queue",
            "routing_key": "" if "local" in str(row["type"]) else "5",
            "arguments": {},
        }
        for row in rows
    ]
    queues = [{"vhost": "/", "name": "q"}]
    load(node, {"exchanges": rows, "bindings": bindings, "queues": queues})
    exported = export_definitions(node.broker)
    again = restart(node)
    assert export_definitions(again.broker) == exported
    assert load(again, exported).changed == {}
    assert load(again, exported).notes == []


# -- parts of other brokers ------------------------------------------------------------------------

#: A policy, a parameter and an operator policy of parts that are not here.
OTHERS: dict[str, Any] = {
    "policies": [
        {
            "vhost": "/",
            "name": "federated",
            "pattern": "^f",
            "apply-to": "all",
            "priority": 1,
            "definition": {
                "federation-upstream-set": "all",
                "max-length": 7,
                "max-priority": 9,
                "nested": {"deep": [1, {"er": None}]},
            },
        }
    ],
    "parameters": [
        {
            "vhost": "/",
            "component": "federation-upstream",
            "name": "north",
            "value": {"uri": ["amqp://north"], "max-hops": 1, "nested": {"deep": [None]}},
        },
        {
            "vhost": "/",
            "component": "operator_policy",
            "name": "grown",
            "value": {
                "pattern": "^f",
                "apply-to": "queues",
                "priority": 0,
                "definition": {"target-group-size": 3, "max-length": 5, "of-4": "x"},
            },
        },
    ],
}


@pytest.mark.parametrize("restart", RESTARTS)
def test_parts_that_are_not_here_are_kept_and_told_and_exported(
    node: Node, restart: Callable[[Node], Node]
) -> None:
    node.vhost.queues.declare(None, Name("fast"), QueueAttributes(True))
    report = load(node, OTHERS)
    assert report.notes == []
    assert report.kept == [
        "parameters[0] 'north': unknown component 'federation-upstream'",
        "parameters[1] 'grown': no effect here: target-group-size, of-4",
        "policies[0] 'federated': no effect here: federation-upstream-set, max-priority, nested",
    ]
    again = restart(node)
    assert load(again, OTHERS).changed == {}
    assert load(again, OTHERS).kept == report.kept
    exported = export_definitions(again.broker)
    for section, rows in OTHERS.items():
        found = exported[section]
        assert isinstance(found, list)
        assert sorted(found, key=str) == sorted(rows, key=str)
    queue = again.vhost.queues.by_name["fast"]
    assert queue.policy is again.vhost.policies.by_name["federated"]
    assert queue.policy.in_force == {"max-length": 7}
    assert effective_definition(queue.policy, queue.operator_policy) == {"max-length": 5}


def test_a_section_that_is_not_known_is_told(node: Node) -> None:
    report = load(node, {"rabbitmq_version": "4.3.0", "of-4": [{"a": 1}], "empty": []})
    assert report.notes == ["of-4: unknown section"]


def test_a_key_that_a_later_version_knows_has_no_effect_with_a_bad_value() -> None:
    """What was kept unjudged is judged when its key is known."""
    record = {"name": "p", "pattern": "", "definition": {"expires": "never", "max-length": 3}}
    policy = restored_policy({**record, "vhost": "/"}, False)
    assert policy.in_force == {"max-length": 3}
    assert policy.without_effect() == ["expires"]


# -- passwords -------------------------------------------------------------------------------------


def test_b75_hashes_are_kept(node: Node) -> None:
    node.broker.users.put(User("own", ARGON2_HASH, ["monitoring"], ARGON2))
    other = Node()
    load(other, export_definitions(node.broker))
    user = other.broker.users.by_name["own"]
    assert user.definition() == node.broker.users.by_name["own"].definition()
    assert other.broker.users.verify("guest", b"guest")


def test_a_user_whose_hash_is_of_another_kind_refuses_nothing(node: Node) -> None:
    """Exports of RabbitMQ 3.5 have MD5 and name no algorithm; plugins have algorithms of theirs."""
    md5 = b"salt" + hashlib.md5(b"saltpass", usedforsecurity=False).digest()
    old = base64.b64encode(md5).decode()
    given = {
        **SMALL,
        "users": [
            {"name": "u", "password_hash": old, "tags": "management"},
            {"name": "odd", "password_hash": old, "hashing_algorithm": "scrypt", "tags": []},
        ],
    }
    report = load(node, given)
    users = node.broker.users
    assert users.verify("u", b"pass")
    assert "q" in node.broker.vhosts["v"].queues.by_name
    assert report.kept == ["users[1] 'odd': no password: the algorithm 'scrypt' is not supported"]
    assert users.get("odd").password_hash == b""
    # One who is there keeps the password.
    users.put(User("odd", md5, [], MD5))
    kept = ["users[1] 'odd': the password is unchanged: the algorithm 'scrypt' is not supported"]
    assert load(node, given).kept == kept
    assert users.verify("odd", b"pass")


def test_a_password_in_clear_text_is_hashed_once(node: Node) -> None:
    users = {"users": [{"name": name, "password": "secret", "tags": ""} for name in ("a", "b")]}
    assert load(node, users).changed == {"users": 2}
    known = node.broker.users
    assert known.verify("a", b"secret")
    assert known.by_name["a"].password_hash != known.by_name["b"].password_hash
    assert load(node, users).changed == {}
    assert import_definitions(node.broker, users, b"another salt").changed == {}
    users["users"][0]["password"] = "other"
    assert load(node, users).changed == {"users": 1}
    assert known.verify("a", b"other")


def test_a_user_that_is_there_keeps_a_password_that_is_not_said(node: Node) -> None:
    load(node, {"users": [{"name": "guest", "tags": ["monitoring"]}]})
    assert node.broker.users.verify("guest", b"guest")
    assert node.broker.users.by_name["guest"].tags == ["monitoring"]


def test_limits_of_a_user_are_replaced(node: Node) -> None:
    user = {"name": "guest", "limits": {"max-channels": 5, "max-connections": 5}}
    load(node, {"users": [user]})
    load(node, {"users": [{"name": "guest"}]})
    assert node.broker.users.limits["guest"] == user["limits"]
    load(node, {"users": [{"name": "guest", "limits": [["max-channels", 6]]}]})
    assert node.broker.users.limits["guest"] == {"max-channels": 6}


# -- one vhost -------------------------------------------------------------------------------------


def test_a_vhost_goes_into_another(node: Node) -> None:
    load(node, rabbitmq())
    exported = export_vhost(node.broker, "shop")
    assert exported["original_vhost_name"] == "shop"
    assert exported["metadata"] == node.broker.vhosts["shop"].metadata.fields()
    assert "users" not in exported
    queues = exported["queues"]
    assert isinstance(queues, list)
    assert all("vhost" not in row for row in queues)
    node.broker.add_vhost("copy")
    before = export_vhost(node.broker, "shop")
    load(node, exported, "copy")
    copied = export_vhost(node.broker, "copy")
    sections = ("parameters", "policies", "queues", "exchanges", "bindings")
    assert {name: copied[name] for name in sections} == {name: before[name] for name in sections}
    assert export_vhost(node.broker, "shop") == before
    assert load(node, copied, "copy").changed == {}


def test_a_whole_file_into_one_vhost_brings_no_users(node: Node) -> None:
    load(node, SMALL, "/")
    assert set(node.broker.vhosts) == {"/"}
    assert set(node.broker.users.by_name) == {"guest"}
    assert "q" in node.vhost.queues.by_name
    assert node.vhost.limits.by_name == {"max-queues": 1}


def test_a_vhost_that_is_not_there(node: Node) -> None:
    with pytest.raises(NotFound, match="no vhost 'no'"):
        export_vhost(node.broker, "no")
    with pytest.raises(NotFound, match="no vhost 'no'"):
        load(node, SMALL, "no")


# -- what is exported ------------------------------------------------------------------------------


def test_exclusive_queues_and_the_brokers_own_are_not_exported(node: Node) -> None:
    peer = node.connect()
    peer.call(1, "queue.declare", queue="mine", exclusive=True)
    peer.call(1, "queue.bind", queue="mine", exchange="amq.topic", routing_key="k")
    exported = export_definitions(node.broker)
    assert exported["queues"] == exported["exchanges"] == exported["bindings"] == []


# -- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "are not JSON"),
        (b'{"queues": [}', r"are not JSON: .*byte 12"),
        (b"[]", "should be an object"),
        (b"null", "should be an object"),
        (b'{"a": "\xff"}', "are not JSON"),
        (b'{"a": ' + b"[" * 100_000, "are not JSON|nested too deeply"),
        (b'\xef\xbb\xbf{"a": 1}', "are not JSON"),
    ],
)
def test_what_is_no_definitions_file(data: bytes, text: str) -> None:
    with pytest.raises(PreconditionFailed, match=text):
        read_definitions(data)


def test_a_file_says_whose_it_is() -> None:
    found = read_definitions(write_definitions({"users": [], "x": {"a": b"\x00"}}, "3.13.7"))
    assert (found["rabbit_version"], found["product_name"]) == ("3.13.7", "Leveret")
    assert found["x"] == {"a": "AA=="}
