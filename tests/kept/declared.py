"""What a kept data directory declares: one of each kind of definition, in a definitions file.

Times are long, so that nothing ends by its age while a directory is kept: nine years where ten are
allowed.
"""

from __future__ import annotations

from typing import Any, Final

#: What a name may hold beside letters: a tab, the lowest control character and DEL.
ODD: Final = "odd\tname\x01with\x7fcontrols"

#: Nine years, in ms and as an age.
LONG_MS: Final = 9 * 365 * 86_400_000
LONG_AGE: Final = "9Y"

#: The vhosts in which messages lie, by their names.
VHOSTS: Final = ("/", "shop", ODD)

#: Passwords that are not the user's name; ann's hash is of RabbitMQ's kind, bob's is Argon2id.
PASSWORDS: Final = {"ann": "test12", "bob": "bob's own password", ODD: "test12"}
ANN_HASH: Final = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"

Row = dict[str, Any]


def definitions() -> dict[str, list[Row]]:
    """Return the definitions file."""
    return {
        "vhosts": [
            {"name": "/"},
            {
                "name": "shop",
                "metadata": {
                    "description": "what is sold",
                    "tags": ["sales", "eu"],
                    "default_queue_type": "quorum",
                },
            },
            {"name": "strict", "metadata": {"strict_keys": True, "protected_from_deletion": True}},
            {"name": ODD, "metadata": {"description": "a name\tthat is odd"}},
        ],
        "users": _users(),
        "permissions": _permissions(),
        "topic_permissions": [
            {"user": "ann", "vhost": "shop", "exchange": "amq.topic", "write": "^a", "read": "^b"},
            {"user": ODD, "vhost": ODD, "exchange": "events", "write": "^{username}", "read": ""},
        ],
        "global_parameters": [
            {"name": "cluster_name", "value": "kept"},
            {"name": "nested", "value": {"a": [1, 2.5, None, True, {"b": "c"}]}},
        ],
        "parameters": _parameters(),
        "policies": _policies(),
        "queues": _queues(),
        "exchanges": _exchanges(),
        "bindings": _bindings(),
    }


def _users() -> list[Row]:
    return [
        {
            "name": "ann",
            "password_hash": ANN_HASH,
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["monitoring", "policymaker"],
            "limits": {"max-connections": 7, "max-channels": 99},
        },
        {"name": "nobody", "password_hash": "", "tags": []},
        {"name": ODD, "password_hash": ANN_HASH, "tags": ["impersonator"]},
    ]


def _permissions() -> list[Row]:
    return [
        {"user": user, "vhost": vhost, "configure": configure, "write": write, "read": read}
        for user, vhost, configure, write, read in [
            ("guest", "/", ".*", ".*", ".*"),
            ("guest", "shop", ".*", ".*", ".*"),
            ("guest", "strict", ".*", ".*", ".*"),
            ("guest", ODD, ".*", ".*", ".*"),
            ("ann", "shop", "", "^bills|^amq\\.", ".*"),
            (ODD, ODD, "^odd\t", ".*", "(?!secret)"),
        ]
    ]


def _parameters() -> list[Row]:
    limit = {"pattern": "^bounded", "apply-to": "queues", "priority": 3}
    return [
        {
            "vhost": "/",
            "component": "operator_policy",
            "name": "at most",
            "value": limit | {"definition": {"max-length": 1000, "delivery-limit": 50}},
        },
        {
            "vhost": "shop",
            "component": "vhost-limits",
            "name": "limits",
            "value": {"max-connections": 20, "max-queues": 30},
        },
    ]


