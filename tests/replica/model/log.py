"""A node's log: groups, the epochs that they were written in, and where two logs part."""

from __future__ import annotations

from typing import NamedTuple


class Group(NamedTuple):
    """A group of records: the epoch that its leader wrote it in, and its content, by a number.

    The number of a group is its place in the log, from 1.
    """

    epoch: int
    content: int


class Start(NamedTuple):
    """Where an epoch begins in a log."""

    epoch: int
    first: int


Log = tuple[Group, ...]
History = tuple[Start, ...]


def history_of(log: Log) -> History:
    """Return the epochs of a log, each with the number of its first group."""
    starts: list[Start] = []
    for number, group in enumerate(log, 1):
        if not starts or starts[-1].epoch != group.epoch:
            starts.append(Start(group.epoch, number))
    return tuple(starts)


def last_common(log: Log, leader: History) -> int:
    """Return the number of the last group that a log shares with a leader's; 0 if there is none.

    The last epoch of the leader's history is its own, in which it may have written more since it
    sent the history.  Whatever a log has of that epoch is the leader's.
    """
    own = history_of(log)
    common = 0
    for place, (mine, theirs) in enumerate(zip(own, leader, strict=False)):
        if mine != theirs:
            break
        common = own[place + 1].first - 1 if place + 1 < len(own) else len(log)
        if place + 1 < len(leader):
            common = min(common, leader[place + 1].first - 1)
    return common
