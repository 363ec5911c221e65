"""The policies and operator policies of a virtual host: setting, clearing and applying them.

A caller that sets or clears a policy outside a connection's input must have the shell run the
effects afterwards, because a shorter length drops messages, and a longer TTL moves deadlines.

A change walks over all queues and exchanges, which may take long.

Invariants: the `policy` of a queue or an exchange is the effective one, unless `_govern` has not
reached it since the last change; each change is journaled before it has an effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.policies.keys import merge_exchange_arguments, merge_queue_arguments
from leveret.broker.policies.policy import EXCHANGE, Policy, definition_in_force, queue_type
from leveret.broker.queue.queue import Queue
from leveret.broker.scheduler.costs import LISTED_PER_COST, PATTERN_WALK_PER_COST, POLICY_APPLIED
from leveret.broker.scheduler.task import Task
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import POLICIES_PER_VHOST_MAX

if TYPE_CHECKING:
    from leveret.broker.vhost.vhost import Vhost

#: The maximum number of comparisons of the name of a queue or an exchange with the patterns of all
#: user policies, and as many again with those of all operator policies.  After that the remaining
#: patterns do not match.  A plain word takes one comparison; 4,096 patterns may take 16 each, and
#: 600 that are at two positions at once may search 50 characters.
POLICIES_LOOKS_MAX: Final = 65_536


@final
class Policies:
    """The policies and operator policies of one vhost."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost: Final = vhost
        self._core: Final = vhost.core
        self.count_max: i64 = POLICIES_PER_VHOST_MAX
        self.by_name: dict[str, Policy] = {}
        self.operator_by_name: dict[str, Policy] = {}
        #: Policies that were set or cleared and are not applied to queues and exchanges yet.
        self._changes: dict[tuple[bool, str], None] = {}
        #: The task that applies policies after a change; it may be over.
        self._governing: Task | None = None
        #: Comparisons that the patterns may still make to find the policy of a name.
        self._looks_left: i64 = 0

    # -- setting and clearing ---------------------------------------------------------------------

    def set(self, policy: Policy) -> None:
        """Add a policy, or replace the one of its name; applying it to many queues takes a while.

        Raises: PreconditionFailed (406) if there are too many, or no memory for one more.
        """
        policies = self._of(policy.operator)
        if policy.name not in policies and len(policies) >= self.count_max:
            raise PreconditionFailed(f"a vhost has at most {self.count_max} policies")
        self._vhost.check_definition(policy.memory())
        kind = "operator_policy" if policy.operator else "policy"
        self._core.journal.define(kind, policy.record(self._vhost.name))
        self.restore(policy)
        self._changed(policy.name, policy.operator)

    def clear(self, name: str, operator: bool = False) -> None:
        """Remove a policy, or an operator policy.  Raises: NotFound (404)."""
        kind = "operator policy" if operator else "policy"
        if name not in self._of(operator):
            raise NotFound(f"no {kind} '{name}' in vhost '{self._vhost.name}'")
        record: dict[str, object] = {"vhost": self._vhost.name, "name": name}
        self._core.journal.delete(kind.replace(" ", "_"), record)
        self.restore_cleared(name, operator)
        self._changed(name, operator)

    def _of(self, operator: bool) -> dict[str, Policy]:
        return self.operator_by_name if operator else self.by_name

    # -- applying ----------------------------------------------------------------------------------

    def _changed(self, name: str, operator: bool) -> None:
        """Apply a changed policy to queues and exchanges, or have the running task do it."""
        self._core.scheduler.changes += 1
        self._changes[operator, name] = None
        if self._governing is None or self._governing.over:
            self._governing = self._core.scheduler.start(self._govern())

    def _govern(self) -> Iterator[int]:
        """Apply policies to all queues and exchanges after a change.

        Changes made in the meantime are applied together afterwards.  A queue declared in the
        meantime gets its policies at once.
        """
        while self._changes:
            changes = list(self._changes)
            self._changes = {}
            # Apply the policies in reverse order.
            all_queues = self._vhost.queues.by_name.values()
            queues = [queue for queue in all_queues if not queue.hidden]
            exchanges = list(self._vhost.exchanges.by_name.values())
            yield (len(queues) + len(exchanges)) // LISTED_PER_COST
            while queues:
                queue = queues.pop()
                if not queue.deleted:
                    self._regovern_queue(queue, changes)
                yield 1
            while exchanges:
                exchange = exchanges.pop()
                if not exchange.deleted:
                    self._regovern_exchange(exchange, changes)
                yield 1

    def _regovern_queue(self, queue: Queue, changes: list[tuple[bool, str]]) -> None:
        """Apply the effective policies to a queue, after `changes`."""
        kind = queue_type(queue.arguments)
        policy = queue.policy
        operator_policy = queue.operator_policy
        for operator, changed in changes:
            if operator:
                operator_policy = self._after(
                    queue.name, kind, operator_policy, self.operator_by_name, changed
                )
            else:
                policy = self._after(queue.name, kind, policy, self.by_name, changed)
        self._give_queue(queue, policy, operator_policy)

    def _regovern_exchange(self, exchange: Exchange, changes: list[tuple[bool, str]]) -> None:
        """Apply the effective policy to an exchange, after `changes`."""
        policy = exchange.policy
        for operator, changed in changes:
            if not operator:
                policy = self._after(exchange.name, EXCHANGE, policy, self.by_name, changed)
        self._give_exchange(exchange, policy)

    def _after(
        self,
        name: str,
        kind: str,
        current: Policy | None,
        policies: dict[str, Policy],
        changed: str,
    ) -> Policy | None:
        """Return the effective policy of `policies`, after a change of the one named `changed`.

        For most queues not all policies must be checked, because their policy still exists and
        takes precedence over the new one.
        """
        if current is not None and policies.get(current.name) is not current:
            return self._best(name, kind, policies)
        self._looks_left = POLICIES_LOOKS_MAX
        new = policies.get(changed)
        if (
            new is not None
            and (current is None or new.before(current))
            and self._fits(new, name, kind)
        ):
            return new
        return current

    def govern_queue(self, queue: Queue) -> None:
        """Apply policies to a new queue."""
        if queue.hidden or (not self.by_name and not self.operator_by_name):
            return
        kind = queue_type(queue.arguments)
        policy = self._best(queue.name, kind, self.by_name)
        self._give_queue(queue, policy, self._best(queue.name, kind, self.operator_by_name))

    def govern_exchange(self, exchange: Exchange) -> None:
        """Apply the policy to a new exchange."""
        if self.by_name:
            self._give_exchange(exchange, self._best(exchange.name, EXCHANGE, self.by_name))

    def _best(self, name: str, kind: str, policies: dict[str, Policy]) -> Policy | None:
        """Return the effective policy of a queue or an exchange, or None if none matches."""
        best: Policy | None = None
        self._looks_left = POLICIES_LOOKS_MAX
        for policy in policies.values():
            if (best is None or policy.before(best)) and self._fits(policy, name, kind):
                best = policy
            if self._looks_left <= 0:
                break
        return best

    def _fits(self, policy: Policy, name: str, kind: str) -> bool:
        """Return whether a policy applies to a name, within the comparisons that are left."""
        before = policy.walked()
        fits = policy.fits(name, kind, self._looks_left)
        looks = policy.walked() - before
        self._looks_left -= looks
        self._core.scheduler.spent += 1 + looks // PATTERN_WALK_PER_COST
        return fits

    def _give_queue(self, queue: Queue, policy: Policy | None, operator: Policy | None) -> None:
        if policy is queue.policy and operator is queue.operator_policy:
            return
        queue.policy = policy
        queue.operator_policy = operator
        self._core.scheduler.spent += POLICY_APPLIED
        queue.configure(
            merge_queue_arguments(
                queue.arguments,
                definition_in_force(policy),
                definition_in_force(operator),
                queue_type(queue.arguments),
            )
        )

    def _give_exchange(self, exchange: Exchange, policy: Policy | None) -> None:
        if policy is exchange.policy:
            return
        exchange.policy = policy
        self._core.scheduler.spent += POLICY_APPLIED
        exchange.configure(
            merge_exchange_arguments(exchange.arguments, definition_in_force(policy))
        )
        self._vhost.revision += 1
        self._vhost.exchanges.equip(exchange)

    # -- restoring, without journal and effects ----------------------------------------------------

    def restore(self, policy: Policy) -> None:
        """Add a policy, or replace the one of its name, without applying it."""
        self.restore_cleared(policy.name, policy.operator)
        self._of(policy.operator)[policy.name] = policy
        self._vhost.account.book(policy.memory())

    def restore_cleared(self, name: str, operator: bool) -> None:
        """Remove a policy, if it exists."""
        old = self._of(operator).pop(name, None)
        if old is not None:
            self._vhost.account.book(-old.memory())

    def govern_exchanges(self) -> None:
        """Apply the policies to all exchanges, after a recovery."""
        for exchange in self._vhost.exchanges.by_name.values():
            self.govern_exchange(exchange)
