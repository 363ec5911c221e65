"""`python -m leveret` runs the `leveret` command."""

from __future__ import annotations

from leveret.cli import main

if __name__ == "__main__":
    main()
