"""Routing over exchanges: bindings between them, cycles, alternates.

Source: behaviours 36 (binding identity) and 37 (cycles and alternates).
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.core import Core
from leveret.broker.vhost.ids import Ids
from leveret.broker.vhost.vhost import Vhost
from leveret.names import Name
from leveret.store.journal.journal import Journal

NAMES = ["a", "b", "c", "d"]
QUEUES = ["q0", "q1", "q2"]
KEYS = ["", "k"]

Edges = set[tuple[str, str, str]]

EDGES = st.sets(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES + QUEUES), st.sampled_from(KEYS)),
    max_size=14,
)
KINDS = st.fixed_dictionaries({name: st.sampled_from(["fanout", "direct"]) for name in NAMES})
ALTERNATES = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([*NAMES, "missing"]))


def make(kinds: dict[str, str], alternates: dict[str, str]) -> Vhost:
    """A vhost with the exchanges and queues, no bindings."""
    vhost = Vhost(Core(Journal()), Ids(), "/")
    for name in NAMES:
        arguments: dict[str, object] = {}
        if name in alternates:
            arguments["alternate-exchange"] = alternates[name]
        vhost.exchanges.declare(Name(name), kinds[name], False, False, False, arguments)
    for name in QUEUES:
        vhost.queues.declare(None, Name(name), QueueAttributes())
    return vhost


def bind(vhost: Vhost, edge: tuple[str, str, str], *, unbind: bool = False) -> None:
    """Make or remove a binding."""
    source, destination, key = edge
    (vhost.exchanges.unbind if unbind else vhost.exchanges.bind)(
        Name(source), Name(destination), destination in QUEUES, key, {}, None
    )


def reached(
    start: str, key: str, edges: Edges, kinds: dict[str, str], alternates: dict[str, str]
) -> set[str]:
    """The queues and the exchanges that a message reaches, the plain way."""
    seen = {start}
    todo = [start]
    queues = set()
    while todo:
        name = todo.pop()
        matched = [
            destination
            for source, destination, binding_key in edges
            if source == name and (kinds[name] == "fanout" or binding_key == key)
        ]
        if not matched and alternates.get(name) in NAMES:
            matched = [alternates[name]]
        for destination in matched:
            if destination in QUEUES:
                queues.add(destination)
            elif destination not in seen:
                seen.add(destination)
                todo.append(destination)
    return queues | seen


def routed(vhost: Vhost, start: str, key: str) -> list[str]:
    """What the broker says."""
    routing = vhost.route(vhost.exchanges.existing(Name(start)), key, b"")
    exchanges = [exchange.name for exchange in routing.visited()]
    return sorted([target.name for target in routing.targets] + exchanges)


@given(kinds=KINDS, alternates=ALTERNATES, edges=EDGES, removed=EDGES, key=st.sampled_from(KEYS))
def test_any_graph(
    kinds: dict[str, str], alternates: dict[str, str], edges: Edges, removed: Edges, key: str
) -> None:
    """Cycles end; each queue and exchange is there once; an alternate is only for no match."""
    vhost = make(kinds, alternates)
    for edge in sorted(edges):
        bind(vhost, edge)
        bind(vhost, edge)
    for start in NAMES:
        assert routed(vhost, start, key) == sorted(reached(start, key, edges, kinds, alternates))
    for edge in sorted(removed):
        bind(vhost, edge, unbind=True)
    left = edges - removed
    for start in NAMES:
        assert routed(vhost, start, key) == sorted(reached(start, key, left, kinds, alternates))


@given(kinds=KINDS, edges=EDGES, gone=st.sampled_from(NAMES + QUEUES))
def test_a_deleted_end_takes_its_bindings_along(
    kinds: dict[str, str], edges: Edges, gone: str
) -> None:
    vhost = make(kinds, {})
    for edge in sorted(edges):
        bind(vhost, edge)
    if gone in QUEUES:
        vhost.queues.delete(None, Name(gone), False, False)
        vhost.queues.declare(None, Name(gone), QueueAttributes())
    else:
        vhost.exchanges.delete(Name(gone), False)
        vhost.exchanges.declare(Name(gone), kinds[gone], False, False, False, {})
    left = {edge for edge in edges if gone not in edge[:2]}
    for start in NAMES:
        assert routed(vhost, start, "k") == sorted(reached(start, "k", left, kinds, {}))
    sources = {source for source, _, _ in left}
    for name in NAMES:
        vhost_has = bool(vhost.exchanges.by_name[name].bindings)
        assert vhost_has == (name in sources)
