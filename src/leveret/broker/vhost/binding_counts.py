"""How many bindings a virtual host has, and each of its users there: what their quotas limit."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.core.ownership import Owner
from leveret.broker.core.quotas import Quotas, Use
from leveret.broker.topology.binding import Binding


@final
class BindingCounts:
    """The counts of one vhost."""

    def __init__(self, use: Use, quotas: Quotas) -> None:
        self._use: Final = use
        self._quotas: Final = quotas
        self._of_users: Final[dict[Use, int]] = {}

    def check(self, source: str, count: i64, by: Owner | None) -> None:
        """Check that the vhost and the user `by` may have `count` more bindings from `source`.

        What nobody makes, as the operator's import, is counted and not refused.

        Raises: PreconditionFailed (406).
        """
        if by is not None:
            self._use.check_bindings(source, count)
            self._quotas.check_bindings(by, source, count)

    def count(self, binding: Binding, count: i64) -> None:
        """Count a binding for its vhost and its user: 1 for a new one, -1 for one that goes."""
        self._use.bindings += count
        use = self._quotas.of(binding.made_by)
        if use is None:
            return
        use.bindings += count
        left: i64 = self._of_users.get(use, 0) + count
        if left > 0:
            self._of_users[use] = int(left)
        else:
            self._of_users.pop(use, None)
            self._quotas.forget_unused(use)

    def clear(self) -> None:
        """Count nothing more for any user: the vhost is deleted."""
        for use, count in self._of_users.items():
            use.bindings -= count
            self._quotas.forget_unused(use)
        self._of_users.clear()
