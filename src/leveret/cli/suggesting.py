"""Command groups that suggest similar commands for an unknown command, but no destructive ones."""

from __future__ import annotations

import difflib
from typing import Any, Final

import typer
from typer.core import TyperGroup

from leveret.cli.exits import USAGE
from leveret.cli.printing import output

#: The prefixes of destructive commands.
_DESTROYING: Final = ("delete", "purge", "clear", "cancel", "rewind", "restore")


class SafeGroup(TyperGroup):
    """A command group that never suggests a destructive command."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.suggest_commands = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, or print the help if there are none."""
        if not args and self.no_args_is_help and not ctx.resilient_parsing:
            # typer would print the help as an error, in which line feeds are escaped.
            output.say_lines(ctx.get_help(), err=True)
            raise typer.Exit(USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the arguments name.  Raises: typer's error if it is unknown."""
        try:
            return super().resolve_command(ctx, args)
        except typer.TyperException as error:
            harmless = [name for name in self.commands if not name.startswith(_DESTROYING)]
            near = difflib.get_close_matches(args[0], harmless) if args else []
            message = getattr(error, "message", "")
            if near and message:
                names = ", ".join(repr(name) for name in near)
                error.message = f"{message.rstrip('.')}. Did you mean {names}?"
            raise
