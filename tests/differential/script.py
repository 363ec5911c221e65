"""What a script is: a function that plays on a stage, with the behaviour's number and a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from differential.stage import Host, Stage

Play = Callable[[Stage], None]


@dataclass(frozen=True)
class Script:
    """A script of the behaviours `rows`; its name is that of its module and its function."""

    name: str
    rows: tuple[int, ...]
    play: Play

    def run(self, host: Host) -> list[str]:
        """Play it on a broker and return the transcript; a fault of the play is a line too."""
        stage = Stage(host, f"{self.name}.")
        try:
            self.play(stage)
        except Exception as error:  # noqa: BLE001 - what a broker answered, the script met
            stage.note(f"(the script broke off: {type(error).__name__} {error})")
        stage.finish()
        return stage.transcript.lines


SCRIPTS: Final[dict[str, Script]] = {}


def script(*rows: int) -> Callable[[Play], Play]:
    """Enter a function as a script of these behaviours."""

    def enter(play: Play) -> Play:
        name = f"{play.__module__.rpartition('.')[2]}.{play.__name__}"
        assert name not in SCRIPTS, name
        SCRIPTS[name] = Script(name, rows, play)
        return play

    return enter
