"""Choose the broker of a command, by options, environment variables, contexts or settings.

A data directory or a settings file names a broker on this machine.  The address of an API, a URI or
a context names any broker.  Only this module chooses between them.  In order of precedence, the
broker is named by

1. options anywhere on the command line: before the command (`root.py`), after the name of its
   group, or at the end.  If an option is given twice, the last one counts.  Options that name two
   brokers are refused;
2. environment variables;
3. the current context, and then the default settings.

With `--context`, an address (`--api`, `--uri`) replaces the address of the context.  The user,
password and files of the context still apply to an `--api`, but not to a `--uri`.
"""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from leveret.cli.exits import CONFIG, USAGE, Failure
from leveret.cli.helping.commands import SafeGroup

if TYPE_CHECKING:
    from leveret.cli.contexts.kept import Context, Contexts
    from leveret.cli.contexts.remote import Remote
    from leveret.config import Settings

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", metavar="DIR", help="The broker's data directory."),
]
Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The broker's settings file.")
]
Api = Annotated[
    str,
    typer.Option("--api", "-A", metavar="URL", help="The broker's HTTP API: https://host:15671."),
]
ContextName = Annotated[
    str, typer.Option("--context", metavar="NAME", help="A broker of `leveret context`.")
]

#: The options of a group that name a broker.
_OPTIONS: Final = ("--data-dir", "--config", "--api", "-A", "--context")

#: Environment variables that name a broker on this machine.
_HERE_VARIABLES: Final = (
    "LEVERET_DATA_DIR",
    "LEVERET_CONFIG_FILE",
    "LEVERET_MANAGEMENT_SOCKET",
)

#: Variables that name a broker on any machine: by its API, by its URI, by a context.
API_VARIABLE: Final = "LEVERET_API"
URI_VARIABLE: Final = "LEVERET_URI"
CONTEXT_VARIABLE: Final = "LEVERET_CONTEXT"

#: The variable with the path of a file whose first line is the URI, since a URI has a password.
URI_FILE_VARIABLE: Final = "LEVERET_URI_FILE"


@dataclass(frozen=True)
class BrokerOptions:
    """The options that name a command's broker; an option that was not given is empty."""

    data_dir: Path | None = None
    config: Path | None = None
    api: str = ""
    context: str = ""
    uri: str = ""

    @property
    def said(self) -> frozenset[str]:
        """The names of the options that were given."""
        return frozenset(each.name for each in fields(self) if getattr(self, each.name))

    def over(self, further: BrokerOptions) -> BrokerOptions:
        """Return these options combined with `further`, which they override."""
        return replace(further, **{name: getattr(self, name) for name in self.said})

    def find_api(self) -> Path | Remote:
        """Return the Unix socket or the address of the broker's API.  Raises: Failure."""
        place = self.checked()
        if place.data_dir or place.config:
            return _settings(place.data_dir, place.config).management_socket
        if not place.said - {"uri"}:
            return _api_without_options()
        context = contexts().get(place.context) if place.context else _no_context()
        return _api_of(replace(context, api=place.api or context.api), place.context)

    def find_api_beside_uri(self) -> Path | Remote:
        """Return the API of the broker that the URI names.

        An API named with lower precedence than the URI is ignored, because it may belong
        to another broker: the current context does not apply to `--uri` or `LEVERET_URI`.

        Raises: Failure.
        """
        place = self.checked()
        is_further = not place.said - {"uri"} and bool(
            place.uri or (uri_variable() and not _is_variable_set())
        )
        return _settings(None, None).management_socket if is_further else self.find_api()

    def find_socket(self) -> Path | None:
        """Return the management socket of the broker, or None if the command should use AMQP.

        The socket is used if options or variables name the data directory or the settings of a
        broker on this machine, or if nothing names a broker and the default directory has a socket.

        Raises: Failure.
        """
        place = self.checked()
        here = bool(place.data_dir or place.config)
        if here and place.uri:
            raise Failure(f"{option_of(min(place.said))} and --uri: give only one of them", USAGE)
        if not here:
            if place.said or uri_variable():
                return None
            here = any(os.environ.get(name) for name in _HERE_VARIABLES)
            if (not here or os.environ.get(CONTEXT_VARIABLE)) and _context_without_options()[0]:
                return None
        found = _settings(place.data_dir, place.config).management_socket
        return found if here or found.exists() else None

    def find_uri(self, default: str) -> tuple[str, Context]:
        """Return the URI to connect to, and the context of its TLS files, or an empty context.

        Raises: Failure.
        """
        place = self.checked()
        if place.context:
            named = contexts().get(place.context)
            if place.uri:
                # The URI may name another broker, which must not get the context's certificate.
                return place.uri, _no_context()
            return _uri_of(named, place.context), named
        if uri := place.uri or uri_variable():
            _check_variable()
            return uri, _no_context()
        context, name = _context_without_options()
        if context is None:
            return default, _no_context()
        return _uri_of(context, name), context

    def settings(self) -> Settings:
        """Return the settings of the broker on this machine.  Raises: Failure."""
        place = self.checked()
        return _settings(place.data_dir, place.config)

    def checked(self) -> BrokerOptions:
        """Return the options of the whole command line, including those before the command.

        Raises: Failure if they name two brokers.
        """
        whole = self.over(LINE.before)
        here = whole.said & {"data_dir", "config"}
        there = whole.said & {"api", "context"}
        if here and there:
            text = (
                f"{option_of(min(here))} names a broker on this machine and "
                f"{option_of(min(there))} another one: give only one of the two options"
            )
            raise Failure(text, USAGE)
        return whole


