"""Definitions of very many entities go out and come in slice by slice, while others change them."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.definitions.exports import definition_rows, sections_of, vhost_head
from leveret.broker.definitions.imports import import_definitions
from leveret.errors import NotFound
from leveret.management.definitions import DefinitionsWriter
from leveret.names import Name
from leveret.store.disks.recording import RecordingDisk
from leveret.wire.buffer import COMPILED
from support.costs.work_account import Account, stop
from support.node.core import Node, Peer
from support.node.exporting import export_definitions, export_vhost
from support.node.importing import Import
from support.wire.raw_codec import method

#: Rows that are taken at once.
ROWS = 100

#: Queues that are many slices.
MANY = 40 * ROWS


@pytest.fixture
def node() -> Node:
    return Node()


def fill(node: Node, count: int = MANY) -> Peer:
    """A peer on a broker with many durable queues that are bound."""
    peer = node.connect()
    for number in range(count):
        name = f"q{number}"
        peer.connection.receive(
            method(1, "queue.declare", queue=name, durable=True, no_wait=True)
            + method(1, "queue.bind", queue=name, exchange="amq.fanout", no_wait=True),
            node.now(),
        )
        if number % ROWS == 0:
            node.run()
    node.sync()
    return peer


def test_an_export_takes_some_rows_at_a_time(node: Node) -> None:
    fill(node)
    most = total = 0
    for section in sections_of(None):
        rows = definition_rows(node.broker, None, section)
        more = True
        while more:
            with Account(1 << 40) as account:
                more = bool(list(islice(rows, ROWS)))
            stop()
            most = max(most, account.lines)
            total += account.lines
    if not COMPILED:
        # Each has its share: none gathers them all.  Compiled code runs no lines to be counted.
        assert total > MANY
        assert most < 80 * ROWS


def test_an_export_while_others_change_what_it_is_of(node: Node) -> None:
    """What goes is not in it, what comes may be; it can be imported all the same."""
    peer = fill(node, 4 * ROWS)
    node.broker.add_vhost("gone")
    writer = DefinitionsWriter("3", {})
    data = b""
    for number, section in enumerate(sections_of(None)):
        rows = definition_rows(node.broker, None, section)
        while taken := list(islice(rows, ROWS)):
            data += writer.rows(section, taken)
            if section in ("queues", "bindings"):
                peer.send(
                    method(1, "queue.delete", queue=f"q{4 * ROWS - 1 - number}", no_wait=True),
                    method(1, "queue.declare", queue=f"new{number}", durable=True, no_wait=True),
                    method(
                        1, "queue.bind", queue=f"new{number}", exchange="amq.fanout", no_wait=True
                    ),
                )
                if "gone" in node.broker.vhosts:
                    node.broker.delete_vhost("gone")
        data += writer.rows(section, [])
    data += writer.end()
    found = json.loads(data)
    names = [queue["name"] for queue in found["queues"]]
    assert len(names) == len(set(names))
    assert 4 * ROWS - 2 <= len(names) <= 4 * ROWS
    other = Node()
    report = import_definitions(other.broker, found, b"salt")
    assert report.changed["queues"] == len(names)
    # Bindings of queues that came later are left out, and named.
    assert all("no queue 'new" in note for note in report.notes)


def test_a_file_of_nothing_and_of_one_vhost(node: Node) -> None:
    writer = DefinitionsWriter("3", vhost_head(node.broker, "/"))
    sections = sections_of("/")
    data = b"".join(writer.rows(section, []) for section in sections) + writer.end()
    found = json.loads(data)
    assert found["original_vhost_name"] == "/"
    assert [found[section] for section in sections] == [[]] * len(sections)
    with pytest.raises(NotFound):
        vhost_head(node.broker, "other")


# -- imports ---------------------------------------------------------------------------------------


def definitions(count: int) -> dict[str, object]:
    """A vhost with so many queues, bound to an exchange."""
    queues = [
        {"name": f"q{number}", "vhost": "v", "durable": True, "arguments": {}}
        for number in range(count)
    ]
    bindings = [
        {
            "source": "e", "vhost": "v", "destination": f"q{number}",
            "destination_type": "queue", "routing_key": "k", "arguments": {},
        }
        for number in range(count)
    ]  # fmt: skip
    return {
        "vhosts": [{"name": "v"}],
        "queues": queues,
        "exchanges": [{"name": "e", "vhost": "v", "type": "topic", "arguments": {}}],
        "bindings": bindings,
    }


#: Entries of each kind that take several slices to be applied.
ENTRIES = 500


def definitions_of_v(node: Node) -> object:
    """What is exported of the vhost that is imported."""
    return export_vhost(node.broker, "v")


def turns(node: Node, importing: Import) -> int:
    """Have the core do turns until the import is over; return how many."""
    count = 0
    while not importing.over:
        node.settle()
        count += 1
    return count


def test_an_import_takes_turns(node: Node) -> None:
    wanted = definitions(ENTRIES)
    peer = node.connect()
    importing = Import(node.broker, wanted)
    peer.receive(method(1, "queue.declare", queue="between"))
    assert not importing.over
    assert "between" in node.vhost.queues.by_name
    assert turns(node, importing) >= 3
    assert importing.error is None
    peer.send(method(1, "queue.delete", queue="between"))
    node.sync()
    assert importing.report.changed == {
        "vhosts": 1, "queues": ENTRIES, "exchanges": 1, "bindings": ENTRIES,
    }  # fmt: skip
    at_once = Node()
    import_definitions(at_once.broker, wanted, b"salt")
    assert definitions_of_v(node) == definitions_of_v(at_once)
    again = Node(RecordingDisk(node.image()))
    assert definitions_of_v(again) == definitions_of_v(node)


def test_an_import_that_is_refused_changes_nothing_however_late(node: Node) -> None:
    wanted = definitions(ENTRIES)
    bindings = wanted["bindings"]
    assert isinstance(bindings, list)
    bindings.append({**bindings[0], "destination_type": "nothing"})
    before = export_definitions(node.broker)
    importing = Import(node.broker, wanted)
    assert turns(node, importing) >= 3
    assert importing.error is not None
    assert importing.error.text.startswith(f"bindings[{ENTRIES}] 'e': destination_type")
    assert export_definitions(node.broker) == before


def applied(node: Node, importing: Import) -> None:
    """Have turns until some queues are there, and not all."""
    while "v" not in node.broker.vhosts or len(node.broker.vhost("v").queues.by_name) < 10:
        assert not importing.over
        node.settle()
    assert len(node.broker.vhost("v").queues.by_name) < ENTRIES


def test_what_others_change_meanwhile_is_left_out(node: Node) -> None:
    importing = Import(node.broker, definitions(ENTRIES))
    applied(node, importing)
    vhost = node.broker.vhost("v")
    name = f"q{ENTRIES - 1}"
    vhost.queues.declare(None, Name(name), QueueAttributes(True, arguments={"x-max-length": 1}))
    vhost.queues.delete(None, Name("q0"), False, False)
    turns(node, importing)
    assert importing.error is None
    assert importing.report.changed["queues"] == ENTRIES - 1
    assert importing.report.changed["bindings"] == ENTRIES - 1
    assert len(importing.report.notes) == 2
    assert f"queue '{name}' in vhost 'v' already exists and differs" in importing.report.notes[0]
    assert "no queue 'q0' in vhost 'v'" in importing.report.notes[1]


def test_a_vhost_that_is_deleted_meanwhile_is_left_out(node: Node) -> None:
    importing = Import(node.broker, definitions(ENTRIES))
    applied(node, importing)
    count = len(node.broker.vhost("v").queues.by_name)
    node.broker.delete_vhost("v")
    turns(node, importing)
    node.run()
    assert importing.error is None
    assert "v" not in node.broker.vhosts
    assert importing.report.changed["queues"] == count
    assert all("vhost 'v' does not exist" in note for note in importing.report.notes)
    node.sync()
    assert "v" not in Node(RecordingDisk(node.image())).broker.vhosts


def test_after_a_crash_the_same_import_completes_it(node: Node) -> None:
    wanted = definitions(ENTRIES)
    importing = Import(node.broker, wanted)
    applied(node, importing)
    count = len(node.broker.vhost("v").queues.by_name)
    group = node.journal.seal()
    assert group is not None
    node.files.write(group)
    again = Node(RecordingDisk(node.image()))
    # The first slices are there, whole.
    assert list(again.broker.vhost("v").queues.by_name) == [f"q{n}" for n in range(count)]
    report = import_definitions(again.broker, wanted, b"salt")
    assert report.changed["queues"] == ENTRIES - count
    turns(node, importing)
    assert export_definitions(again.broker) == export_definitions(node.broker)


def test_a_small_import_is_one_record(node: Node) -> None:
    """So after a crash all of it is there, or nothing."""
    importing = Import(node.broker, definitions(20))
    turns(node, importing)
    assert importing.over
    group = node.journal.seal()
    assert group is not None
    assert group.records == 1
