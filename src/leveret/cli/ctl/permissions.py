"""Permissions of users in vhosts."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli.ctl.asking import Exchange, Vhost, target
from leveret.cli.listing import Format

User = Annotated[str, typer.Argument(metavar="USER")]
Configure = Annotated[str, typer.Argument(help="A regex of names to declare and delete.")]
Write = Annotated[str, typer.Argument(help="A regex of names to publish or bind to.")]
Read = Annotated[str, typer.Argument(help="A regex of names to consume or bind from.")]


def set_permissions(
    context: typer.Context,
    user: User,
    configure: Configure,
    write: Write,
    read: Read,
    vhost: Vhost = "/",
) -> None:
    """Set a user's permissions in a vhost."""
    body = {"configure": configure, "write": write, "read": read}
    target(context).ask("PUT", "permissions", vhost, user, body=body)


def clear_permissions(context: typer.Context, user: User, vhost: Vhost = "/") -> None:
    """Revoke a user's access to a vhost."""
    target(context).ask("DELETE", "permissions", vhost, user)


def list_permissions(context: typer.Context, vhost: Vhost = "/", form: Format = "table") -> None:
    """List the permissions in a vhost."""
    columns = ("user", "configure", "write", "read")
    target(context).show(form, columns, "vhosts", vhost, "permissions")


def list_user_permissions(context: typer.Context, user: User, form: Format = "table") -> None:
    """List the permissions of a user."""
    columns = ("vhost", "configure", "write", "read")
    target(context).show(form, columns, "users", user, "permissions")


def set_topic_permissions(
    context: typer.Context,
    user: User,
    exchange: Exchange,
    write: Write,
    read: Read,
    vhost: Vhost = "/",
) -> None:
    """Limit a user's routing keys at a topic exchange."""
    body = {"exchange": exchange, "write": write, "read": read}
    target(context).ask("PUT", "topic-permissions", vhost, user, body=body)


def clear_topic_permissions(
    context: typer.Context,
    user: User,
    exchange: Exchange = "",
    vhost: Vhost = "/",
) -> None:
    """Clear a user's topic permissions. With EXCHANGE, only those for it."""
    more = (exchange,) if exchange else ()
    target(context).ask("DELETE", "topic-permissions", vhost, user, *more)


def list_topic_permissions(
    context: typer.Context, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the topic permissions of a vhost."""
    columns = ("user", "exchange", "write", "read")
    target(context).show(form, columns, "vhosts", vhost, "topic-permissions")


COMMANDS: Final = (
    set_permissions,
    clear_permissions,
    list_permissions,
    list_user_permissions,
    set_topic_permissions,
    clear_topic_permissions,
    list_topic_permissions,
)
