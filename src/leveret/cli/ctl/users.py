"""Users, their passwords, tags and limits."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli import exits
from leveret.cli.ctl.asking import json_of, secret, target
from leveret.cli.listing import Columns, Format

Name = Annotated[str, typer.Argument(metavar="USER")]
Password = Annotated[
    str,
    typer.Argument(
        metavar="PASSWORD", help="The password; omit it to read it from standard input."
    ),
]


def add_user(context: typer.Context, user: Name, password: Password = "") -> None:
    """Create a user, without permissions."""
    found = target(context).ask("GET", "users")
    if isinstance(found, list) and user in [row["name"] for row in found]:
        raise exits.Failure(f"user {user!r} already exists", exits.REFUSED)
    target(context).ask("PUT", "users", user, body={"password": secret(password), "tags": ""})


def delete_user(context: typer.Context, user: Name) -> None:
    """Delete a user and close their connections."""
    target(context).ask("DELETE", "users", user)


def change_password(context: typer.Context, user: Name, password: Password = "") -> None:
    """Change a user's password."""
    found = target(context).ask("GET", "users", user)
    tags = found["tags"] if isinstance(found, dict) else []
    target(context).ask("PUT", "users", user, body={"password": secret(password), "tags": tags})


def set_user_tags(
    context: typer.Context,
    user: Name,
    tags: Annotated[list[str] | None, typer.Argument(metavar="TAG")] = None,
) -> None:
    """Replace a user's tags.

    `administrator`, `monitoring`, `policymaker`, `management` and `impersonator` have an effect.
    """
    found = target(context).ask("GET", "users", user)
    kept = found if isinstance(found, dict) else {}
    body = {name: kept.get(name) for name in ("password_hash", "hashing_algorithm")}
    target(context).ask("PUT", "users", user, body={**body, "tags": tags or []})


def list_users(context: typer.Context, columns: Columns = None, form: Format = "table") -> None:
    """List users and their tags."""
    # rabbitmqctl calls the name `user`.
    named = {"user": "name"}
    target(context).show(form, ("user", "tags"), "users", columns=columns, named=named)


def set_user_limits(
    context: typer.Context, user: Name, limits: Annotated[str, typer.Argument(metavar="JSON")]
) -> None:
    """Set limits of a user.

    `{"max-connections": 10, "max-sinks": 50}` sets two; -1 means no limit.
    """
    found = json_of(limits, "LIMITS")
    if not isinstance(found, dict):
        raise exits.Failure("LIMITS is not a JSON object", exits.USAGE)
    target(context).ask("PUT", "user-limits", user, body=found)


def clear_user_limits(
    context: typer.Context,
    user: Name,
    limit: Annotated[str, typer.Argument(metavar="LIMIT", help="max-connections, ... or all.")],
) -> None:
    """Clear a limit of a user, or all of them."""
    names = () if limit == "all" else (limit,)
    target(context).ask("DELETE", "user-limits", user, *names)


def list_user_limits(context: typer.Context, form: Format = "table") -> None:
    """List the limits of users."""
    target(context).show(form, ("user", "value"), "user-limits")


COMMANDS: Final = (
    add_user,
    delete_user,
    change_password,
    set_user_tags,
    list_users,
    set_user_limits,
    clear_user_limits,
    list_user_limits,
)
