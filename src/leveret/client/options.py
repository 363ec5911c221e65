"""The keyword arguments of `connect` and of pools, defined once for both shells."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, cast

from leveret.client.addresses import PARAMETERS

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
    virtual_host: str | None
    user: str | None
    password: str | None
    #: Whether to use TLS, as `amqps://` does.
    tls: bool | None
    #: Seconds between heartbeats; 0 turns them off.
    heartbeat: int | None
    #: The time limit for connecting and logging in to one address, and for closing, in seconds.
    timeout: float | None
    channel_max: int | None
    frame_max: int | None
    #: The TLS context; the default trusts the system's authorities and checks the host name.
    ssl: ssl_module.SSLContext | None
    #: The name shown in lists of connections.
    connection_name: str | None
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


def shows_options(function: F) -> F:
    """Give `function` a signature with all keyword arguments, for `help`."""
    signature = inspect.signature(function)
    kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in ConnectOptions.__annotations__.items()
    ]
    shown = signature.replace(parameters=[*kept, *options])
    function.__signature__ = shown  # type: ignore[attr-defined]  # what `help` shows
    return function
