"""Finds the users who can write to a directory with the broker's files or socket."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def other_writers(path: Path) -> str:
    """Return a description of the users who can replace files in a directory, or an empty string.

    Root, the user and the group of the process are trusted; Kubernetes sets that group on volumes.
    """
    try:
        found = path.stat()
    except OSError:
        return ""
    others = []
    if found.st_uid not in {0, os.geteuid()}:
        others.append(f"its owner (uid {found.st_uid})")
    if found.st_mode & stat.S_ISVTX:
        # With the sticky bit, users may replace only their own files.
        return "".join(others)
    if found.st_mode & stat.S_IWGRP and found.st_gid not in {0, os.getegid()}:
        others.append(f"its group (gid {found.st_gid})")
    if found.st_mode & stat.S_IWOTH:
        others.append("everybody")
    return ", ".join(others)
