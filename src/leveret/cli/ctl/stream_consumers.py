"""The consumer names under which a stream stores offsets, and the owners of the names."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from leveret.cli.ctl.asking import NewOwner, Vhost, target
from leveret.cli.helping.completing import queue_names
from leveret.cli.listing import Format

Stream = Annotated[str, typer.Argument(metavar="STREAM", autocompletion=queue_names)]
Name = Annotated[str, typer.Argument(metavar="NAME")]


def list_stream_consumers(
    context: typer.Context, stream: Stream, vhost: Vhost = "/", form: Format = "table"
) -> None:
    """List the names with stored offsets in a stream.

    Columns are the owner, the offset, the lag, and the current consumers.
    """
    columns = ("name", "owner", "offset", "lag", "consumers", "messages_unacknowledged")
    target(context).show(form, columns, "streams", vhost, stream, "consumers")


def delete_stream_consumer(
    context: typer.Context, stream: Stream, name: Name, vhost: Vhost = "/"
) -> None:
    """Forget the stored offset of an unused name."""
    target(context).ask("DELETE", "streams", vhost, stream, "consumers", name)


def set_stream_consumer_owner(
    context: typer.Context, stream: Stream, name: Name, user: NewOwner, vhost: Vhost = "/"
) -> None:
    """Give a name to a user. The consumers of other users under it are cancelled."""
    target(context).ask("PUT", "streams", vhost, stream, "consumers", name, "owner", user)


COMMANDS: Final = (list_stream_consumers, delete_stream_consumer, set_stream_consumer_owner)
