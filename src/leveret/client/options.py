"""The keyword arguments of `connect`, which pools take too: where to go, as whom, and how.

They are written here once for both shells.
"""

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
    """Keyword arguments; None, or what is left out, leaves it to the URI, else to the default."""

    #: The broker's host name or address.
    host: str | None
    #: Its port: 5672, with TLS 5671.
    port: int | None
    virtual_host: str | None
    user: str | None
    password: str | None
    #: Whether to use TLS, as `amqps://` does.
    tls: bool | None
    #: Seconds between heartbeats; 0 turns them off.
    heartbeat: int | None
    #: Seconds to connect to one address and log in, and to close.
    timeout: float | None
    channel_max: int | None
    frame_max: int | None
    #: What is trusted, instead of the system's authorities and the name in the certificate.
    ssl: ssl_module.SSLContext | None
    #: What lists of connections show.
    connection_name: str | None
    client_properties: Mapping[str, object] | None
    #: Whether a lost connection is opened again (True), or within which limits.
    recover: bool | Recovery | None
    #: Who records spans of the messages, such as `leveret.client.opentelemetry.Tracing()`.
    tracing: Traces | None


class HowOptions(TypedDict, total=False):
    """Those of the keyword arguments that no URI says."""

    ssl: ssl_module.SSLContext | None
    connection_name: str | None
    client_properties: Mapping[str, object] | None
    recover: bool | Recovery | None
    tracing: Traces | None


def split(options: ConnectOptions) -> tuple[dict[str, object], HowOptions]:
    """Return the options that say where to go and as whom, and the others.

    Raises: TypeError for one that is not there.
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
    """Return options with recovery off unless they ask for it: for who connects again himself."""
    return cast(ConnectOptions, {"recover": False, **options})


def shows_options(function: F) -> F:
    """Give `function` the signature in which each keyword argument is seen, as in `help`."""
    signature = inspect.signature(function)
    kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in ConnectOptions.__annotations__.items()
    ]
    shown = signature.replace(parameters=[*kept, *options])
    function.__signature__ = shown  # type: ignore[attr-defined]  # what `help` shows
    return function
