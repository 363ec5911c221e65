"""The RabbitMQ of Debian's next release, beside the one that this machine has installed.

    .venv/bin/python bench/rabbitmq_next.py [--renew] [--run]

downloads it by apt from Debian's suite `testing` and unpacks it into a directory of its own (75 MB,
then 190 MB).  Nothing is installed: the machine's package lists, packages and services stay as they
are.  A node runs in that directory as its root, in a mount namespace that ends with it.

The directory is `~/.cache/leveret/rabbitmq-next` (below XDG_CACHE_HOME where that is set), or what
LEVERET_TEST_RABBITMQ_NEXT names.  It is made once; `--renew` makes it anew.  `--run` runs a node in
the foreground and prints its addresses.

Root is not required where the kernel lets users make namespaces.  RabbitMQError says in one
sentence why the directory cannot be made or the node not run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rabbitmq import RabbitMQ, RabbitMQError, serve

SUITE: Final = "testing"
KEYS: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

#: The server, and the programs of its scripts that no package depends on: every Debian has them.
PACKAGES: Final = (
    "rabbitmq-server", "coreutils", "dash", "findutils", "grep", "hostname", "libc-bin", "mawk",
    "procps", "sed", "util-linux",
)  # fmt: skip

#: Where a node sees its own directory.
NODE: Final = Path("/var/lib/rabbitmq")

#: Mounts what a node needs ($0: the root, $1: the node's directory) and runs the rest there.
INSIDE: Final = """
set -e
mount --rbind /proc "$0/proc"
mount --rbind /dev "$0/dev"
mount --bind "$1" "$0/var/lib/rabbitmq"
shift
exec /usr/sbin/chroot "$0" "$@"
"""


def place() -> Path:
    """Return the directory that it is unpacked into."""
    named = os.environ.get("LEVERET_TEST_RABBITMQ_NEXT")
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "leveret" / "rabbitmq-next"


def version(root: Path) -> str:
    """Return the version of the server below a root; "" where there is none."""
    servers = [path.name for path in root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")]
    return servers[0].removeprefix("rabbitmq_server-") if servers else ""


def namespace() -> list[str]:
    """Return the command that runs another one in a mount namespace."""
    as_root = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *as_root, "--"]


def obtain(*, renew: bool = False) -> Path:
    """Return the directory, made where it is missing.  Raises: RabbitMQError."""
    root = place()
    _try([*namespace(), "true"], "a mount namespace cannot be made: run this as root")
    if version(root) and not renew:
        return root
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise RabbitMQError(
            "Debian's packages cannot be downloaded: there is no apt-get or no dpkg-deb"
        )
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rabbitmq-next-", dir=root.parent) as made:
        new, archives = Path(made, "root"), Path(made, "archives")
        _unpack(_download(archives), new)
        if renew:
            shutil.rmtree(root, ignore_errors=True)
        # Another process may have made the directory meanwhile, which is as good.
        with contextlib.suppress(OSError):
            new.rename(root)
    return root


def _download(directory: Path) -> list[Path]:
    """Download the packages with all that they depend on.  Raises: RabbitMQError."""
    for name in ("lists/partial", "cache/partial", "parts"):
        (directory / name).mkdir(parents=True)
    (directory / "status").touch()
    (directory / "parts/next.sources").write_text(
        f"Types: deb\nURIs: {_mirror()}\nSuites: {SUITE}\nComponents: main\nSigned-By: {KEYS}\n"
    )
    settings = {
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": directory / "parts",
        "Dir::State::lists": directory / "lists",
        "Dir::State::status": directory / "status",
        "Dir::Cache": directory,
        "Dir::Cache::archives": directory / "cache",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "APT::Update::Error-Mode": "any",
        "Debug::NoLocking": "true",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    _try([*apt, "update"], "apt cannot reach Debian's mirror")
    _try([*apt, "--yes", "--download-only", "install", *PACKAGES], "apt cannot download RabbitMQ")
    return sorted((directory / "cache").glob("*.deb"))


def _mirror() -> str:
    """Return the mirror of Debian that this machine's apt uses.  Raises: RabbitMQError."""
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    lines = _try(asked, "apt does not say which mirrors it uses").split()
    found = [line for line in lines if line.rstrip("/").endswith("/debian")]
    if not found:
        raise RabbitMQError("apt has no mirror of Debian among its sources: add one")
    return found[0]


def _unpack(packages: Sequence[Path], root: Path) -> None:
    """Unpack packages into a root directory that a node can run in.  Raises: RabbitMQError."""
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in packages:
        _try(
            ["dpkg-deb", "--extract", str(package), str(root)], f"{package.name} cannot be unpacked"
        )
    for name in ("proc", "dev", "tmp", "etc"):
        (root / name).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    # The installation of the packages would make these.
    for name, target in (("awk", "mawk"), ("sh", "dash")):
        with contextlib.suppress(FileExistsError):
            (root / "usr/bin" / name).symlink_to(target)
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    if not version(root):
        raise RabbitMQError("Debian's package of RabbitMQ has no server where it is expected")


def _try(command: Sequence[str], failed: str) -> str:
    """Run a command and return its output.  Raises: RabbitMQError."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RabbitMQError(f"{failed}: {(ended.stderr or ended.stdout).strip()}")
    return ended.stdout


class NextRabbitMQ(RabbitMQ):
    """A node of the RabbitMQ of Debian's next release; a context manager."""

    def __init__(
        self, parent: Path | None = None, plugins: Sequence[str] = (), configuration: str = ""
    ) -> None:
        """Obtain the packages; the parameters are a RabbitMQ's.  Raises: RabbitMQError."""
        super().__init__(parent, plugins, configuration)
        self.root = obtain()

    @property
    def version(self) -> str:
        """The version of the server that was unpacked."""
        return version(self.root)

    def sync_definitions(self) -> None:
        """Do nothing: since 4.0 the node syncs its definitions before it answers."""

    def _require(self) -> None:
        """Nothing more is required than what `obtain` found."""

    def _command(self, directory: Path, command: list[str]) -> list[str]:
        return [*namespace(), "sh", "-c", INSIDE, str(self.root), str(directory), *command]

    def _seen(self, directory: Path) -> Path:
        del directory
        return NODE


def main() -> int:
    """Obtain it; say which version it has and where it is, or run a node."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--renew", action="store_true", help="download it again")
    parser.add_argument("--run", action="store_true", help="run a node until interrupted")
    options = parser.parse_args()
    try:
        root = obtain(renew=options.renew)
        if options.run:
            return serve(NextRabbitMQ())
    except RabbitMQError as error:
        sys.stderr.write(f"the RabbitMQ of Debian's next release cannot be used: {error}\n")
        return 1
    sys.stdout.write(f"RabbitMQ {version(root)} in {root}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
