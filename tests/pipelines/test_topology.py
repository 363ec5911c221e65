"""Topologies out of definitions files: of a broker, of a vhost, Leveret's and RabbitMQ's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leveret.pipelines.route.topology import RecordedBinding, TopologyError, read_topology

Rows = list[dict[str, object]]


def definitions(**sections: Rows) -> dict[str, object]:
    return {"queues": [], "exchanges": [], "bindings": [], **sections}


def test_a_file_of_the_whole_broker_needs_a_vhost_where_there_are_several(tmp_path: Path) -> None:
    queues: Rows = [{"vhost": "/", "name": "a"}, {"vhost": "shop", "name": "b"}]
    path = tmp_path / "definitions.json"
    path.write_text(json.dumps(definitions(queues=queues)))
    with pytest.raises(TopologyError, match="name a vhost, of these: /, shop"):
        read_topology(path)
    assert read_topology(path, "shop").queues == ("b",)
    assert read_topology(path, "/").name == str(path)
    with pytest.raises(TopologyError, match="there is no vhost 'none'"):
        read_topology(path, "none")


def test_a_file_of_one_vhost_names_none() -> None:
    held = definitions(
        queues=[{"name": "a"}], bindings=[{"source": "amq.topic", "destination": "a"}]
    )
    topology = read_topology({**held, "original_vhost_name": "shop"})
    assert (topology.vhost, topology.queues) == ("shop", ("a",))
    assert topology.bindings == (RecordedBinding("amq.topic", "a", True, ""),)
    assert {name: e.kind for name, e in topology.exchanges.items()} == {
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.topic": "topic",
        "amq.headers": "headers",
        "amq.match": "headers",
    }


def test_what_rabbitmq_writes_is_read() -> None:
    """Empty tables as lists, bindings whose queue ended with its connection, delayed exchanges."""
    topology = read_topology(
        definitions(
            queues=[{"vhost": "/", "name": "a", "arguments": []}],
            exchanges=[
                {
                    "vhost": "/",
                    "name": "later",
                    "type": "x-delayed-message",
                    "arguments": {"x-delayed-type": "topic"},
                }
            ],
            bindings=[
                {"vhost": "/", "source": "later", "destination": "a", "arguments": []},
                {"vhost": "/", "source": "later", "destination": "amq.gen-1", "arguments": []},
            ],
        )
    )
    assert topology.exchanges["later"].kind == "topic"
    assert len(topology.bindings) == 1


def test_the_policy_that_counts_names_the_alternate_exchange() -> None:
    def policy(name: str, priority: int, alternate: str | None) -> dict[str, object]:
        definition = {"max-length": 1} if alternate is None else {"alternate-exchange": alternate}
        return {
            "vhost": "/",
            "name": name,
            "pattern": "^in",
            "priority": priority,
            "apply-to": "exchanges",
            "definition": definition,
        }

    exchanges: Rows = [
        {"vhost": "/", "name": "in.a", "type": "topic"},
        {"vhost": "/", "name": "in.b", "type": "topic", "arguments": {"alternate-exchange": "own"}},
        {"vhost": "/", "name": "out", "type": "topic"},
    ]

    def alternates(*policies: dict[str, object]) -> list[str]:
        held = definitions(exchanges=exchanges, policies=list(policies))
        read = read_topology(held).exchanges
        return [read[name].alternate for name in ("in.a", "in.b", "out")]

    assert alternates(policy("p", 0, "x"), policy("q", 1, "y")) == ["y", "own", ""]
    assert alternates(policy("q", 0, "x"), policy("p", 0, "y")) == ["y", "own", ""]
    # One that says nothing of it still is the one that counts.
    assert alternates(policy("p", 9, None), policy("q", 1, "y")) == ["", "own", ""]
    with pytest.raises(TopologyError, match=r"policies\[0\]: the pattern '\(': "):
        alternates({**policy("p", 0, "x"), "pattern": "("})


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ({}, "there are no queues, exchanges or bindings in it"),
        ({"queues": {}}, "queues should be a list"),
        ({"queues": [1]}, r"queues\[0\] should be an object"),
        ({"queues": [{"name": 7}]}, r"queues\[0\]: name should be a text, not 7"),
        ({"exchanges": [{"name": "e"}]}, r"exchanges\[0\]: type should be a text"),
        ({"exchanges": [{"name": "e", "type": "topic", "internal": 1}]}, "internal should be true"),
        ({"bindings": [{"destination_type": "x"}]}, "destination_type should be queue or exchange"),
        ({"bindings": [{"source": "a", "destination": "b", "arguments": 3}]}, "arguments should"),
    ],
)
def test_what_is_no_topology_is_refused_with_its_place(held: dict[str, object], text: str) -> None:
    with pytest.raises(TopologyError, match=text):
        read_topology(held)


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match="No such file"):
        read_topology(tmp_path / "gone")
    (tmp_path / "text").write_text("{")
    with pytest.raises(TopologyError, match="this is not JSON"):
        read_topology(tmp_path / "text")
    (tmp_path / "list").write_text("[]")
    with pytest.raises(TopologyError, match="should be an object"):
        read_topology(tmp_path / "list")


def test_exchanges_that_dead_letters_reach_are_known() -> None:
    """By an argument, else by the policy in effect, and on over bindings and alternates."""
    exchanges: Rows = [{"name": name, "type": "fanout"} for name in ("own", "next", "x", "far")]
    exchanges[1]["arguments"] = {"alternate-exchange": "far"}
    dead: dict[str, object] = {"dead-letter-exchange": "amq.direct"}
    held = definitions(
        exchanges=exchanges,
        queues=[
            {"name": "a", "arguments": {"x-dead-letter-exchange": "own"}},
            {"name": "s", "arguments": {"x-queue-type": "quorum"}},
            {"name": "b", "arguments": {"x-dead-letter-exchange": "nowhere"}},
        ],
        bindings=[
            {"source": "own", "destination": "next", "destination_type": "exchange"},
            {"source": "next", "destination": "own", "destination_type": "exchange"},
            {"source": "x", "destination": "a"},
        ],
    )
    policy = {"name": "p", "pattern": "^(s|a)$", "apply-to": "quorum_queues", "definition": dead}
    assert read_topology(held).for_dead_letters == {"own", "next", "far"}
    found = read_topology({**held, "policies": [policy]})
    assert found.for_dead_letters == {"own", "next", "far", "amq.direct"}
    above = {"name": "q", "pattern": "", "priority": 1, "definition": {"max-length": 1}}
    found = read_topology({**held, "policies": [policy, above]})
    assert found.for_dead_letters == {"own", "next", "far"}
