"""Runtime parameters: named values of a vhost's components, and global ones.

A component is a part of the broker that is configured while it runs.  There are two:
`operator_policy`, whose values are operator policies, and `vhost-limits`.  Parameters of any other
component, such as RabbitMQ's `shovel`, are refused, except in definitions: those are kept and
exported, and have no effect.  Policies are not set this way, as in RabbitMQ.

Global parameters belong to no component.  Any name may have any value, except
`default_user_limits`, whose value is an object of limits.

Invariants: every stored value can be journaled; each change is journaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import Arguments, is_int
from leveret.broker.policies.keys import utf8_size
from leveret.broker.policies.policy import Policy, make_policy
from leveret.broker.scheduler.accounts import table_bytes
from leveret.broker.users.users import check_default_limits
from leveret.broker.vhost.limits import checked_limits
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import PARAMETER_BYTES_MAX, PARAMETERS_MAX, SHORT_STRING_BYTES_MAX
from leveret.wire.buffer import BytesWriter
from leveret.wire.tables import write_table

if TYPE_CHECKING:
    from leveret.broker.core import Core
    from leveret.broker.vhost.vhost import Vhost

OPERATOR_POLICY: Final = "operator_policy"
VHOST_LIMITS: Final = "vhost-limits"

#: The global parameter with the limits of users without limits of their own.  A broker sets it when
#: it creates a data directory; an older directory has none.
DEFAULT_USER_LIMITS: Final = "default_user_limits"

#: The only name of a parameter of `vhost-limits`.
LIMITS: Final = "limits"

_POLICY_FIELDS: Final = ("pattern", "definition", "priority", "apply-to")


@final
class RuntimeParameters:
    """The parameters of all vhosts, and the global ones."""

    def __init__(self, core: Core, vhosts: dict[str, Vhost]) -> None:
        self._core: Final = core
        self._vhosts: Final = vhosts
        #: Values by vhost, component and name, except those that a vhost stores itself.
        self.values: dict[tuple[str, str, str], object] = {}
        self.global_values: dict[str, object] = {}

    def _vhost(self, name: str) -> Vhost:
        vhost = self._vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        return vhost

    # -- parameters of a vhost ---------------------------------------------------------------------

    def runs(self, component: str) -> bool:
        """Return whether a component exists; parameters of other components have no effect."""
        return component in (OPERATOR_POLICY, VHOST_LIMITS)

    def check(self, component: str, name: str, value: object, others: bool = False) -> object:
        """Check a parameter as `set` does without setting it; return it in the form of `find`.

        Raises: PreconditionFailed (406) for a bad name or value, or an unknown component.
        """
        if component == "policy":
            raise PreconditionFailed("policies may not be set using this method")
        if component == OPERATOR_POLICY:
            return policy_value(operator_policy(name, value, others))
        if component == VHOST_LIMITS:
            return _limits(name, value)
        check_names(component, name)
        check_value(value)
        if not others:
            raise PreconditionFailed(
                f"Validation failed: component {component} not found: use "
                "operator_policy or vhost-limits"
            )
        return value

    def set(
        self, vhost_name: str, component: str, name: str, value: object, others: bool = False
    ) -> None:
        """Set a parameter of a vhost; it applies at once.

        `others` allows unknown components, and unknown keys in an operator policy.

        Raises: NotFound (404) for an unknown vhost; PreconditionFailed (406) for a bad name or
        value, an unknown component, or too many parameters, in number or in memory.
        """
        vhost = self._vhost(vhost_name)
        self.check(component, name, value, others)
        if component == OPERATOR_POLICY:
            vhost.policies.set(operator_policy(name, value, others))
            return
        if component == VHOST_LIMITS:
            vhost.limits.set(_limits(name, value))
            return
        key = (vhost_name, component, name)
        if key not in self.values and len(self.values) >= PARAMETERS_MAX:
            raise PreconditionFailed(f"there are at most {PARAMETERS_MAX} parameters")
        vhost.check_definition(_memory(name, value))
        record = _key_record(vhost_name, component, name)
        record["value"] = {"value": value}
        self._core.journal.define("parameter", record)
        self._put(key, value)

    def clear(self, vhost_name: str, component: str, name: str) -> None:
        """Remove a parameter of a vhost.  Raises: NotFound (404)."""
        vhost = self._vhost(vhost_name)
        if component == OPERATOR_POLICY:
            vhost.policies.clear(name, True)
            return
        if component == VHOST_LIMITS and name == LIMITS and vhost.limits.by_name:
            vhost.limits.set({})
            return
        key = (vhost_name, component, name)
        if key not in self.values:
            raise NotFound(f"no parameter '{name}' of {component} in vhost '{vhost_name}'")
        self._core.scheduler.changes += 1
        self._take_out(key)
        self._core.journal.delete("parameter", _key_record(vhost_name, component, name))

    def find(self, vhost_name: str, component: str, name: str) -> object:
        """Return the value of a parameter, or None.  Raises: NotFound (404) for no such vhost."""
        vhost = self._vhost(vhost_name)
        if component == OPERATOR_POLICY:
            policy = vhost.policies.operator_by_name.get(name)
            return None if policy is None else policy_value(policy)
        if component == VHOST_LIMITS:
            return dict(vhost.limits.by_name) if vhost.limits.by_name else None
        return self.values.get((vhost_name, component, name))

    def of_vhost(self, vhost_name: str) -> list[tuple[str, str, object]]:
        """Return the component, name and value of each parameter.  Raises: NotFound (404).

        This walks over the parameters of all vhosts.
        """
        own = [
            (key[1], key[2], value) for key, value in self.values.items() if key[0] == vhost_name
        ]
        return self._of_components(vhost_name) + own

    def of_vhosts(self, vhost_names: Iterable[str]) -> Iterator[list[tuple[str, str, str, object]]]:
        """Return, for each vhost, the vhost's name with the results of `of_vhost`.

        A vhost that is deleted in the meantime has no parameters.
        """
        own: dict[str, list[tuple[str, str, object]]] = {}
        for key, value in self.values.items():
            own.setdefault(key[0], []).append((key[1], key[2], value))
        for vhost_name in vhost_names:
            there = vhost_name in self._vhosts
            found = self._of_components(vhost_name) + own.get(vhost_name, []) if there else []
            yield [(vhost_name, component, name, value) for component, name, value in found]

    def _of_components(self, vhost_name: str) -> list[tuple[str, str, object]]:
        """Return the parameters that a vhost stores itself.  Raises: NotFound (404)."""
        vhost = self._vhost(vhost_name)
        found: list[tuple[str, str, object]] = [
            (OPERATOR_POLICY, policy.name, policy_value(policy))
            for policy in vhost.policies.operator_by_name.values()
        ]
        if vhost.limits.by_name:
            found.append((VHOST_LIMITS, LIMITS, dict(vhost.limits.by_name)))
        return found

    def forget_vhost(self, vhost: str) -> None:
        """Remove the parameters of a deleted vhost, whose record includes their deletion."""
        for key in [key for key in self.values if key[0] == vhost]:
            self._take_out(key)

    def _put(self, key: tuple[str, str, str], value: object) -> None:
        """Store a value, and book it for its vhost."""
        self._take_out(key)
        self.values[key] = value
        self._book(key[0], _memory(key[2], value))

    def _take_out(self, key: tuple[str, str, str]) -> None:
        """Remove a value, if it exists."""
        if key in self.values:
            self._book(key[0], -_memory(key[2], self.values.pop(key)))

    def _book(self, vhost_name: str, size: i64) -> None:
        vhost = self._vhosts.get(vhost_name)
        if vhost is not None:
            vhost.account.book(size)

    def _put_global(self, name: str, value: object) -> None:
        """Store a global value."""
        self._take_out_global(name)
        self.global_values[name] = value
        self._core.accounts.definition_bytes += _memory(name, value)

    def _take_out_global(self, name: str) -> None:
        """Remove a global value, if it exists."""
        if name in self.global_values:
            size = _memory(name, self.global_values.pop(name))
            self._core.accounts.definition_bytes -= size

    # -- global parameters -------------------------------------------------------------------------

    def set_global(self, name: str, value: object) -> None:
        """Set a global parameter.

        Raises: PreconditionFailed (406) for an invalid name or value, or too many parameters, in
        number or in memory.
        """
        check_names(name)
        check_value(value)
        if name == DEFAULT_USER_LIMITS:
            check_default_limits(as_table(value, name))
        if name not in self.global_values and len(self.global_values) >= PARAMETERS_MAX:
            raise PreconditionFailed(f"there are at most {PARAMETERS_MAX} global parameters")
        self._core.accounts.check_definition(_memory(name, value))
        record: dict[str, object] = {"name": name, "value": {"value": value}}
        self._core.journal.define("global_parameter", record)
        self._put_global(name, value)
        if name == DEFAULT_USER_LIMITS:
            self.apply_defaults()

    def clear_global(self, name: str) -> None:
        """Remove a global parameter.  Raises: NotFound (404)."""
        if name not in self.global_values:
            raise NotFound(f"no global parameter '{name}'")
        self._core.scheduler.changes += 1
        self._take_out_global(name)
        self._core.journal.delete("global_parameter", {"name": name})
        if name == DEFAULT_USER_LIMITS:
            self.apply_defaults()

    def apply_defaults(self) -> None:
        """Apply the limits of users without limits of their own."""
        value = self.global_values.get(DEFAULT_USER_LIMITS)
        # An older release may have stored any value under that name.
        limits = value.items() if isinstance(value, dict) else ()
        numbers = {name: most for name, most in limits if isinstance(most, int)}
        self._core.quotas.set_defaults(numbers)

    # -- records ----------------------------------------------------------------------------------

    def records(self) -> list[tuple[str, dict[str, object]]]:
        """Return the kind and the record of each value, for a checkpoint."""
        found: list[tuple[str, dict[str, object]]] = []
        for (vhost, component, name), value in self.values.items():
            record = _key_record(vhost, component, name)
            record["value"] = {"value": value}
            found.append(("parameter", record))
        for name, value in self.global_values.items():
            found.append(("global_parameter", {"name": name, "value": {"value": value}}))
        return found

    def restore(self, kind: str, record: dict[str, object], there: bool) -> None:
        """Restore the value of a record, or remove it if `there` is False."""
        name = str(record.get("name", ""))
        held = record.get("value")
        value = held.get("value") if isinstance(held, dict) else None
        if kind == "global_parameter":
            if there:
                self._put_global(name, value)
            else:
                self._take_out_global(name)
            return
        key = (str(record.get("vhost", "")), str(record.get("component", "")), name)
        if there:
            self._put(key, value)
        else:
            self._take_out(key)


def _memory(name: str, value: object) -> i64:
    """Return the bytes of memory of a value and its name."""
    return table_bytes({name: value})


def _key_record(vhost: str, component: str, name: str) -> dict[str, object]:
    return {"vhost": vhost, "component": component, "name": name}


def check_names(*names: str) -> None:
    """Refuse names that are empty or too long.  Raises: PreconditionFailed (406)."""
    for name in names:
        if not 0 < utf8_size(name) <= SHORT_STRING_BYTES_MAX:
            raise PreconditionFailed(f"a parameter's name has 1 to {SHORT_STRING_BYTES_MAX} bytes")


def check_value(value: object) -> None:
    """Refuse a value that cannot be journaled.  Raises: PreconditionFailed (406)."""
    writer = BytesWriter()
    try:
        write_table(writer, {"value": value})
    except ValueError as error:
        raise PreconditionFailed(f"the value cannot be kept: {error}") from None
    if len(writer) > PARAMETER_BYTES_MAX:
        raise PreconditionFailed(f"a parameter's value has at most {PARAMETER_BYTES_MAX} bytes")


def _limits(name: str, value: object) -> Arguments:
    """Return the limits in a parameter.  Raises: PreconditionFailed (406)."""
    if name != LIMITS:
        raise PreconditionFailed(f"a parameter of {VHOST_LIMITS} is named '{LIMITS}'")
    limits = as_table(value, "limits")
    checked_limits(limits)
    return limits


def operator_policy(name: str, value: object, others: bool) -> Policy:
    """Return the operator policy in a parameter.  Raises: PreconditionFailed (406)."""
    fields = as_table(value, f"operator policy '{name}'")
    for field in fields:
        if field not in _POLICY_FIELDS:
            raise PreconditionFailed(f"Validation failed: Unrecognised term '{field}' in {name}")
    return policy_of(name, fields, "queues", True, others)


def policy_of(name: str, fields: Arguments, apply_to: str, operator: bool, others: bool) -> Policy:
    """Return the policy that JSON fields describe; `apply_to` is the default for that field.

    `others` allows unknown keys.

    Raises: PreconditionFailed (406) for any invalid field.
    """
    for field in ("pattern", "definition"):
        if field not in fields:
            raise PreconditionFailed(f"Validation failed: Key '{field}' not found in {name}")
    pattern = fields["pattern"]
    definition = as_table(fields["definition"], f"the definition of policy '{name}'")
    priority = fields.get("priority", 0)
    applied = fields.get("apply-to", apply_to)
    if not isinstance(pattern, str) or not isinstance(applied, str):
        raise PreconditionFailed("Validation failed: pattern and apply-to should be strings")
    if not is_int(priority) or not isinstance(priority, int):
        raise PreconditionFailed(
            f"Validation failed: priority should be a number, actually was {priority}"
        )
    policy = make_policy(name, pattern, definition, priority, applied, operator, others)
    if policy.without_effect():
        check_value(definition)
    return policy


def policy_value(policy: Policy) -> Arguments:
    """Return a policy's fields under their names in RabbitMQ's JSON."""
    return {
        "pattern": policy.pattern,
        "definition": policy.definition,
        "priority": policy.priority,
        "apply-to": policy.apply_to,
    }


def as_table(value: object, what: str) -> Arguments:
    """Return an object; a list of pairs counts as one: RabbitMQ exports an empty object as [].

    Raises: PreconditionFailed (406) for anything else.
    """
    found: Arguments = {}
    if isinstance(value, dict):
        for key, item in value.items():
            found[str(key)] = item
        return found
    if isinstance(value, list):
        for pair in value:
            if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):
                raise PreconditionFailed(f"Validation failed: {what} should be an object")
            found[pair[0]] = pair[1]
        return found
    raise PreconditionFailed(f"Validation failed: {what} should be an object")
