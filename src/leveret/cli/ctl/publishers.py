"""Publisher deduplication: each publisher's highest publishing id in a queue, and its owner."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli.ctl.asking import NewOwner, Queue, Vhost, target
from leveret.cli.listing import Format

Publisher = Annotated[str, typer.Argument(metavar="PUBLISHER")]


def list_publishers(
    context: typer.Context, queue: Queue, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the publishers that number their messages.

    Columns are the highest publishing id, the owner of the name, and the last publish.
    """
    columns = ("publisher", "publishing_id", "owner", "last")
    target(context).show(form, columns, "publishers", vhost, queue)


def delete_publisher(
    context: typer.Context, queue: Queue, publisher: Publisher, vhost: Vhost = "/"
) -> None:
    """Forget the highest publishing id of a publisher.

    It then starts again with any number.
    """
    target(context).ask("DELETE", "publishers", vhost, queue, publisher)


def set_publisher_owner(
    context: typer.Context, queue: Queue, publisher: Publisher, user: NewOwner, vhost: Vhost = "/"
) -> None:
    """Give the name of a publisher to a user.

    Only the owner can publish to the queue under this name.
    """
    target(context).ask("PUT", "publishers", vhost, queue, publisher, "owner", user)


COMMANDS: Final = (list_publishers, delete_publisher, set_publisher_owner)
