"""File systems of our own: an ext4 on a loop file whose power can be cut.

A cut is a copy of the loop file, mounted in place of it: what the kernel had not yet written to the
loop device (all that nobody synced, since `commit` is far away) is not in the copy.

Not shown by it: a device that lies about its own cache, or that tears a sector.

Invariants: all mounts are in a mount namespace of this process's own, so that they end with it,
however it ends; the loop device goes with its mount.
"""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, Self

#: Sparse: only what is written takes space.
IMAGE_BYTES: Final = 4 << 30

#: The file system must not commit by itself while a load runs.
OPTIONS: Final = "loop,noatime,commit=300"

_CLONE_NEWNS: Final = 0x0002_0000


class Unsupported(Exception):
    """This machine cannot do it; the text says why."""


@functools.cache
def own_namespace() -> None:
    """Move this process, and those it will start, to a mount namespace of its own.

    Raises: Unsupported.
    """
    if os.geteuid() != 0:
        raise Unsupported("a mount needs root")
    # os.unshare came with Python 3.12.
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWNS) != 0:
        raise Unsupported(f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    command("mount", "--make-rprivate", "/")


def command(*words: str) -> None:
    """Run one of the system's commands.  Raises: Unsupported where it fails or is not there."""
    if shutil.which(words[0]) is None:
        raise Unsupported(f"{words[0]} is not installed")
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unsupported(f"{' '.join(words[:1])} failed: {done.stderr.strip()}")


class Image:
    """An ext4 of its own, mounted at `path`; a context manager."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="chaos-image-"))
        self.path = self.directory / "disk"
        self.path.mkdir()
        self._file = self.directory / "image"
        self._mounted = False

    def __enter__(self) -> Self:
        """Make and mount it.  Raises: Unsupported."""
        try:
            own_namespace()
            with self._file.open("wb") as file:
                file.truncate(IMAGE_BYTES)
            command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1", str(self._file))
            self._mount()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()

    def sync(self) -> None:
        """Write all that is in the kernel to the disk.  Raises: Unsupported."""
        command("sync", "-f", str(self.path))

    def cut(self) -> None:
        """Cut the power: what is at `path` is then what was on the disk.

        Nobody may use it meanwhile.  Raises: Unsupported.
        """
        copy = self._file.with_suffix(".copy")
        command("cp", "--sparse=always", str(self._file), str(copy))
        self._unmount()
        copy.replace(self._file)
        self._mount()

    def remove(self) -> None:
        """Unmount and remove it."""
        self._unmount()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _mount(self) -> None:
        command("mount", "-t", "ext4", "-o", OPTIONS, str(self._file), str(self.path))
        self._mounted = True

    def _unmount(self) -> None:
        if self._mounted:
            command("umount", str(self.path))
            self._mounted = False
