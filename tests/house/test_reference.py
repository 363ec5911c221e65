"""Every command and every setting is documented: found by looking at them, not by a list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
import typer.main
from pydantic import BaseModel

from leveret.cli import app
from leveret.config import Settings

DOCS = Path(__file__).parents[2] / "docs"


def commands_of(group: Any, path: str) -> Iterator[str]:
    """Yield every command below a group, with the words that lead to it."""
    for name, command in group.commands.items():
        if getattr(command, "hidden", False):
            continue
        if hasattr(command, "commands"):
            yield from commands_of(command, f"{path} {name}")
        else:
            yield f"{path} {name}"


def settings_of(model: Any) -> Iterator[str]:
    """Yield the name of every setting, also of those inside others."""
    for name, field in model.model_fields.items():
        if hasattr(field.annotation, "model_fields"):
            yield from settings_of(field.annotation)
        else:
            yield name


def documentation() -> str:
    """Return all pages of `docs/` as one text."""
    return "\n".join(page.read_text() for page in sorted(DOCS.rglob("*.md")))


def test_every_command_is_documented() -> None:
    commands = list(commands_of(typer.main.get_command(app), "leveret"))
    text = documentation()
    assert commands
    assert [c for c in commands if not re.search(rf"\b{re.escape(c)}\b", text)] == []


def test_every_setting_is_documented() -> None:
    settings = list(settings_of(Settings))
    text = documentation()
    assert settings
    assert [s for s in settings if f"`{s}`" not in text] == []


def test_the_checks_see_commands_and_settings() -> None:
    class Inner(BaseModel):
        depth: int = 0

    class Outer(BaseModel):
        inner: Inner = Inner()
        width: int = 0

    made, group = typer.Typer(), typer.Typer()
    group.command("queues")(lambda: None)
    group.command("bindings")(lambda: None)
    made.add_typer(group, name="list")
    made.command("serve")(lambda: None)
    made.command("secret", hidden=True)(lambda: None)
    assert sorted(commands_of(typer.main.get_command(made), "leveret")) == [
        "leveret list bindings",
        "leveret list queues",
        "leveret serve",
    ]
    assert sorted(settings_of(Outer)) == ["depth", "width"]
