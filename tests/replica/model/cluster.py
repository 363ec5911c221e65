"""A cluster: nodes, the registry and the network between them.

Everything that happens is an `Event`, one atomic step of one node, of the registry or of the world.
There is no clock: any node may stand for election at any time, and a node that takes no step is a
paused one.  The network loses, delays, reorders and doubles messages, and what was sent to one
process of a node may reach the next.

Two defences of the protocol are left out, so that the model shows that the others suffice: a node
need not read the registry when it starts, and need not compare its log with those of others or with
a position in the registry when it stands for election.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from replica.model.copying import copied
from replica.model.faults import Fault
from replica.model.leader import Leader
from replica.model.messages import Ack, Append, Hello, Message, State, Transaction
from replica.model.node import Node
from replica.model.promises import Witness
from replica.model.registry import Registry


class Event(NamedTuple):
    """Something that happens to a node, or to the message at a place in the network."""

    kind: str
    at: int
    other: int = -1
    third: int = -1


OF_MESSAGES = ("deliver", "double", "lose")
OF_NODES = ("sync", "stand", "resume")
OF_OPERATORS = ("rewrite",)
OF_LEADERS = (
    "write", "hello", "append", "start-over", "commit", "checkpoint",
    "shrink", "grow", "replace", "settle",
)  # fmt: skip
CRASHES = ("kill", "power", "disk")
KINDS = (*OF_MESSAGES, *OF_OPERATORS, *OF_NODES, *OF_LEADERS, *CRASHES)


class Bounds(NamedTuple):
    """How much may happen, so that a search ends."""

    groups: int = 5  # of a log
    epochs: int = 5
    crashes: int = 3
    disks: int = 1
    changes: int = 5  # of the registry, apart from elections
    messages: int = 7  # under way


@dataclass(frozen=True, slots=True)
class Setting:
    """A cluster's size, the minimum of its in-sync set, its first members, and a planted fault."""

    nodes: int = 3
    minimum: int = 2
    first_members: int = 3
    fault: Fault | None = None


class Cluster:
    """The state of everything.

    It begins as node 0 leads the first epoch, with an in-sync set of the first nodes.
    """

    def __init__(self, setting: Setting, bounds: Bounds) -> None:
        self.setting = setting
        self.bounds = bounds
        self.nodes = [
            Node(number, setting.minimum, setting.fault, incarnation=number)
            for number in range(setting.nodes)
        ]
        first = frozenset(node.member for node in self.nodes[: setting.first_members])
        self.registry = Registry(State(1, 1, 0, first), setting.fault)
        self.network: list[Message] = []
        self.witness = Witness(setting.minimum)
        self.contents = self.crashes = self.disks = self.changes = 0
        self.nodes[0].lead(self.registry.state, self._content)

    def after(self, event: Event) -> Cluster:
        """Return the cluster after an event; this one stays as it is.

        Raises: Violation.
        """
        copy = copied(self)
        number = self._concerned(event)
        copy.nodes = list(self.nodes)
        copy.nodes[number] = self.nodes[number].copy()
        copy.registry = copied(self.registry)
        copy.network = list(self.network)
        copy.witness = self.witness.copy()
        copy.step(event)
        return copy

    def step(self, event: Event) -> None:
        """Let an event happen, which must be possible.

        Raises: Violation.
        """
        kind = event.kind
        node = self.nodes[self._concerned(event)]
        if kind in OF_MESSAGES:
            self._pass_on(node, event)
        elif kind in OF_OPERATORS:
            self.changes += 1
            self.registry.rewrite()
        elif kind in CRASHES:
            self._crash(node, event)
        elif kind in OF_NODES:
            self._act(node, kind)
        else:
            assert node.leader is not None, f"{kind} is of a leader"
            self._lead(node, node.leader, event)
        self.witness.look(self.nodes, self.registry.state, node)

    def _concerned(self, event: Event) -> int:
        """Return the only node that an event changes, or whose transaction it is."""
        if event.kind not in OF_MESSAGES:
            return event.at
        message = self.network[event.at]
        return message.sender if isinstance(message, Transaction) else message.to

    def _content(self) -> int:
        """Return a content that no other group has."""
        self.contents += 1
        return self.contents

    # -- the network -------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Return whether nodes may send more."""
        return len(self.network) < self.bounds.messages

    def _send(self, messages: Iterable[Message]) -> None:
        """Put messages into the network, where equal ones are one: any may arrive twice."""
        for message in messages:
            if message not in self.network:
                self.network.append(message)

    def _pass_on(self, node: Node, event: Event) -> None:
        """Deliver a message, deliver it and keep it, or lose it."""
        message = self.network[event.at]
        if event.kind != "double":
            del self.network[event.at]
        if event.kind == "lose":
            return
        if isinstance(message, Transaction):
            self._send([self.registry.transact(message)])
        elif isinstance(message, Ack):
            if node.leader is not None:
                node.leader.acknowledged(message)
        elif isinstance(message, Append):
            self._send(node.appended(message))
        elif isinstance(message, Hello):
            self._send(node.greeted(message))
        else:
            node.answered(message, self._content)

    # -- nodes -------------------------------------------------------------------------------------

    def _act(self, node: Node, kind: str) -> None:
        if kind == "sync":
            self._send(node.sync())
        elif kind == "stand":
            self._send([node.stand(self.registry.state)])
        else:
            node.resume(self.registry.state)

    def _lead(self, node: Node, leader: Leader, event: Event) -> None:
        kind, other = event.kind, event.other
        if kind == "write":
            node.write(self._content())
        elif kind == "commit":
            leader.committed = leader.reach(node.log, node.synced)
        elif kind == "checkpoint":
            node.checkpoint = leader.checkpoint_end(node.synced)
        elif kind == "append":
            self._send([leader.append(node.log, other, node.checkpoint)])
        elif kind in {"hello", "start-over"}:
            self._send([leader.hello(node.log, other, starts_over=kind == "start-over")])
        else:
            self.changes += 1
            if kind == "settle":
                self._send(node.settle(self.registry.state))
            elif kind == "shrink":
                self._send([leader.shrink(node.token(), other)])
            else:
                self._send([leader.grow(node.token(), other, event.third)])

    def _crash(self, node: Node, event: Event) -> None:
        self.crashes += 1
        if event.kind == "kill":
            node.kill()
        elif event.kind == "power":
            node.lose_power(event.other)
        else:
            self.disks += 1
            node.lose_disk(event.other, len(self.nodes) - 1 + self.disks)
