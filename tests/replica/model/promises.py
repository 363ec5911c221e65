"""What the protocol promises, looked at after every step.

The witness sees everything: all logs, what was confirmed, and what readers saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from replica.model.copying import copied
from replica.model.leader import Leader
from replica.model.log import Log
from replica.model.messages import State
from replica.model.node import Node


class Promise(Enum):
    """A promise, in the words of a user or an operator."""

    KEPT = "a confirmed group is synced on every member of the in-sync set that has its disk"
    CONFIRMED_ONCE = "a number is confirmed with one content only"
    SHOWN_ONCE = "a number is shown to readers with one content only"
    CHECKPOINT = "what a checkpoint holds is never cut off"
    COPIES = "what is confirmed is on an in-sync set that has the minimum of members, and stays so"
    ONE_LEADER = "one node at most confirms in an epoch"
    MEMBER_LEADS = "only a member of the in-sync set leads, with the incarnation that the set names"
    AWAITED = "a leader waits for every member that the registry names"
    RECOVERS = "when faults end, a cluster with a member that has its disk confirms again"


class Violation(Exception):
    """A promise is broken."""

    def __init__(self, promise: Promise, text: str) -> None:
        super().__init__(f"{promise.name}: {text}")
        self.promise = promise


@dataclass
class Witness:
    """Remembers what was confirmed and shown, as no node does."""

    minimum: int
    confirmed: Log = ()
    shown: Log = ()
    confirming: dict[int, int] = field(default_factory=dict)  # by epoch, the node
    complete: bool = False  # the in-sync set has had its minimum of members

    def copy(self) -> Witness:
        """Return a witness that remembers apart from this one."""
        copy = copied(self)
        copy.confirming = dict(self.confirming)
        return copy

    def look(self, nodes: Sequence[Node], state: State, acting: Node) -> None:
        """Compare all nodes and the registry's state with the promises after a step of one node.

        Raises: Violation.
        """
        if acting.leader is not None:
            self._confirm(acting, acting.leader, state)
        self._show(acting.log[: acting.visible()], acting)
        if acting.checkpoint > len(acting.log):
            raise Violation(
                Promise.CHECKPOINT,
                f"node {acting.number} has a checkpoint of {acting.checkpoint} groups, and is left "
                f"with {acting.log}",
            )
        self._count(state)
        for node in nodes:
            if node.leader is not None and node.leader.epoch == state.epoch:
                self._compare(node, node.leader, state)
        self._keep(nodes, state)

    def _confirm(self, node: Node, leader: Leader, state: State) -> None:
        groups = node.log[: leader.committed]
        if not groups:
            return
        if groups != self.confirmed[: len(groups)]:
            if groups[: len(self.confirmed)] != self.confirmed:
                raise Violation(
                    Promise.CONFIRMED_ONCE,
                    f"node {node.number} confirms {groups} after {self.confirmed}",
                )
            self.confirmed = groups
            if len(state.in_sync) < self.minimum:
                raise Violation(
                    Promise.COPIES,
                    f"node {node.number} confirms group {len(groups)} on {_names(state)}",
                )
        if self.confirming.setdefault(leader.epoch, node.number) != node.number:
            raise Violation(
                Promise.ONE_LEADER,
                f"nodes {self.confirming[leader.epoch]} and {node.number} confirm in epoch "
                f"{leader.epoch}",
            )

    def _show(self, groups: Log, node: Node) -> None:
        if groups == self.shown[: len(groups)]:
            return
        if groups[: len(self.shown)] != self.shown:
            raise Violation(
                Promise.SHOWN_ONCE, f"node {node.number} shows {groups} after {self.shown}"
            )
        self.shown = groups

    def _count(self, state: State) -> None:
        if len(state.in_sync) >= self.minimum:
            self.complete = True
        elif self.complete:
            raise Violation(Promise.COPIES, f"the in-sync set is {_names(state)}")

    def _compare(self, node: Node, leader: Leader, state: State) -> None:
        if node.member not in state.in_sync:
            raise Violation(
                Promise.MEMBER_LEADS, f"node {node.number} leads, and the set is {_names(state)}"
            )
        if not state.in_sync <= leader.required():
            raise Violation(
                Promise.AWAITED,
                f"leader {node.number} waits for "
                f"{_names(state._replace(in_sync=leader.required()))}, and the set is "
                f"{_names(state)}",
            )

    def _keep(self, nodes: Sequence[Node], state: State) -> None:
        count = len(self.confirmed)
        for number, incarnation in state.in_sync:
            node = nodes[number]
            if node.incarnation == incarnation and (
                node.synced < count or node.log[:count] != self.confirmed
            ):
                raise Violation(
                    Promise.KEPT,
                    f"member {number} has {node.synced} groups synced of {node.log}, and "
                    f"{self.confirmed} is confirmed",
                )


def _names(state: State) -> str:
    return ", ".join(f"{node}.{incarnation}" for node, incarnation in sorted(state.in_sync))
