"""The faults that can be planted in the protocol.

A rule of the protocol is worth its cost only if its absence does harm.  So each fault here leaves
out one rule, and `tests/replica/test_faults.py` shows what is then lost, and how.
"""

from __future__ import annotations

from enum import Enum


class Fault(Enum):
    """A rule that is left out: its name, and what the broken protocol does."""

    ACK_BEFORE_SYNC = "a follower acknowledges groups that it has not synced"
    RESTART_WITHOUT_SYNC = "a follower that was killed acknowledges what is in the page cache only"
    ACK_OF_OLDER_SESSION = "the leader counts an ack of an earlier session of its epoch"
    ACK_OF_OLDER_EPOCH = "the leader counts an ack of an epoch in which it led before"

    COMMIT_BEFORE_OWN_SYNC = "the leader commits groups that it has not synced itself"
    COMMIT_BELOW_MINIMUM = "the leader commits though the in-sync set has too few members"
    LEADER_SHOWS_SYNCED = "the leader shows its readers all that it has synced"
    LEADER_SHOWS_RECOVERED = "a new leader shows its log before its first group is committed"
    FOLLOWER_SHOWS_LOG = "a follower shows its readers all that it has"

    CHECKPOINT_OF_WRITTEN = "a checkpoint ends with groups that are not committed"
    CHECKPOINT_BEFORE_FIRST_COMMIT = (
        "a checkpoint ends before the leader's first group is committed"
    )

    SHRINK_BEFORE_TRANSACTION = "commits stop waiting for a member before the registry removed it"
    SHRINK_BELOW_MINIMUM = "the in-sync set shrinks below its minimum"
    GROW_AFTER_TRANSACTION = "commits wait for a new member only after the registry's answer"
    GROW_WITHOUT_ACKS = "a follower joins the in-sync set whatever it has acknowledged"
    GROW_BEFORE_FIRST_GROUP = "a follower joins without the first group of the leader's epoch"
    GROW_AFTER_FIRST_COMMIT = "nobody may join before the leader's first group is committed"

    SETTLED_BY_READ = "an unclear transaction is given up because a read does not show it"
    ANSWER_OF_ANOTHER = "the answer to one transaction is taken for that to a later one"
    REFUSAL_BELIEVED = "a refused transaction counts as failed, though it was sent twice"
    BLIND_PUT = "a transaction is a put without a comparison"

    NO_CUT = "a follower keeps the groups that its leader does not have"
    CUT_BY_NUMBER = "a follower finds its last common group by the number alone, without epochs"
    CUT_TO_KNOWN_COMMITTED = "a start cuts the log to the last group known to be committed"
    CUT_AT_OPEN_END = "a hello cuts to the end that the leader's own epoch had when it was sent"

    LEADER_OUTSIDE_SET = "a node that is no member of the in-sync set stands for election"
    SAME_EPOCH_AFTER_RESTART = "a leader that restarts goes on in its epoch"
    OLD_EPOCH_WRITTEN = "a new leader writes groups of the epoch of its last group"
    LOWER_EPOCH_OBEYED = "a follower obeys a leader of a lower epoch than it obeyed before"
    EPOCH_FORGOTTEN = "a node forgets in a crash which epoch it won or obeyed"
    EPOCH_OF_BACKUP_IGNORED = "a restored directory obeys leaders of lower epochs than its log has"
    LATE_ELECTION_COUNTS = "a node leads by a late answer though it has obeyed a higher epoch"
    HELLO_OF_OLDER_SESSION = "a follower obeys the hello of an earlier session of the epoch"

    INCARNATION_KEPT = "a new, restored or damaged directory keeps its incarnation"
    MEMBERSHIP_BY_NODE = "members and acks are told apart by node, not by incarnation"
    ACKS_OF_EARLIER_DIRECTORY = "acks of a lost directory count for the one that replaces it"
    START_OVER_OF_MEMBER = "a leader has a member of the in-sync set start over"
    START_OVER_OF_EARLIER_PROCESS = "a follower starts over by an order to the process before it"

    @property
    def stops(self) -> bool:
        """Return whether the fault loses nothing, but stops the cluster for ever."""
        return self is Fault.GROW_AFTER_FIRST_COMMIT

    @property
    def title(self) -> str:
        """Return the name as commands and recorded schedules write it: `ack-before-sync`."""
        return self.name.lower().replace("_", "-")


def fault_of(title: str) -> Fault:
    """Return the fault with a title; raise `KeyError` if there is none."""
    return Fault[title.upper().replace("-", "_")]
