"""Publisher deduplication: each publisher's highest publishing id in a queue, and its owner."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli.ctl.asking import Format, NewOwner, Vhost, target

Queue = Annotated[str, typer.Argument(metavar="QUEUE")]
Publisher = Annotated[str, typer.Argument(metavar="PUBLISHER")]


def list_publishers(
    context: typer.Context, queue: Queue, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the publishers of a queue or a stream: highest publishing id, owner, last publish."""
    columns = ("publisher", "publishing_id", "owner", "last")
    target(context).show(form, columns, "publishers", vhost, queue)


def delete_publisher(
    context: typer.Context, queue: Queue, publisher: Publisher, vhost: Vhost = "/"
) -> None:
    """Delete the highest publishing id of a publisher in a queue, so that it starts again."""
    target(context).ask("DELETE", "publishers", vhost, queue, publisher)


def set_publisher_owner(
    context: typer.Context, queue: Queue, publisher: Publisher, user: NewOwner, vhost: Vhost = "/"
) -> None:
    """Change the owner of a publisher's name in a queue; only the owner can publish under it."""
    target(context).ask("PUT", "publishers", vhost, queue, publisher, "owner", user)


COMMANDS: Final = (list_publishers, delete_publisher, set_publisher_owner)
