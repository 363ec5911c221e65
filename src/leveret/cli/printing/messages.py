"""Printing messages: the body as it came, or all there is of it as one line of JSON.

To a terminal a body goes as one line with its control characters escaped: whoever may publish chose
it.  A pipe and a file get its bytes.
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
    typer.Option("--format", help="Print bodies, a line each, or all of a message as JSON."),
]


@contextmanager
def printing() -> Iterator[Callable[[Message, Literal["body", "json"]], None]]:
    """Give a function that prints a message and returns when it was read.

    What follows in the block ends quietly, with no message more, when the reader is gone.
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
    """Return a body as a terminal may have it: one line, its control characters escaped."""
    return escaped(body.decode("utf-8", "backslashreplace")).encode()


def as_json(message: Message) -> str:
    """Return a message as RabbitMQ's HTTP API shows one."""
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
