"""Policies, operator policies and parameters."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli.ctl.asking import Vhost, json_of, target
from leveret.cli.listing import Columns, Format

Name = Annotated[str, typer.Argument(metavar="NAME")]
Pattern = Annotated[str, typer.Argument(help="A regular expression for names.")]
Definition = Annotated[str, typer.Argument(metavar="JSON")]
Value = Annotated[str, typer.Argument(metavar="JSON")]
Component = Annotated[str, typer.Argument(metavar="COMPONENT")]
Priority = Annotated[
    int, typer.Option("--priority", metavar="NUMBER", help="The highest matching one applies.")
]
ApplyTo = Annotated[
    str,
    typer.Option(
        "--apply-to",
        metavar="all|queues|exchanges|classic_queues|quorum_queues|streams",
        help="What it applies to.",
    ),
]

_COLUMNS: Final = ("vhost", "name", "pattern", "apply-to", "definition", "priority")
_PARAMETER_COLUMNS: Final = ("vhost", "component", "name", "value", "running")


def set_policy(
    context: typer.Context,
    name: Name,
    pattern: Pattern,
    definition: Definition,
    vhost: Vhost = "/",
    priority: Priority = 0,
    apply_to: ApplyTo = "all",
) -> None:
    """Set a policy for the names that match a pattern.

    `set_policy ttl "^tmp" '{"message-ttl": 60000}' --apply-to queues` is an example.
    """
    _set(context, "policies", vhost, name, _body(pattern, definition, priority, apply_to))


def clear_policy(context: typer.Context, name: Name, vhost: Vhost = "/") -> None:
    """Delete a policy."""
    target(context).ask("DELETE", "policies", vhost, name)


def list_policies(
    context: typer.Context, columns: Columns = None, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the policies of a vhost."""
    target(context).show(form, _COLUMNS, "policies", vhost, columns=columns)


def set_operator_policy(
    context: typer.Context,
    name: Name,
    pattern: Pattern,
    definition: Definition,
    vhost: Vhost = "/",
    priority: Priority = 0,
    apply_to: ApplyTo = "queues",
) -> None:
    """Set an operator policy. It limits all arguments and policies."""
    body = _body(pattern, definition, priority, apply_to)
    _set(context, "operator-policies", vhost, name, body)


def clear_operator_policy(context: typer.Context, name: Name, vhost: Vhost = "/") -> None:
    """Delete an operator policy."""
    target(context).ask("DELETE", "operator-policies", vhost, name)


def list_operator_policies(
    context: typer.Context, columns: Columns = None, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the operator policies of a vhost."""
    target(context).show(form, _COLUMNS, "operator-policies", vhost, columns=columns)


def _body(pattern: str, definition: str, priority: int, apply_to: str) -> dict[str, object]:
    return {
        "pattern": pattern,
        "definition": json_of(definition, "DEFINITION"),
        "priority": priority,
        "apply-to": apply_to,
    }


def _set(context: typer.Context, kind: str, vhost: str, name: str, body: dict[str, object]) -> None:
    target(context).ask("PUT", kind, vhost, name, body=body)


def set_parameter(
    context: typer.Context, component: Component, name: Name, value: Value, vhost: Vhost = "/"
) -> None:
    """Set a parameter of a component."""
    body = {"value": json_of(value, "VALUE")}
    target(context).ask("PUT", "parameters", component, vhost, name, body=body)


def clear_parameter(
    context: typer.Context, component: Component, name: Name, vhost: Vhost = "/"
) -> None:
    """Delete a parameter."""
    target(context).ask("DELETE", "parameters", component, vhost, name)


def list_parameters(context: typer.Context, form: Format = "table") -> None:
    """List the parameters of all vhosts."""
    target(context).show(form, _PARAMETER_COLUMNS, "parameters")


def set_global_parameter(context: typer.Context, name: Name, value: Value) -> None:
    """Set a global parameter."""
    body = {"value": json_of(value, "VALUE")}
    target(context).ask("PUT", "global-parameters", name, body=body)


def clear_global_parameter(context: typer.Context, name: Name) -> None:
    """Delete a global parameter."""
    target(context).ask("DELETE", "global-parameters", name)


def list_global_parameters(context: typer.Context, form: Format = "table") -> None:
    """List the global parameters."""
    target(context).show(form, ("name", "value"), "global-parameters")


POLICIES: Final = (
    set_policy,
    clear_policy,
    list_policies,
    set_operator_policy,
    clear_operator_policy,
    list_operator_policies,
)
PARAMETERS: Final = (
    set_parameter,
    clear_parameter,
    list_parameters,
    set_global_parameter,
    clear_global_parameter,
    list_global_parameters,
)
