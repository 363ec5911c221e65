"""The register with compare-and-set that decides who leads, and who must acknowledge.

It is one key of etcd, or the like: it is never lost and never goes back.  Requests to it and its
answers are messages, which may be late, lost or doubled.
"""

from __future__ import annotations

from dataclasses import dataclass

from replica.model.faults import Fault
from replica.model.messages import REGISTRY, Answer, State, Transaction


@dataclass
class Registry:
    """The key's state, which only a transaction on its present revision replaces."""

    state: State
    fault: Fault | None

    def rewrite(self) -> None:
        """Let an operator change what else the key holds, such as a format level."""
        self.state = self.state._replace(revision=self.state.revision + 1)

    def transact(self, transaction: Transaction) -> Answer:
        """Carry out a transaction, and return the answer to it."""
        current = self.state
        succeeds = transaction.compared == current.revision or self.fault is Fault.BLIND_PUT
        if succeeds:
            self.state = transaction.proposed._replace(revision=current.revision + 1)
        return Answer(REGISTRY, transaction.sender, transaction.token, succeeds, self.state)
