"""What the parts of a virtual host share: its name, its revision, and what replies wait for.

The parts are its exchanges, queues, policies, metadata, delayed messages and reply addresses, each
in a module of its own; `vhost.py` puts them together.

Invariant: `revision` changes with everything that could change a route, so that routes remembered
under an older revision are dead.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from leveret.broker.core.accounts import VHOST_BYTES, Account
from leveret.broker.core.quotas import Use
from leveret.broker.core.turn import Turn
from leveret.broker.queue.queue import QueueHost
from leveret.broker.topology.binding import Binding
from leveret.broker.vhost.ids import Ids
from leveret.errors import NotFound


class VhostState(QueueHost):
    """A virtual host as its parts know it."""

    def __init__(self, turn: Turn, ids: Ids, name: str) -> None:
        super().__init__(name)
        self.turn: Final = turn
        self.ids: Final = ids
        #: The memory that its definitions take.
        self.account: Final = Account(turn.accounts)
        self.account.book(VHOST_BYTES)
        #: What is in it, and the quotas of that.
        self.use: Final = Use(f"in vhost '{name}'", turn)
        self.revision: i64 = 1
        #: It is deleted: nothing more comes into it.
        self.deleted = False
        #: Keys of topic exchanges must be plain words (`routing.keys`): a setting of the vhost.
        self._strict_keys = False
        #: The group of the journal that holds the newest removal of a definition.
        self.removed_group: i64 = 0

    @property
    def strict_keys(self) -> bool:
        """Whether binding and routing keys of topic exchanges must be strict."""
        return self._strict_keys

    @strict_keys.setter
    def strict_keys(self, strict: bool) -> None:
        """Check what is bound and published from now on; existing bindings stay."""
        self._strict_keys = strict
        self.revision += 1

    def bound(self, binding: Binding) -> None:
        """Publish to a new binding what its source keeps for new bindings."""

    def check_definition(self, size: i64) -> None:
        """Check that a new definition of `size` bytes of memory has room.

        Raises: PreconditionFailed (406); NotFound (404) while the vhost is being deleted.
        """
        if self.deleted:
            raise NotFound(f"no vhost '{self.name}'")
        self.account.check(self.name, size)

    # -- names ------------------------------------------------------------------------------------

    def queue_label(self, name: str) -> str:
        """Return how error messages name a queue."""
        return f"queue '{name}' in vhost '{self.name}'"

    def exchange_label(self, name: str) -> str:
        """Return how error messages name an exchange."""
        return f"exchange '{name}' in vhost '{self.name}'"

    # -- what replies wait for --------------------------------------------------------------------

    def wait_for_definition(self, durable: bool, group: i64) -> None:
        """Let the reply wait for a definition that another connection made a moment ago."""
        if durable and group > self.turn.journal.durable_group:
            self.turn.reply_group = max(self.turn.reply_group, group)

    def removed(self) -> None:
        """Note that the method at hand wrote the record of a removal."""
        self.removed_group = self.turn.journal.group
        self.turn.recorded()

    def wait_for_removal(self) -> None:
        """Let the reply wait for what another connection removed a moment ago.

        Else a crash could bring back what this reply says is not there.
        """
        if self.removed_group > self.turn.journal.durable_group:
            self.turn.reply_group = max(self.turn.reply_group, self.removed_group)
