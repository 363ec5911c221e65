"""The exchanges, queues and bindings that one connection has declared and not deleted.

`DeclaredTopology` records the requests that the broker has answered (`answered`) and returns the
methods that redeclare the same objects (`exchanges`, `queues`, `bindings`).

A queue with a broker-generated name gets another name when it is redeclared.  The application
continues to use the old name, which `current` maps to the new name.

Consumers and channel modes are in `memory`.

Invariant: only answered requests are recorded, and at most `_TOPOLOGY_MAX` queues, exchanges
and bindings each; beyond that the oldest is forgotten.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from leveret.wire.methods.exchange import (
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
)
from leveret.wire.methods.queue import (
    QueueBind,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueUnbind,
)

if TYPE_CHECKING:
    from leveret.wire.method import Method

#: The maximum number of queues, of exchanges and of bindings to redeclare after a lost connection.
#: It limits clients that declare new ones forever and rely on the broker to expire them.
_TOPOLOGY_MAX: Final = 100_000


log = logging.getLogger("leveret.client")

K = TypeVar("K")
V = TypeVar("V")
M = TypeVar("M", bound="Method")

#: The identity of a binding: whether the destination is a queue, the destination, the source, the
#: binding key and the arguments.
Binding = tuple[bool, str, str, str, str]


def changed(method: M, **fields: object) -> M:
    """Return a copy of a method with some fields replaced."""
    values = {name: getattr(method, name) for name in method.FIELDS}
    return type(method)(**(values | fields))


class DeclaredTopology:
    """The exchanges, queues and bindings of one connection, by the application's names."""

    def __init__(self) -> None:
        self._exchanges: dict[str, ExchangeDeclare] = {}
        self._queues: dict[str, QueueDeclare] = {}
        self._bindings: dict[Binding, QueueBind | ExchangeBind] = {}
        #: The first generated name → the current one.
        self._renamed: dict[str, str] = {}
        #: A later generated name → the first one.
        self._known: dict[str, str] = {}

    # -- names -------------------------------------------------------------------------------------

    @property
    def has_renamed(self) -> bool:
        """Whether any redeclared queue got another name."""
        return bool(self._renamed)

    def current(self, queue: str) -> str:
        """Return the current name of a queue."""
        known = self.known(queue)
        return self._renamed.get(known, known)

    def known(self, queue: str) -> str:
        """Return the first name of a queue, used as its key here."""
        return self._known.get(queue, queue)

    def translated(self, method: M) -> M:
        """Return a method with the current names of queues."""
        if not self._renamed:
            return method
        if isinstance(method, QueueDeclare) and not method.passive:
            return method
        queue = getattr(method, "queue", "")
        now = self.current(queue)
        return method if now == queue else changed(method, queue=now)

    def renamed(self, queue: str, now: str) -> None:
        """Record that a queue was redeclared and got the name `now`."""
        if queue != now:
            self._renamed[queue] = now
            self._known[now] = queue
            if len(self._known) > _TOPOLOGY_MAX:
                del self._known[next(iter(self._known))]

    # -- declared objects --------------------------------------------------------------------------

    def exchanges(self) -> list[ExchangeDeclare]:
        """Return the methods that declare the exchanges, in the order of declaration."""
        return list(self._exchanges.values())

    def queues(self) -> list[tuple[str, QueueDeclare]]:
        """Return the queues by the application's names, in the order of declaration.

        The method of a queue with a generated name has an empty name.
        """
        return list(self._queues.items())

    def bindings(self) -> list[QueueBind | ExchangeBind]:
        """Return the methods that declare the bindings, with the current names of queues."""
        return [self.translated(method) for method in self._bindings.values()]

    def is_declared(self, queue: str) -> bool:
        """Return whether this connection has declared a queue and not deleted it."""
        return queue in self._queues

    # -- answered requests -------------------------------------------------------------------------

    def answered(self, request: Method, reply: Method) -> None:
        """Record the effect of a request, which uses the application's names."""
        if isinstance(request, QueueDeclare):
            if not request.passive and isinstance(reply, QueueDeclareOk):
                _keep(self._queues, str(reply.queue), request, "queues")
        elif isinstance(request, ExchangeDeclare):
            if not request.passive:
                _keep(self._exchanges, str(request.exchange), request, "exchanges")
        elif isinstance(request, (QueueBind, ExchangeBind)):
            _keep(self._bindings, _binding(request), request, "bindings")
        elif isinstance(request, (QueueUnbind, ExchangeUnbind)):
            self._bindings.pop(_binding(request), None)
            self._exchange_unbound(str(_source(request)))
        elif isinstance(request, QueueDelete):
            self.forget_queue(request.queue)
        elif isinstance(request, ExchangeDelete):
            self._forget_exchange(request.exchange)

    def forget_queue(self, queue: str) -> None:
        """Forget a deleted queue and its bindings."""
        self._queues.pop(queue, None)
        if self._renamed.pop(queue, None) is not None:
            self._known = {now: known for now, known in self._known.items() if known != queue}
        self._forget_bindings([key for key in self._bindings if key[0] and key[1] == queue])

    def last_consumer_gone(self, queue: str) -> None:
        """Forget a queue if the broker deletes it with its last consumer."""
        method = self._queues.get(queue)
        if method is not None and method.auto_delete:
            self.forget_queue(queue)

    def _forget_exchange(self, exchange: str) -> None:
        """Forget a deleted exchange and its bindings on either side."""
        self._exchanges.pop(exchange, None)
        gone = [k for k in self._bindings if k[2] == exchange or (not k[0] and k[1] == exchange)]
        self._forget_bindings(gone)

    def _forget_bindings(self, gone: list[Binding]) -> None:
        """Forget bindings, and exchanges that the broker deletes with their last binding."""
        for key in gone:
            self._bindings.pop(key, None)
        for source in {key[2] for key in gone}:
            self._exchange_unbound(source)

    def _exchange_unbound(self, exchange: str) -> None:
        """Forget an exchange if the broker deletes it with its last binding."""
        method = self._exchanges.get(exchange)
        if method is None or not method.auto_delete:
            return
        if not any(key[2] == exchange for key in self._bindings):
            self._forget_exchange(exchange)


def _keep(table: dict[K, V], key: K, value: V, what: str) -> None:
    """Record a declaration as the newest; beyond the limit, forget the oldest."""
    table.pop(key, None)
    table[key] = value
    if len(table) > _TOPOLOGY_MAX:
        oldest = next(iter(table))
        del table[oldest]
        log.warning(
            "more than %d %s are declared: %r will not be declared again after a lost connection; "
            "delete those no longer in use",
            _TOPOLOGY_MAX,
            what,
            oldest,
        )


def _source(method: QueueBind | QueueUnbind | ExchangeBind | ExchangeUnbind) -> str:
    """Return the source exchange of a binding."""
    if isinstance(method, (QueueBind, QueueUnbind)):
        return method.exchange
    return method.source


def _binding(method: QueueBind | QueueUnbind | ExchangeBind | ExchangeUnbind) -> Binding:
    """Return the identity of a binding."""
    is_queue = isinstance(method, (QueueBind, QueueUnbind))
    destination = method.queue if is_queue else method.destination  # type: ignore[union-attr]
    arguments = repr(sorted(method.arguments.items()))
    return is_queue, str(destination), str(_source(method)), method.routing_key, arguments
