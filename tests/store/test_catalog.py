"""Definitions by what identifies them: the last one counts, deletes take along what is owned."""

from __future__ import annotations

import re
from pathlib import Path

from leveret.store.records.catalog import IDENTITY, PASSING, Catalog

SOURCE = Path(__file__).parents[2] / "src" / "leveret"


def kinds(catalog: Catalog) -> list[str]:
    return [kind for kind, _ in catalog.others_than()]


def filled() -> Catalog:
    catalog = Catalog()
    for kind, definition in (
        ("vhost", {"name": "v"}),
        ("user", {"name": "ann"}),
        ("permission", {"user": "ann", "vhost": "v", "read": ".*"}),
        ("user_limits", {"user": "ann", "limits": {}}),
        ("policy", {"vhost": "v", "name": "p"}),
        ("exchange", {"vhost": "v", "name": "x"}),
        ("exchange", {"vhost": "v", "name": "y"}),
        ("queue", {"vhost": "v", "name": "q", "id": 7}),
        ("redelivered", {"id": 7, "below": 3}),
        ("deduplication", {"id": 7, "header": "h", "keys": b"1"}),
        ("deduplication", {"id": 7, "header": "h", "keys": b"2"}),
    ):
        catalog.define(kind, dict(definition))
    for source, to, destination in (("x", "queue", "q"), ("x", "exchange", "y")):
        catalog.define(
            "binding",
            {
                "vhost": "v",
                "source": source,
                "destination_type": to,
                "destination": destination,
                "routing_key": "k",
                "arguments": {},
            },
        )
    return catalog


def test_what_is_told_last_counts() -> None:
    catalog = filled()
    before = len(catalog)
    catalog.define("policy", {"vhost": "v", "name": "p", "priority": 2})
    catalog.define("permission", {"user": "ann", "vhost": "v", "read": ""})
    assert len(catalog) == before
    assert next(catalog.all_of("policy"))[1]["priority"] == 2


def test_a_queue_goes_with_its_bindings_and_all_that_has_its_id() -> None:
    catalog = filled()
    catalog.delete("queue", {"id": 7, "vhost": "v", "name": "q"})
    left = kinds(catalog)
    assert "queue" not in left
    assert "redelivered" not in left
    assert "deduplication" not in left
    assert left.count("binding") == 1


def test_an_exchange_goes_with_the_bindings_at_both_its_ends() -> None:
    for name, left in (("x", 0), ("y", 1)):
        catalog = filled()
        catalog.delete("exchange", {"vhost": "v", "name": name})
        assert kinds(catalog).count("binding") == left


def test_a_user_goes_with_permissions_and_limits() -> None:
    catalog = filled()
    catalog.delete("user", {"name": "ann"})
    assert not {"user", "permission", "user_limits"} & set(kinds(catalog))


def test_a_vhost_goes_with_everything_in_it() -> None:
    catalog = filled()
    catalog.delete("vhost", {"name": "v"})
    assert set(kinds(catalog)) <= {"user", "user_limits", "redelivered", "deduplication"}


def test_every_decision_of_a_sink_is_kept_until_the_sink_is_forgotten() -> None:
    catalog = filled()
    for name, batch in (("s", 1), ("s", 2), ("s", 0), ("t", 9), ("s", 1)):
        catalog.define("sink", {"vhost": "v", "name": name, "batch": batch, "queues": [batch]})
    # What was told last is a sink's highest: it may have begun anew.
    assert [found["batch"] for _, found in catalog.all_of("sink")] == [2, 0, 9, 1]
    catalog.delete("sink", {"vhost": "v", "name": "s"})
    assert [found["name"] for _, found in catalog.all_of("sink")] == ["t"]
    catalog.delete("vhost", {"name": "v"})
    assert not list(catalog.all_of("sink"))


def test_of_an_unknown_kind_everything_is_kept() -> None:
    catalog = Catalog()
    for _ in range(2):
        catalog.define("later", {"name": "a"})
        catalog.define(PASSING[0], {"version": "1"})
    assert kinds(catalog) == ["later", "later"]


def test_every_kind_that_the_broker_deletes_is_known() -> None:
    text = "\n".join(path.read_text() for path in (SOURCE / "broker").rglob("*.py"))
    deleted = set(re.findall(r'journal\.delete\(\s*"(\w+)"', text))
    defined = set(re.findall(r'(?:journal|out)\.define\(\s*"(\w+)"', text))
    assert len(deleted) > 8
    assert deleted <= set(IDENTITY)
    assert defined - set(IDENTITY) - set(PASSING) == {"deduplication"}
