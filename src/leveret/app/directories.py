"""Who else may write to a directory that the broker keeps its files or its socket in."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def other_writers(path: Path) -> str:
    """Return who may replace files in a directory beside root and this user, nothing for nobody.

    The group of the process is taken for its own, as where Kubernetes sets the group of a volume.
    """
    try:
        found = path.stat()
    except OSError:
        return ""
    others = []
    if found.st_uid not in {0, os.geteuid()}:
        others.append(f"its owner (uid {found.st_uid})")
    if found.st_mode & stat.S_ISVTX:
        # Others may write there, but not replace what is not theirs.
        return "".join(others)
    if found.st_mode & stat.S_IWGRP and found.st_gid not in {0, os.getegid()}:
        others.append(f"its group (gid {found.st_gid})")
    if found.st_mode & stat.S_IWOTH:
        others.append("everybody")
    return ", ".join(others)
