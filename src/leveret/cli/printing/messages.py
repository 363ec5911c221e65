"""Print messages: the body as received, or the whole message as one line of JSON.

On a terminal a body is one line with escaped control characters, because publishers are not
trusted.  In a pipe or a file it is written unchanged.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

import typer

from leveret.cli.printing.pipe import OutputPipe, leave_broken_pipe
from leveret.client.message import Message
from leveret.escaping import escaped, escaped_json
from leveret.management.fields import plain
from leveret.wire.properties import BasicProperties

Format = Annotated[
    Literal["body", "json"],
    typer.Option(
        "--format", metavar="body|json", help="Print bodies, one a line, or whole messages as JSON."
    ),
]


@contextmanager
def printing() -> Iterator[Callable[[Message, Literal["body", "json"]], None]]:
    """Yield a function that prints a message, and waits until a pipe's reader has read it.

    If the reader has exited, the block ends without an error.
    """
    pipe = OutputPipe()
    shown = sys.stdout.isatty()

    def printed(message: Message, form: Literal["body", "json"]) -> None:
        out = sys.stdout.buffer
        if form == "json":
            out.write(escaped_json(as_json(message)).encode())
        else:
            out.write(as_line(message.body) if shown else message.body)
        out.write(b"\n")
        out.flush()
        pipe.wait_until_read()

    try:
        yield printed
    except BrokenPipeError:
        leave_broken_pipe()


def as_line(body: bytes) -> bytes:
    """Return a body as one line for a terminal, with escaped control characters."""
    return escaped(body.decode("utf-8", "backslashreplace")).encode()


def as_json(message: Message) -> str:
    """Return a message in the form of RabbitMQ's HTTP API."""
    try:
        payload, encoding = message.body.decode(), "string"
    except UnicodeDecodeError:
        payload, encoding = base64.b64encode(message.body).decode(), "base64"
    found = message.properties
    properties = {name: getattr(found, name) for name in BasicProperties.FIELDS}
    return json.dumps(
        {
            "exchange": message.exchange,
            "routing_key": message.routing_key,
            "redelivered": message.redelivered,
            "properties": {name: plain(v) for name, v in properties.items() if v is not None},
            "payload_bytes": len(message.body),
            "payload": payload,
            "payload_encoding": encoding,
        },
        ensure_ascii=False,
    )