def _policies() -> list[Row]:
    return [
        {
            "vhost": "/",
            "name": "long lives",
            "pattern": "^bounded",
            "apply-to": "queues",
            "definition": {"message-ttl": LONG_MS, "max-length": 5000},
            "priority": 2,
        },
        {
            "vhost": "/",
            "name": "letters",
            "pattern": "^mortal",
            "apply-to": "all",
            "definition": {"dead-letter-exchange": "letters", "dead-letter-routing-key": "dead"},
            "priority": 0,
        },
        {
            "vhost": ODD,
            "name": ODD,
            "pattern": "^odd\t",
            "apply-to": "queues",
            "definition": {"max-length-bytes": 10_000_000},
            "priority": -1,
        },
    ]


def _queue(name: str, arguments: Row | None = None, vhost: str = "/") -> Row:
    return {
        "vhost": vhost,
        "name": name,
        "durable": True,
        "auto_delete": False,
        "arguments": arguments or {},
    }


def _queues() -> list[Row]:
    stream = {"x-queue-type": "stream"}
    to_expired_letters = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "expired letters",
    }
    return [
        _queue("deep"),
        _queue("deep priorities", {"x-max-priority": 4}),
        _queue("bounded.tasks"),
        _queue("mortal", {"x-max-length": 3}),
        _queue("letters"),
        _queue("expired letters"),
        _queue("expiring", to_expired_letters),
        _queue("returning", {"x-queue-type": "quorum", "x-delivery-limit": 5}),
        _queue("numbered"),
        _queue("unique", {"x-deduplication-header": "order-id", "x-deduplication-window-size": 50}),
        _queue("retained", {"x-retain-acked": LONG_AGE}),
        _queue("history"),
        _queue("late history"),
        _queue("due"),
        _queue("results"),
        _queue("sold"),
        _queue("narrow", {"x-max-length": 5, "x-overflow": "reject-publish"}),
        *(_queue(f"hashed.{number}") for number in range(3)),
        _queue("bills", vhost="shop"),
        _queue(ODD, vhost=ODD),
        _queue("log", stream | {"x-max-age": LONG_AGE}),
        _queue("in.one", stream),
        _queue("in.two", stream),
        _queue("copied", stream),
        _queue("odd\tstream\x01", stream, vhost=ODD),
    ]  # fmt: skip


def _exchange(name: str, kind: str, vhost: str = "/", **arguments: Any) -> Row:
    return {
        "vhost": vhost,
        "name": name,
        "type": kind,
        "durable": True,
        "auto_delete": False,
        "internal": name == "letters",
        "arguments": {key.replace("_", "-"): value for key, value in arguments.items()},
    }


def _exchanges() -> list[Row]:
    return [
        _exchange("orders", "topic", "shop", alternate_exchange="lost"),
        _exchange("lost", "fanout", "shop"),
        _exchange("letters", "fanout"),
        _exchange("marks", "headers"),
        _exchange("spread", "x-consistent-hash"),
        _exchange("recent", "x-recent-history", x_recent_history_length=4),
        _exchange("later", "x-delayed-message", x_delayed_type="direct"),
        _exchange("events", "topic", ODD),
        _exchange(ODD, "direct", ODD),
    ]


def _bound(source: str, destination: str, key: str = "", vhost: str = "/", **more: Any) -> Row:
    kind = more.pop("kind", "queue")
    return {
        "vhost": vhost,
        "source": source,
        "destination": destination,
        "destination_type": kind,
        "routing_key": key,
        "arguments": {name.replace("_", "-"): value for name, value in more.items()},
    }


def _bindings() -> list[Row]:
    return [
        _bound("orders", "bills", "bill.#", "shop"),
        _bound("lost", "bills", vhost="shop"),
        _bound("letters", "letters"),
        _bound("marks", "bounded.tasks", x_match="any", colour="red", size=7),
        _bound("recent", "history"),
        *(_bound("spread", f"hashed.{number}", str(number + 1)) for number in range(3)),
        _bound("later", "due", "due"),
        _bound("amq.topic", "log", "log.#"),
        _bound("events", ODD, "#", ODD, kind="exchange"),
        _bound(ODD, ODD, ODD, ODD),
    ]
