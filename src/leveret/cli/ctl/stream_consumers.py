"""The names under which a stream keeps offsets of consumers, and whose they are."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli.ctl.asking import Format, NewOwner, Vhost, target

Stream = Annotated[str, typer.Argument(metavar="STREAM")]
Name = Annotated[str, typer.Argument(metavar="NAME")]


def list_stream_consumers(
    context: typer.Context, stream: Stream, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the names whose offsets a stream keeps: owner, offset, lag, and who reads now."""
    columns = ("name", "owner", "offset", "lag", "consumers", "messages_unacknowledged")
    target(context).show(form, columns, "streams", vhost, stream, "consumers")


def delete_stream_consumer(
    context: typer.Context, stream: Stream, name: Name, vhost: Vhost = "/"
) -> None:
    """Forget the stored offset of a name that nobody reads under."""
    target(context).ask("DELETE", "streams", vhost, stream, "consumers", name)


def set_stream_consumer_owner(
    context: typer.Context, stream: Stream, name: Name, user: NewOwner, vhost: Vhost = "/"
) -> None:
    """Give a name to a user: only he reads under it from then on, and consumers of others end."""
    target(context).ask("PUT", "streams", vhost, stream, "consumers", name, "owner", user)


COMMANDS: Final = (list_stream_consumers, delete_stream_consumer, set_stream_consumer_owner)
