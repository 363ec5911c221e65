"""The names of commands and settings, for tests of their documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def commands_of(group: Any, path: str) -> Iterator[str]:
    """Yield every command of a group, with its full path."""
    for name, command in group.commands.items():
        if getattr(command, "hidden", False):
            continue
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


def settings_of(model: Any) -> Iterator[str]:
    """Yield the name of every setting, including nested ones."""
    for name, field in model.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            yield from settings_of(field.annotation)
        else:
            yield name
