"""Vhosts, their metadata and their limits."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli import exits
from leveret.cli.ctl.asking import Vhost, json_of, target
from leveret.cli.helping.completing import vhost_names
from leveret.cli.listing import Columns, Format

Name = Annotated[str, typer.Argument(metavar="VHOST", autocompletion=vhost_names)]
Description = Annotated[str, typer.Option("--description", metavar="TEXT", help="A description.")]
Tags = Annotated[str, typer.Option("--tags", metavar="TAG,...", help="Tags, separated by commas.")]
QueueType = Annotated[
    str,
    typer.Option(
        "--default-queue-type",
        metavar="classic|quorum|stream",
        help="The type of queues declared without one.",
    ),
]
StrictKeys = Annotated[
    bool | None,
    typer.Option(
        "--strict-keys/--free-keys", help="Whether topic keys may only have letters, digits, `_`."
    ),
]


def add_vhost(
    context: typer.Context,
    vhost: Name,
    description: Description = "",
    tags: Tags = "",
    default_queue_type: QueueType = "",
    strict_keys: StrictKeys = None,
) -> None:
    """Create a vhost. No user has access to it yet."""
    found = target(context).ask("GET", "vhosts")
    if isinstance(found, list) and vhost in [row["name"] for row in found]:
        raise exits.Failure(f"vhost {vhost!r} already exists", exits.REFUSED)
    _put(context, vhost, description, tags, default_queue_type, strict_keys)


def update_vhost_metadata(
    context: typer.Context,
    vhost: Name,
    description: Description = "",
    tags: Tags = "",
    default_queue_type: QueueType = "",
    strict_keys: StrictKeys = None,
) -> None:
    """Change the metadata of a vhost. Options that are not given stay unchanged."""
    target(context).ask("GET", "vhosts", vhost)
    _put(context, vhost, description, tags, default_queue_type, strict_keys)


def _put(
    context: typer.Context,
    vhost: str,
    description: str,
    tags: str,
    default_queue_type: str,
    strict_keys: bool | None,
) -> None:
    given = {
        "description": description,
        "tags": tags,
        "default_queue_type": default_queue_type,
    }
    body: dict[str, object] = {name: value for name, value in given.items() if value}
    if strict_keys is not None:
        body["strict_keys"] = strict_keys
    target(context).ask("PUT", "vhosts", vhost, body=body)


def delete_vhost(context: typer.Context, vhost: Name) -> None:
    """Delete a vhost with its contents and connections."""
    target(context).ask("DELETE", "vhosts", vhost)


def list_vhosts(context: typer.Context, columns: Columns = None, form: Format = "table") -> None:
    """List vhosts."""
    usual = ("name", "description", "tags", "messages")
    target(context).show(form, usual, "vhosts", columns=columns)


def set_vhost_limits(
    context: typer.Context,
    limits: Annotated[str, typer.Argument(metavar="JSON")],
    vhost: Vhost = "/",
) -> None:
    """Set limits of a vhost.

    `{"max-connections": 10, "max-queues": 50}` sets two; -1 means no limit.
    """
    found = json_of(limits, "LIMITS")
    if not isinstance(found, dict):
        raise exits.Failure("LIMITS is not a JSON object", exits.USAGE)
    target(context).ask("PUT", "vhost-limits", vhost, body=found)


def clear_vhost_limits(context: typer.Context, vhost: Vhost = "/") -> None:
    """Clear all limits of a vhost."""
    target(context).ask("DELETE", "vhost-limits", vhost)


def list_vhost_limits(context: typer.Context, form: Format = "table") -> None:
    """List the limits of vhosts."""
    target(context).show(form, ("vhost", "value"), "vhost-limits")


COMMANDS: Final = (
    add_vhost,
    update_vhost_metadata,
    delete_vhost,
    list_vhosts,
    set_vhost_limits,
    clear_vhost_limits,
    list_vhost_limits,
)
