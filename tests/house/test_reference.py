"""Every command and every setting is documented; they are found in the code, not in a list."""

from __future__ import annotations

import re
from pathlib import Path

import typer
import typer.main
from pydantic import BaseModel

from leveret.cli import app
from leveret.config import Settings
from support.commands.names_of import commands_of, settings_of

DOCS = Path(__file__).parents[2] / "docs"


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