class _BrokerOptions:
    """The options that name a broker, from the part of the command line that has been parsed."""

    def __init__(self) -> None:
        self.before = BrokerOptions()

    def add(self, command: typer.Context, said: BrokerOptions) -> None:
        """Add options, which override earlier ones, until the command ends."""
        before = self.before
        self.before = said.over(before)

        def put_back() -> None:
            self.before = before

        command.call_on_close(put_back)


LINE: Final = _BrokerOptions()


def option_of(name: str) -> str:
    """Return the option for a field of `BrokerOptions`."""
    return f"--{name.replace('_', '-')}"


def is_local(host: str) -> bool:
    """Return whether a host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def uri_variable() -> str:
    """Return the URI that `LEVERET_URI`, or the file of `LEVERET_URI_FILE`, names, or "".

    Raises: Failure if the file cannot be read.
    """
    uri, path = os.environ.get(URI_VARIABLE, ""), os.environ.get(URI_FILE_VARIABLE, "")
    if uri or not path:
        return uri
    from leveret.secret_files import read_secret

    try:
        return read_secret(path)
    except ValueError as error:
        raise Failure(f"{URI_FILE_VARIABLE}: {error}", CONFIG) from None


def contexts() -> Contexts:
    """Read and return the contexts of the user.  Raises: Failure."""
    from leveret.cli.contexts.kept import Contexts

    return Contexts.load()


def _no_context() -> Context:
    """Return an empty context."""
    from leveret.cli.contexts.kept import Context

    return Context()


def find_context() -> Context | None:
    """Return the context that a command uses, or None.

    A URI on the command line replaces the URI of the context.

    Raises: Failure.
    """
    place = LINE.before
    if not place.context:
        return None if place.uri else _context_without_options()[0]
    context = contexts().get(place.context)
    return replace(context, uri=place.uri or context.uri)


def _is_variable_set() -> bool:
    """Return whether an environment variable other than `LEVERET_URI` names a broker."""
    names = (API_VARIABLE, CONTEXT_VARIABLE, *_HERE_VARIABLES)
    return any(os.environ.get(name) for name in names)


def _check_variable() -> None:
    """Check that the context named by the environment exists, even if it is unused."""
    if name := os.environ.get(CONTEXT_VARIABLE):
        contexts().get(name)


def _context_without_options() -> tuple[Context | None, str]:
    """Return the context that the environment names, or else the current one, and its name.

    Raises: Failure.
    """
    known = contexts()
    name = os.environ.get(CONTEXT_VARIABLE, "") or known.current
    return (known.get(name) if name else None), name


def _uri_of(context: Context, name: str) -> str:
    """Return the URI of a context.  Raises: Failure."""
    if not context.uri:
        text = f"the context {name!r} has no `uri`: leveret context set {name} --uri URI"
        raise Failure(text, CONFIG)
    return context.uri


def _api_of(context: Context, name: str) -> Remote:
    """Return the API of a context.  Raises: Failure."""
    if not context.api:
        text = f"the context {name!r} has no `api`: leveret context set {name} --api URL"
        raise Failure(text, CONFIG)
    from leveret.cli.contexts.remote import Remote

    return Remote.of(context)


def _api_without_options() -> Path | Remote:
    """Return the API that the environment or the current context names.  Raises: Failure."""
    if api := os.environ.get(API_VARIABLE, ""):
        _check_variable()
        return _api_of(replace(_no_context(), api=api), "")
    here = any(os.environ.get(name) for name in _HERE_VARIABLES)
    if not here or os.environ.get(CONTEXT_VARIABLE):
        context, name = _context_without_options()
        if context is not None:
            return _api_of(context, name)
    return _settings(None, None).management_socket


def _settings(data_dir: Path | None, config: Path | None) -> Settings:
    """Return the settings of a broker on this machine, for its data directory and its socket.

    For these two settings, options and the settings file of an option override variables.  A
    variable sets the socket only if no option names another data directory.

    Raises: Failure.
    """
    from leveret.config import MANAGEMENT_SOCKET, ConfigError, load, read_settings_file

    flags: dict[str, Any] = {} if config is None else {"config_file": config}
    try:
        if config is not None:
            told = read_settings_file(config)
            flags |= {key: told[key] for key in ("data_dir", "management_socket") if key in told}
        if data_dir is not None:
            flags["data_dir"] = data_dir
        found = load(flags)
        usual = found.data_dir / MANAGEMENT_SOCKET
        is_of_variable = found.management_socket != usual and "management_socket" not in flags
        if is_of_variable and load().data_dir.absolute() != found.data_dir.absolute():
            found = load(flags | {"management_socket": usual})
    except ConfigError as error:
        raise Failure("", CONFIG, *error.lines) from None
    return found


class PlaceGroup(SafeGroup):
    """A group whose commands also accept the group's options that name a broker."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with the options that name a broker moved to the front."""
        return super().parse_args(ctx, _place_first(args))


def _place_first(args: list[str]) -> list[str]:
    """Return the arguments with the options that name a broker, and their values, at the front.

    Arguments after `--` stay in their place.
    """
    place: list[str] = []
    rest: list[str] = []
    left = iter(args)
    for arg in left:
        if arg == "--":
            rest += [arg, *left]
        elif arg in _OPTIONS:
            place += [arg, *islice(left, 1)]
        elif arg.startswith(tuple(f"{option}=" for option in _OPTIONS)):
            place.append(arg)
        else:
            rest.append(arg)
    return place + rest
