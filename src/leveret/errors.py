"""The reply codes of AMQP 0-9-1 and their exceptions.

All parts of Leveret share one table.  The broker raises these exceptions, and a session closes the
channel or the connection with the reply code.  The client raises the same exception when a broker
closes a channel or a connection.  The HTTP API maps each exception to an HTTP status.

Source: AMQP 0-9-1 section 1.2 (constants) and RabbitMQ's choice of soft and hard errors.
"""

from __future__ import annotations

import re
from typing import ClassVar, Final

from leveret.limits import SHORT_STRING_BYTES_MAX

#: The Erlang terms in reply texts, which clients of RabbitMQ parse, and their meanings.
_TERMS: Final = (
    (re.compile(r"\{value_negative,(-\d+)\}"), r"\1 is less than 0"),
    (re.compile(r"\{value_zero,0\}"), "0 is too small, the minimum is 1"),
    (re.compile(r"\{value_too_large,(\d+)\}"), r"\1 is too large, the maximum is ten years in ms"),
    (re.compile(r"\{max_value_exceeded,(\d+)\}"), r"\1 is too large"),
    (re.compile(r"\{unacceptable_type,(\w+)\}"), r"a value of the type \1 cannot be used here"),
    (
        re.compile(r'\{unacceptable_type_in_header,"(\w+)",(\w+)\}'),
        r"the header \1 contains a value of the type \2; it must be a list of strings",
    ),
    (
        re.compile(r'\{leftover_string,"(.*)"\}'),
        r"'\1' follows the number; only digits are allowed",
    ),
    (re.compile(r": no_integer$"), "it must be a whole number of ms as a string"),
    (
        re.compile(r": invalid_overflow$"),
        "it must be drop-head, reject-publish or reject-publish-dlx",
    ),
    (re.compile(r": invalid_max_age$"), "it must be a number and one of Y, M, D, h, m, s: 7D"),
    (re.compile(r": invalid_dlx_strategy$"), "it must be at-most-once or at-least-once"),
    (
        re.compile(r": routing_key_but_no_dlx_defined$"),
        "it also needs x-dead-letter-exchange",
    ),
)


#: The maximum length of a reply text with a term: three short strings and a few words.
_EXPLAINED_CHARACTERS_MAX: Final = 1024


def in_plain_words(text: str) -> str:
    """Return an error's text, with the meaning of an Erlang term in it appended in brackets.

    A reply text longer than `_EXPLAINED_CHARACTERS_MAX`, which quotes a client's input, is returned
    unchanged, because a search for terms can take time quadratic in its length.
    """
    if len(text) > _EXPLAINED_CHARACTERS_MAX:
        return text
    for term, meaning in _TERMS:
        found = term.search(text)
        if found is not None:
            return f"{text} ({found.expand(meaning)})"
    return text


