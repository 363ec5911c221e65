"""The command line of programs that run scenarios one after the other, as `chaos` and `soak`."""

from __future__ import annotations

import argparse
import secrets
from collections.abc import Sequence


def arguments(program: str, doc: str | None, names: Sequence[str]) -> argparse.Namespace:
    """Parse it: `only` (a list of names), `share` (above 0) and `seed` (random by default)."""
    parser = argparse.ArgumentParser(prog=program, description=(doc or "").splitlines()[0])
    parser.add_argument("--only", metavar="NAMES", help=f"of {', '.join(names)}; with commas")
    parser.add_argument("--share", type=float, default=1.0, help="of the full counts")
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    given.only = given.only.split(",") if given.only else list(names)
    if unknown := set(given.only) - set(names):
        parser.error(f"no scenario {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    if given.share <= 0:
        parser.error("--share is more than 0")
    if given.seed is None:
        given.seed = secrets.randbelow(1 << 32)
    return given
