"""The shell's commands for messages: publish, get, consume, browse, rewind."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, Literal

from leveret.cli import exits
from leveret.cli.consume import stream_options
from leveret.cli.ctl.messages import milliseconds, put_back
from leveret.cli.printing import output
from leveret.cli.printing.messages import printing
from leveret.cli.publish import read_properties
from leveret.cli.shell.grammar import Given, Option, ShellCommand, Word
from leveret.cli.shell.session import ShellState
from leveret.client.errors import ConsumerCancelled

if TYPE_CHECKING:
    from leveret.client.blocking import Consumer
    from leveret.client.message import Message

#: The interval at which `consume` and `browse` check for Ctrl-C.
_LOOK_SECONDS: Final = 0.2

#: The prefetch of `consume`.
_PREFETCH: Final = 100

_QUEUE: Final = Word("QUEUE", "queue")
_FORMAT: Final = Option(
    "--format", "print bodies, or whole messages as JSON", "FORMAT", choices=("body", "json")
)


def _form(given: Given) -> Literal["body", "json"]:
    return "json" if given.text("--format") == "json" else "body"


def _publish(session: ShellState, given: Given) -> int:
    properties = read_properties(
        given.texts("--property"), given.texts("--header"), given.flag("--transient")
    )
    body = given.word("BODY").encode()
    with session.channel() as channel:
        channel.confirm_select()
        channel.publish(
            body,
            given.text("--exchange"),
            given.word("ROUTING_KEY"),
            properties,
            mandatory=not given.flag("--optional"),
        )
    output.say("confirmed", err=True)
    return exits.OK


def _get(session: ShellState, given: Given) -> int:
    queue, count = given.word("QUEUE"), given.number("--count", 1, 1)
    taken = 0
    with session.channel() as channel:
        with printing() as printed:
            while taken < count:
                message = channel.get(queue)
                if message is None:
                    break
                taken += 1
                printed(message, _form(given))
                if not given.flag("--requeue"):
                    message.ack()
        if given.flag("--requeue") and taken:
            # All at the end, because the next get would return a message requeued earlier.
            channel.nack(multiple=True, requeue=True)
    if not taken:
        output.say("no message", err=True)
    return exits.OK if taken else exits.NOTHING


def _consume(session: ShellState, given: Given) -> int:
    queue, count = given.word("QUEUE"), given.number("--count", 0, 0)
    timeout = given.seconds("--timeout")
    arguments = stream_options(
        given.text("--offset"), given.text("--name"), given.texts("--filter"), given.texts("--key")
    )
    with session.channel() as channel, session.stoppable():
        channel.qos(min(_PREFETCH, count) if count else _PREFETCH)
        consumer = channel.consume(queue, arguments=arguments, inactivity_timeout=_LOOK_SECONDS)
        if session.interactive:
            output.say("Ctrl-C ends this", err=True)
        with consumer, printing() as printed:
            number = 0
            while (message := _next(session, consumer, timeout)) is not None:
                printed(message, _form(given))
                message.ack()
                number += 1
                if number == count:
                    break
    return exits.OK


def _next(session: ShellState, consumer: Consumer, timeout: float) -> Message | None:
    """Return the next message, or None after `timeout` seconds (0: never) or Ctrl-C."""
    since = time.monotonic()
    while not session.stopped:
        message = next(consumer, None)
        if message is not None:
            return message
        if timeout and time.monotonic() - since >= timeout:
            return None
    return None


def _browse(session: ShellState, given: Given) -> int:
    queue, count = given.word("QUEUE"), given.number("--count", 10, 1)
    connection = session.connect()
    facts = connection.server_properties
    if "Leveret" not in f"{facts.get('product')} {facts.get('platform')}":
        text = "browse needs a Leveret broker; use get with --requeue for the first messages"
        raise exits.Failure(text, exits.REFUSED)
    number = 0
    with session.channel() as channel, session.stoppable():
        # With `no_ack`, the client still returns the messages that arrived before the broker's
        # final cancel.
        consumer = channel.consume(
            queue, no_ack=True, arguments={"x-browse": True}, inactivity_timeout=_LOOK_SECONDS
        )
        with consumer, printing() as printed:
            try:
                while number < count and (message := _next(session, consumer, 0)) is not None:
                    printed(message, _form(given))
                    number += 1
            except ConsumerCancelled:
                pass  # no more waiting messages
    if not number:
        output.say("no message", err=True)
    return exits.OK if number else exits.NOTHING


def _rewind(session: ShellState, given: Given) -> int:
    body = {"timestamp": milliseconds(given.word("SINCE"))}
    queue = given.word("QUEUE")
    found = session.api_target().ask(
        "POST", "queues", session.parameters.vhost, queue, "rewind", body=body
    )
    output.say(put_back(found))
    return exits.OK


COMMANDS: Final = (
    ShellCommand(
        "publish",
        "publish a message and wait for its confirm",
        _publish,
        (Word("ROUTING_KEY", "queue"), Word("BODY")),
        (
            Option("--exchange", "the exchange; without it the key is a queue", "NAME", "exchange"),
            Option("--transient", "lost at a restart"),
            Option("--optional", "succeed even if no queue takes it"),
            Option("--header", "a header; VALUE is JSON or text", "KEY=VALUE", many=True),
            Option("--property", "such as content_type=text/plain", "NAME=VALUE", many=True),
        ),
    ),
    ShellCommand(
        "get",
        "get waiting messages from a queue",
        _get,
        (_QUEUE,),
        (
            Option("--count", "messages to get (1)", "COUNT"),
            Option("--requeue", "requeue them: they stay in the queue"),
            _FORMAT,
        ),
    ),
    ShellCommand(
        "consume",
        "print and ack messages as they arrive, until Ctrl-C",
        _consume,
        (_QUEUE,),
        (
            Option("--count", "end after this many messages; 0: never", "COUNT"),
            Option("--timeout", "end after this time without a message; 0: never", "SECONDS"),
            Option("--offset", "the start in a stream: first, last, 17, 1h", "OFFSET"),
            Option("--name", "continue at the stream offset of this name", "NAME"),
            Option("--filter", "only this filter value of a stream", "VALUE", many=True),
            Option("--key", "only these routing keys of a stream", "PATTERN", many=True),
            _FORMAT,
        ),
    ),
    ShellCommand(
        "browse",
        "print waiting messages of a queue without consuming them",
        _browse,
        (_QUEUE,),
        (Option("--count", "messages to show (10)", "COUNT"), _FORMAT),
    ),
    ShellCommand(
        "rewind",
        "restore acked messages that were published since a time",
        _rewind,
        (_QUEUE, Word("SINCE")),
    ),
)
