"""The number of bindings of a virtual host and of its users, for their quotas."""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.exchanges.binding import Binding
from leveret.broker.ownership import Owner
from leveret.broker.quotas import Quotas, Use


@final
class BindingCounts:
    """The counts of one vhost."""

    def __init__(self, use: Use, quotas: Quotas) -> None:
        self._use: Final = use
        self._quotas: Final = quotas

    def check(self, source: str, count: i64, by: Owner | None) -> None:
        """Check that the vhost and the user `by` may have `count` more bindings from `source`.

        Bindings without a user, such as those of an import, are counted and not refused.

        Raises: PreconditionFailed (406).
        """
        if by is not None:
            self._use.check_bindings(source, count)
            self._quotas.check_bindings(by, source, count)

    def count(self, binding: Binding, count: i64) -> None:
        """Count a binding for its vhost and its user: 1 for a new one, -1 for a removed one."""
        self._use.bindings += count
        use = self._quotas.of(binding.made_by)
        if use is not None:
            use.bindings += count
            self._quotas.forget_unused(use)
