"""Contexts: a user's names for brokers on other machines, stored in one file.

    current = "prod"

    [context.prod]
    api = "https://broker.example.org:15671"
    uri = "amqps://broker.example.org"
    user = "admin"
    password_file = "/home/ann/.leveret-prod"

The file is `leveret/contexts.toml` in the user's configuration directory (`XDG_CONFIG_HOME`, by
default `~/.config`).  It may contain passwords, so it is refused if other users can read it.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tempfile
import tomllib
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Final, Self

import msgspec

from leveret.cli.exits import CANNOT_CREATE, CONFIG, USAGE, Failure

#: The maximum size of the file.
_FILE_BYTES_MAX: Final = 1024 * 1024

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Context:
    """The addresses and the credentials for one broker; an empty field is not set."""

    #: The HTTP API, such as https://host:15671.
    api: str = ""
    #: The AMQP URI.
    uri: str = ""
    user: str = ""
    password: str = field(default="", repr=False)
    password_file: str = ""
    #: PEM files: the trusted authorities, and the client's certificate and key.
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


#: The fields of a context.
FIELDS: Final = tuple(one.name for one in fields(Context))


@dataclass
class Contexts:
    """All contexts of a user, and the name of the current one, or "" if there is none."""

    path: Path
    by_name: dict[str, Context] = field(default_factory=dict)
    current: str = ""

    @classmethod
    def load(cls, path: Path | None = None) -> Self:
        """Read the file; without a file there are no contexts.  Raises: Failure."""
        place = path or default_path()
        try:
            with place.open("rb") as file:
                mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
                raw = file.read(_FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return cls(place)
        except OSError as error:
            raise Failure(f"{place}: {error.strerror}", CONFIG) from None
        if mode & 0o077:
            text = f"{place} may contain passwords, but other users can read it: chmod 600 {place}"
            raise Failure(text, CONFIG)
        try:
            if len(raw) > _FILE_BYTES_MAX:
                raise ValueError(f"it has more than {_FILE_BYTES_MAX} bytes")
            return cls(place, *_parse(tomllib.loads(raw.decode())))
        except (ValueError, msgspec.ValidationError) as error:
            raise Failure(f"{place}: {error}", CONFIG) from None

    def get(self, name: str) -> Context:
        """Return a context.  Raises: Failure for an unknown name."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none"
            text = f"no context {name!r} in {self.path}; known: {known}"
            raise Failure(text, CONFIG, hint="leveret context set NAME --api URL makes one")
        return self.by_name[name]

    def save(self) -> None:
        """Replace the file atomically; only its owner can read it.  Raises: Failure."""
        lines = [f"current = {json.dumps(self.current, ensure_ascii=False)}\n"]
        for name, context in sorted(self.by_name.items()):
            lines.append(f"\n[context.{json.dumps(name, ensure_ascii=False)}]\n")
            for key, value in asdict(context).items():
                if value:
                    lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}\n")
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            number, made = tempfile.mkstemp(dir=self.path.parent, prefix=".contexts-")
            try:
                with os.fdopen(number, "w", encoding="utf-8") as file:
                    file.write("".join(lines))
                Path(made).replace(self.path)
            except BaseException:
                Path(made).unlink(missing_ok=True)
                raise
        except OSError as error:
            text = f"cannot write {self.path}: {error.strerror}"
            raise Failure(text, CANNOT_CREATE) from None


def home() -> Path:
    """Return the user's home directory, or one that does not exist if they have none."""
    try:
        return Path.home()
    except RuntimeError:
        # Without HOME, and with a user id that no account has, as in some containers.
        return Path("/nonexistent")


def default_path() -> Path:
    """Return the path of the user's file."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # A relative path must be ignored (XDG Base Directory Specification).
    root = Path(base) if base.startswith("/") else home() / ".config"
    return root / "leveret" / "contexts.toml"


def check_text(value: str, what: str) -> str:
    """Return `value` if the contexts file can store it.  Raises: Failure."""
    if _CONTROL.search(value):
        raise Failure(f"{what} contains a control character", USAGE)
    return value


class _ContextsFile(msgspec.Struct, forbid_unknown_fields=True):
    """The contents of the file."""

    current: str = ""
    context: dict[str, dict[str, str]] = {}


def _parse(found: dict[str, object]) -> tuple[dict[str, Context], str]:
    """Return the contexts and the name of the current one.  Raises: ValueError; ValidationError."""
    file = msgspec.convert(found, _ContextsFile)
    for name, table in file.context.items():
        for key in table.keys() - FIELDS:
            raise ValueError(f"[context.{name}]: {key!r} is unknown; known: {', '.join(FIELDS)}")
    if file.current and file.current not in file.context:
        text = f"`current` is {file.current!r}, but [context.{file.current}] is missing"
        raise ValueError(text)
    return {name: Context(**table) for name, table in file.context.items()}, file.current
