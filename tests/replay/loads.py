"""The loads of the replayer: which queues there are, and what clients do how often."""

from __future__ import annotations

from typing import Any

from replay.acts import SMALL, Load
from replay.batches import BatchActs
from replay.drive import Sizes

LOADS: dict[str, Load] = {}


def _load(*args: Any, **values: Any) -> None:
    load = Load(*args, **values)
    LOADS[load.name] = load


_STREAM = {"x-queue-type": "stream"}
_MACHINE = {"rest": 2, "stop_or_kill": 1}
_CONSUMING = {"get": 5, "consume": 2, "ack_one": 8, "ack_most": 1, "ack_multiple": 2, "requeue": 2}

_load(
    "publish",
    {"q1": {}, "q2": {}, "q3": {}},
    {"publish_one": 20, "publish_some": 2, "publish_wide": 8, **_CONSUMING, **_MACHINE},
    exchanges={"fan": ("fanout", {})},
    bindings=(("fan", "", "q1"), ("fan", "", "q2"), ("fan", "", "q3")),
)
_load(
    "acks",
    {"q1": {}, "q2": {}},
    {"publish_one": 8, "publish_some": 6, "drain_some": 6, "ack_most": 4, "checkpoint": 3,
     **_CONSUMING, **_MACHINE},
    limits=Sizes(2000, 5000, 8),
)  # fmt: skip
_load(
    "definitions",
    {"q1": {}, "q2": {}, "q3": {}},
    {"declare_or_delete": 8, "exchange": 5, "bind_or_unbind": 8, "policy": 3, "user": 3,
     "vhost": 2, "publish_one": 6, "publish_bound": 10, "get": 3, "ack_one": 3, "checkpoint": 1,
     **_MACHINE},
    sizes=SMALL,
    limits=Sizes(1500, 4000, 3),
)  # fmt: skip
_load(
    "tx",
    {"q1": {}, "q2": {}},
    {"transaction": 20, "publish_one": 6, "get": 2, "ack_one": 2, "checkpoint": 1, **_MACHINE},
)
_load(
    "streams",
    {"s1": _STREAM, "s2": {**_STREAM, "x-max-length-bytes": 4000}},
    {"publish_one": 20, "publish_some": 4, "consume": 4, "ack_most": 6, "checkpoint": 2, "wait": 2,
     **_MACHINE},
    loose=("s1", "s2"),
    limits=Sizes(3000, 6000, 8),
)  # fmt: skip
_load(
    "readers",
    {"s1": _STREAM, "s2": {**_STREAM, "x-max-length-bytes": 4000}},
    {"publish_one": 12, "publish_some": 5, "consume": 6, "ack_one": 8, "ack_most": 4,
     "ack_multiple": 2, "lose_consumer": 1, "checkpoint": 2, "wait": 4, **_MACHINE},
    sizes=SMALL,
    loose=("s1", "s2"),
    reader="app",
    limits=Sizes(3000, 6000, 8),
)  # fmt: skip
_load(
    "letters",
    {
        "q1": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
        "q2": {
            "x-dead-letter-exchange": "fan", "x-max-length": 5, "x-message-ttl": 600,
        },
        "dead": {},
        "also": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
                 "x-message-ttl": 300},
    },
    {"publish_one": 18, "publish_some": 3, "reject": 8, "wait": 4, "checkpoint": 1, **_CONSUMING,
     **_MACHINE},
    sizes=SMALL,
    lettered=("q1", "q2", "also"),
    drains=False,
    targets=("q1", "q2"),
    exchanges={"fan": ("fanout", {})},
    bindings=(("fan", "", "also"),),
    properties=lambda acts: acts.some_expiry(),
)  # fmt: skip
_load(
    "requeues",
    {"q1": {}, "q2": {"x-delivery-limit": 3}},
    {"publish_one": 12, "get": 10, "requeue": 14, "lose_consumer": 2, "consume": 3, "ack_one": 3,
     "checkpoint": 1, "wait": 1, **_MACHINE},
    sizes=SMALL,
    loose=("q2",),
    properties=lambda acts: acts.kept(),
)  # fmt: skip
_load(
    "deep",
    {"q1": {}, "q2": {}},
    {"publish_one": 6, "publish_some": 14, "drain_some": 8, "purge": 0, "checkpoint": 2,
     **_CONSUMING, **_MACHINE},
    sizes=SMALL,
    limits=Sizes(2500, 7000, 8, window_bytes=800),
)  # fmt: skip
_load(
    "deep-purges",
    {"q1": {}, "q2": {}},
    {"publish_some": 14, "drain_some": 5, "purge": 2, "lose_consumer": 2, "checkpoint": 3,
     **_CONSUMING, **_MACHINE},
    sizes=SMALL,
    limits=Sizes(2500, 5000, 4, window_bytes=0),
)  # fmt: skip
_load(
    "deep-letters",
    {
        "q1": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
        "q2": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
               "x-max-length": 20, "x-message-ttl": 600},
        "dead": {},
    },
    {"publish_some": 10, "reject": 8, "wait": 3, "drain_some": 4, "checkpoint": 2, **_CONSUMING,
     **_MACHINE},
    sizes=SMALL,
    lettered=("q1", "q2"),
    drains=False,
    targets=("q1", "q2"),
    limits=Sizes(2500, 7000, 8, window_bytes=0, page_bytes=1000),
    properties=lambda acts: acts.some_expiry(),
)  # fmt: skip
_load(
    "deep-limits",
    {
        "q1": {"x-max-length": 30},
        "q2": {"x-max-length-bytes": 1500, "x-overflow": "reject-publish"},
        "q3": {"x-message-ttl": 2000},
    },
    {"publish_some": 16, "policy": 3, "drain_some": 3, "wait": 3, "purge": 1, "checkpoint": 2,
     **_CONSUMING, **_MACHINE},
    sizes=SMALL,
    loose=("q1", "q2", "q3"),
    drains=False,
    limits=Sizes(2500, 7000, 8, window_bytes=500, page_bytes=500),
)  # fmt: skip
_load(
    "deep-tx",
    {"q1": {}, "q2": {}, "q3": {"x-max-priority": 3}},
    {"publish_some": 6, "transaction": 12, "requeue": 4, "drain_some": 3, "checkpoint": 2,
     **_CONSUMING, **_MACHINE},
    sizes=(3, 40, 300, 600),
    limits=Sizes(2500, 7000, 8, window_bytes=0, page_bytes=200),
    properties=lambda acts: acts.some_priority(),
)  # fmt: skip
_load(
    "deep-streams",
    {
        "s1": _STREAM,
        "s2": {**_STREAM, "x-max-length-bytes": 3000, "x-stream-max-segment-size-bytes": 900},
        "s3": {**_STREAM, "x-max-age": "2s"},
    },
    {"publish_one": 8, "publish_some": 12, "consume": 5, "ack_most": 8, "checkpoint": 2, "wait": 4,
     **_MACHINE},
    sizes=(3, 40, 40, 300),
    loose=("s1", "s2", "s3"),
    limits=Sizes(2500, 7000, 8, page_bytes=200),
)  # fmt: skip
_load(
    "priorities",
    {"q1": {"x-max-priority": 5}, "q2": {"x-max-priority": 2}},
    {"publish_one": 12, "publish_some": 3, "checkpoint": 2, "purge": 1, **_CONSUMING, **_MACHINE},
    properties=lambda acts: acts.some_priority(),
)
_load(
    "delays",
    {"q1": {}, "q2": {}},
    {"publish_wide": 20, "wait": 8, "checkpoint": 2, **_CONSUMING, **_MACHINE},
    sizes=SMALL,
    exchanges={"later": ("x-delayed-message", {"x-delayed-type": "direct"})},
    bindings=(("later", "a", "q1"), ("later", "b", "q2")),
    drains=False,
    properties=lambda acts: acts.some_delay(),
)
_load(
    "publishers",
    {"q1": {}, "q2": {"x-queue-type": "quorum"}},
    {"publish_one": 10, "publish_some": 4, "publish_again": 12, "publish_wide": 5,
     "transaction": 3, "drain_some": 2, "checkpoint": 3, **_CONSUMING, **_MACHINE},
    sizes=SMALL,
    loose=("q2",),
    exchanges={"fan": ("fanout", {})},
    bindings=(("fan", "", "q1"), ("fan", "", "q2")),
    limits=Sizes(2500, 5000, 5, window_bytes=600),
    properties=lambda acts: acts.some_number(),
)  # fmt: skip
_load(
    "stream-publishers",
    {"s1": _STREAM, "s2": {**_STREAM, "x-max-length-bytes": 4000}},
    {"publish_one": 14, "publish_some": 4, "publish_again": 12, "publish_wide": 4, "consume": 2,
     "ack_most": 3, "checkpoint": 3, **_MACHINE},
    sizes=SMALL,
    loose=("s1", "s2"),
    exchanges={"fan": ("fanout", {})},
    bindings=(("fan", "", "s1"), ("fan", "", "s2")),
    limits=Sizes(2500, 5000, 5),
    properties=lambda acts: acts.some_number(),
)  # fmt: skip
_load(
    "batches",
    {"q1": {}, "q2": {}},
    {"stage_some": 14, "commit": 9, "abandon": 1, "publish_one": 3, "drain_some": 2,
     "checkpoint": 2, **_CONSUMING, **_MACHINE},
    sizes=SMALL,
    drains=False,
    exchanges={"both": ("fanout", {})},
    bindings=(("both", "", "q1"), ("both", "", "q2")),
    limits=Sizes(2500, 6000, 6),
    actor=BatchActs,
)  # fmt: skip
_load(
    "deep-batches",
    {"q1": {}, "q2": {}},
    {"stage_some": 14, "commit": 8, "abandon": 1, "drain_some": 4, "checkpoint": 3,
     **_CONSUMING, **_MACHINE},
    sizes=SMALL,
    drains=False,
    exchanges={"both": ("fanout", {})},
    bindings=(("both", "", "q1"), ("both", "", "q2")),
    limits=Sizes(2500, 6000, 6, window_bytes=300),
    actor=BatchActs,
)  # fmt: skip
