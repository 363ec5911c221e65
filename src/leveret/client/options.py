"""The keyword arguments of `connect`, of pools and of `publish`, defined once for both shells."""

from __future__ import annotations

import inspect
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from leveret.client.addresses import PARAMETERS
from leveret.wire.properties import BasicProperties

if TYPE_CHECKING:
    import ssl as ssl_module
    from collections.abc import Callable, Mapping

    from leveret.client.recovery.settings import Recovery
    from leveret.client.traces import Traces

F = TypeVar("F", bound="Callable[..., object]")


class ConnectOptions(TypedDict, total=False):
    """The keyword arguments; if one is None or omitted, the URI or the default applies."""

    #: The broker's host name or address.
    host: str | None
    #: The broker's port; by default 5672, or 5671 with TLS.
    port: int | None
    #: The vhost; by default `/`.
    virtual_host: str | None
    #: The user's name; by default `guest`.
    user: str | None
    #: The password; by default `guest`.
    password: str | None
    #: Whether to use TLS, as `amqps://` does.
    tls: bool | None
    #: Seconds between heartbeats; 0 turns them off.
    heartbeat: int | None
    #: The time limit for connecting and logging in to one address, and for closing, in seconds.
    timeout: float | None
    #: How many channels may be open at once; by default the broker's limit.
    channel_max: int | None
    #: The maximum bytes of a frame, at least 4096; by default the broker's limit.
    frame_max: int | None
    #: The TLS context; the default trusts the system's authorities and checks the host name.
    ssl: ssl_module.SSLContext | None
    #: The name shown in lists of connections.
    connection_name: str | None
    #: More properties to tell the broker about this client.
    client_properties: Mapping[str, object] | None
    #: Whether to recover a lost connection (True), or the limits of recovery.
    recover: bool | Recovery | None
    #: The recorder of message spans, for example `leveret.client.opentelemetry.Tracing()`.
    tracing: Traces | None


class HowOptions(TypedDict, total=False):
    """The keyword arguments that cannot be set in a URI."""

    ssl: ssl_module.SSLContext | None
    connection_name: str | None
    client_properties: Mapping[str, object] | None
    recover: bool | Recovery | None
    tracing: Traces | None


def split(options: ConnectOptions) -> tuple[dict[str, object], HowOptions]:
    """Split the options into addresses and login, and the rest.

    Raises: TypeError for an unknown option.
    """
    where: dict[str, object] = {}
    how: dict[str, Any] = {}
    for name, value in options.items():
        if name not in ConnectOptions.__annotations__:
            known = ", ".join(ConnectOptions.__annotations__)
            raise TypeError(f"connect has no keyword argument {name!r}; it has {known}")
        (where if name in PARAMETERS else how)[name] = value
    return where, HowOptions(**how)  # type: ignore[typeddict-item]  # checked by name


def without_recovery(options: ConnectOptions | HowOptions) -> ConnectOptions:
    """Return options with recovery off by default, for callers that reconnect by themselves."""
    return cast(ConnectOptions, {"recover": False, **options})


class MessageArguments(TypedDict, total=False):
    """The properties of a message as keyword arguments; None means absent."""

    #: The media type of the body, such as `application/json`.
    content_type: str | None
    #: The encoding of the body, such as `gzip`; the client does not apply it.
    content_encoding: str | None
    #: The headers, which are added to those in `properties`.
    headers: Mapping[str, object] | None
    #: The priority, from 0; a queue with priorities delivers higher ones first.
    priority: int | None
    #: The id of a request, which its reply repeats.
    correlation_id: str | None
    #: The queue for replies.
    reply_to: str | None
    #: The time to live: seconds, a timedelta, or milliseconds as text as in the property.
    expiration: float | timedelta | str | None
    #: The id of the message.
    message_id: str | None
    #: The time of the message: seconds since 1970, or a datetime with a time zone.
    timestamp: int | datetime | None
    #: The kind of the message, for applications.
    type: str | None
    #: The sender, which the broker compares with the user of the connection.
    user_id: str | None
    #: The sending application.
    app_id: str | None


class PublishArguments(MessageArguments, total=False):
    """The keyword arguments of `publish` in addition to those of its signature."""

    #: How long an exchange of type `x-delayed-message` holds the message: seconds or a timedelta.
    delay: float | timedelta | None


def with_options(
    properties: BasicProperties | None,
    options: PublishArguments | MessageArguments,
    known: type = PublishArguments,
) -> BasicProperties:
    """Return a copy of the properties with `options`, which take precedence.

    Raises: TypeError for an unknown option or a value of another type; ValueError for a negative
    time.
    """
    for name in options:
        if name not in known.__annotations__:
            names = ", ".join(known.__annotations__)
            raise TypeError(f"there is no keyword argument {name!r}; there are {names}")
    fields: dict[str, Any] = {}
    if properties is not None:
        fields = {name: getattr(properties, name) for name in BasicProperties.FIELDS}
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    delay, expiration = given.pop("delay", None), given.get("expiration")
    if "headers" in given:
        given["headers"] = {**(fields.get("headers") or {}), **given["headers"]}
    fields |= given
    if delay is not None:
        headers = fields.get("headers") or {}
        fields["headers"] = {**headers, "x-delay": milliseconds("delay", delay)}
    if expiration is not None and not isinstance(expiration, str):
        fields["expiration"] = str(milliseconds("expiration", expiration))
    return BasicProperties(**fields)


def milliseconds(name: str, time: float | timedelta) -> int:
    """Return argument `name`, in seconds or a timedelta, in milliseconds.

    Raises: TypeError; ValueError for a negative or infinite time.
    """
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be seconds or a timedelta, not {type(time).__name__}")
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"{name} is {time}: it must be 0 or more seconds")
    return round(seconds * 1000)


def shows_options(kind: type = ConnectOptions) -> Callable[[F], F]:
    """Return a decorator that adds the keyword arguments of `kind` to the signature, for `help`."""

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        kept = [
            p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=one)
            for name, one in kind.__annotations__.items()
        ]
        shown = signature.replace(parameters=[*kept, *options])
        function.__signature__ = shown  # type: ignore[attr-defined]  # what `help` shows
        return function

    return decorate
