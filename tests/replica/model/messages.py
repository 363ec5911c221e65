"""What nodes and the registry send each other."""

from __future__ import annotations

from typing import Final, NamedTuple

from replica.model.log import Group, History

#: The registry's place among the nodes, as the receiver of transactions.
REGISTRY: Final = -1


class Member(NamedTuple):
    """A directory of a node; another one, or one that lost groups, has another incarnation."""

    node: int
    incarnation: int


class State(NamedTuple):
    """What the registry holds under its one key, with the revision of the key."""

    revision: int
    epoch: int
    leader: int
    in_sync: frozenset[Member]


class Hello(NamedTuple):
    """A leader opens a session: the follower cuts its log to what both have.

    `end` is how many groups the leader had: only faults go by it.  `starts_over` is the process of
    the follower that is to discard its whole log instead, or 0.
    """

    sender: int
    to: int
    epoch: int
    session: int
    history: History
    end: int
    starts_over: int


class Append(NamedTuple):
    """A leader sends a group, and which groups are committed and in its checkpoint."""

    sender: int
    to: int
    epoch: int
    session: int
    number: int
    group: Group
    committed: int
    checkpoint: int


class Ack(NamedTuple):
    """A follower has synced all groups up to a number."""

    sender: int
    to: int
    epoch: int
    session: int
    incarnation: int
    process: int
    number: int


class Transaction(NamedTuple):
    """A leader or candidate replaces the registry's state if its revision is still `compared`.

    `token` is its name among the transactions of its sender.
    """

    sender: int
    to: int
    token: int
    compared: int
    proposed: State


class Answer(NamedTuple):
    """The registry tells whether a transaction succeeded, and the state after it."""

    sender: int
    to: int
    token: int
    succeeded: bool
    state: State


Message = Hello | Append | Ack | Transaction | Answer