class AmqpError(Exception):
    """An error with an AMQP reply code."""

    #: The reply code.
    code: ClassVar[int] = 541
    #: The name of the reply code in the specification.
    name: ClassVar[str] = "INTERNAL_ERROR"
    #: Whether the error closes only the channel, and not the connection.
    soft: ClassVar[bool] = False
    #: The status of the HTTP API, as in RabbitMQ: 400 for most errors.
    http_status: ClassVar[int] = 400

    def __init__(self, text: str = "", class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(text)
        #: The reason, without the name of the code.
        self.text = text
        #: The class of the method at fault; 0 if it is not known.
        self.class_id = class_id
        #: The method at fault, within its class; 0 if it is not known.
        self.method_id = method_id

    @property
    def reply_text(self) -> str:
        """The text in a close method, in RabbitMQ's form: `NOT_FOUND - no queue 'q' …`."""
        return f"{self.name} - {self.text}" if self.text else self.name

    @property
    def short_text(self) -> str:
        """`reply_text`, truncated as in RabbitMQ to fit a short string.

        Invalid characters are omitted, so that any error can be sent.
        """
        raw = self.reply_text.encode("utf-8", "surrogatepass")
        if len(raw) > SHORT_STRING_BYTES_MAX:
            return raw[: SHORT_STRING_BYTES_MAX - 3].decode("utf-8", "ignore") + "..."
        return raw.decode("utf-8", "ignore")

    def __str__(self) -> str:
        return f"{self.code} {self.reply_text}"


class SoftError(AmqpError):
    """Closes the channel; the connection and its other channels stay open."""

    soft: ClassVar[bool] = True


class HardError(AmqpError):
    """Closes the connection."""


class ContentTooLarge(SoftError):
    """311: the body is larger than a peer accepts."""

    code: ClassVar[int] = 311
    name: ClassVar[str] = "CONTENT_TOO_LARGE"
    http_status: ClassVar[int] = 413


class NoRoute(SoftError):
    """312: a mandatory message was not routed to any queue (in basic.return)."""

    code: ClassVar[int] = 312
    name: ClassVar[str] = "NO_ROUTE"


class NoConsumers(SoftError):
    """313: no consumer could take an immediate message."""

    code: ClassVar[int] = 313
    name: ClassVar[str] = "NO_CONSUMERS"


class AccessRefused(SoftError):
    """403: the user lacks a permission, or the name is reserved."""

    code: ClassVar[int] = 403
    name: ClassVar[str] = "ACCESS_REFUSED"
    http_status: ClassVar[int] = 401


class NotFound(SoftError):
    """404: no such exchange or queue."""

    code: ClassVar[int] = 404
    name: ClassVar[str] = "NOT_FOUND"
    http_status: ClassVar[int] = 404


class ResourceLocked(SoftError):
    """405: the queue is exclusive to another connection."""

    code: ClassVar[int] = 405
    name: ClassVar[str] = "RESOURCE_LOCKED"


class PreconditionFailed(SoftError):
    """406: an argument is invalid, or the current state does not allow the operation."""

    code: ClassVar[int] = 406
    name: ClassVar[str] = "PRECONDITION_FAILED"


class ConnectionForced(HardError):
    """320: the operator or the broker closes the connection."""

    code: ClassVar[int] = 320
    name: ClassVar[str] = "CONNECTION_FORCED"


class InvalidPath(HardError):
    """402: the vhost's name is invalid."""

    code: ClassVar[int] = 402
    name: ClassVar[str] = "INVALID_PATH"


class FrameError(HardError):
    """501: a malformed frame."""

    code: ClassVar[int] = 501
    name: ClassVar[str] = "FRAME_ERROR"


class SyntaxFault(HardError):
    """502 SYNTAX_ERROR: a frame with illegal field values."""

    code: ClassVar[int] = 502
    name: ClassVar[str] = "SYNTAX_ERROR"


class CommandInvalid(HardError):
    """503: a method that is not allowed in the state of the connection."""

    code: ClassVar[int] = 503
    name: ClassVar[str] = "COMMAND_INVALID"


class ChannelFault(HardError):
    """504 CHANNEL_ERROR: the channel is not open, or is already open."""

    code: ClassVar[int] = 504
    name: ClassVar[str] = "CHANNEL_ERROR"


class UnexpectedFrame(HardError):
    """505: a frame out of sequence, such as a body without a header."""

    code: ClassVar[int] = 505
    name: ClassVar[str] = "UNEXPECTED_FRAME"


class ResourceFault(HardError):
    """506 RESOURCE_ERROR: the broker does not have enough resources."""

    code: ClassVar[int] = 506
    name: ClassVar[str] = "RESOURCE_ERROR"


class AccessRefusedHard(HardError):
    """403 while connecting: the login was refused."""

    code: ClassVar[int] = 403
    name: ClassVar[str] = "ACCESS_REFUSED"
    http_status: ClassVar[int] = 401


class NotAllowed(HardError):
    """530: the peer may not do this, such as open a vhost that does not exist."""

    code: ClassVar[int] = 530
    name: ClassVar[str] = "NOT_ALLOWED"


class NotImplementedFault(HardError):
    """540 NOT_IMPLEMENTED: an unsupported part of the protocol."""

    code: ClassVar[int] = 540
    name: ClassVar[str] = "NOT_IMPLEMENTED"


class InternalError(HardError):
    """541: the broker failed; its log has the reason."""

    code: ClassVar[int] = 541
    name: ClassVar[str] = "INTERNAL_ERROR"
    http_status: ClassVar[int] = 500


SOFT_ERRORS: Final[dict[int, type[AmqpError]]] = {
    311: ContentTooLarge,
    312: NoRoute,
    313: NoConsumers,
    403: AccessRefused,
    404: NotFound,
    405: ResourceLocked,
    406: PreconditionFailed,
}
HARD_ERRORS: Final[dict[int, type[AmqpError]]] = {
    320: ConnectionForced,
    402: InvalidPath,
    403: AccessRefusedHard,
    501: FrameError,
    502: SyntaxFault,
    503: CommandInvalid,
    504: ChannelFault,
    505: UnexpectedFrame,
    506: ResourceFault,
    530: NotAllowed,
    540: NotImplementedFault,
    541: InternalError,
}


def error_for(code: int, text: str, soft: bool, class_id: int = 0, method_id: int = 0) -> AmqpError:
    """Return the exception for a peer's close with `code` and `text`.

    `text` may begin with the code's name, as brokers send it.  An unknown code becomes a plain
    `SoftError` or `HardError` whose text includes the code.
    """
    table = SOFT_ERRORS if soft else HARD_ERRORS
    kind = table.get(code)
    if kind is None:
        return _unknown(code, text, soft)
    return kind(text.removeprefix(f"{kind.name} - "), class_id, method_id)


def _unknown(code: int, text: str, soft: bool) -> AmqpError:
    """Return the exception for an unknown code, which its text includes."""
    kind = SoftError if soft else HardError
    return kind(f"reply code {code}: {text}")
