"""Build Leveret: the modules named in `COMPILED` become C by mypyc where a compiler is there.

Without a compiler, or when compiling fails, the build falls back to plain Python and says so: the
same sources run as they are.  Which build is loaded is told by `leveret --version`, which looks at
what was loaded and never at what was meant to be built.

    LEVERET_PURE=1              build plain Python
    LEVERET_REQUIRE_COMPILED=1  fail where the build would fall back

It never builds in place and is never editable: a compiled module beside its source would shadow
every later edit of it.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError

SOURCE = Path("src/leveret")
COMPILED = (
    "message.py",
    "clock.py",
    "large_dict.py",
    "limits.py",
    "names.py",
    "errors.py",
    "chunk.py",
    "wire",
    "routing",
    "store",
    "broker",
    "session",
    "haremq",
    # What the client does with each message; its shells and the rest of its engine are not.
    "client/message.py",
    "client/acks.py",
    "client/numbering.py",
    "client/session/confirms.py",
    "client/session/intake.py",
    "client/session/kept.py",
    "client/session/output.py",
    "client/session/tally.py",
)
#: Interpreted on purpose; each says why in its docstring.
INTERPRETED = {
    "haremq/listener.py",
    "haremq/protobuf_codec.py",
    "wire/buffer.py",
    "wire/generate.py",
    "wire/generate_properties.py",
    "wire/spec.py",
    "store/disk.py",
}
INTERPRETED_FOLDERS = {"store/disks"}

#: The number of C files with the code of all modules.  It does not depend on the machine, so that
#: every build is the same.
PARTS = 4

#: What has gcc do most of its work when it links, in parts and on all processors.
SIDE_BY_SIDE = [f"-flto={os.cpu_count() or 1}", "-fno-fat-lto-objects"]

#: gcc's optimizations that find nothing in mypyc's C, and take a tenth of the time.
WITHOUT = [
    *("-fno-gcse", "-fno-tree-vrp", "-fno-tree-partial-pre", "-fno-split-paths"),
    *("-fno-tree-vectorize", "-fno-tree-slp-vectorize", "-fno-tree-loop-distribute-patterns"),
    *("-fno-unswitch-loops", "-fno-ipa-cp-clone"),
]

#: What `declare` has not declared is an error, where C would guess what it returns.
NOTHING_GUESSED = ["-Werror=implicit-function-declaration"] if os.name == "posix" else []

#: Functions are for this library alone, so that the compiler may inline them and call them without
#: a table: 6 % fewer instructions for a confirmed message.
NOT_EXPORTED = "-fvisibility=hidden"

#: Commands that need no extensions: pip runs them before the build, and each mypyc run takes as
#: long as a type check.
METADATA_COMMANDS = {"dist_info", "egg_info", "sdist"}


def main() -> None:
    """Run setuptools."""
    setup(
        ext_modules=[] if METADATA_COMMANDS & set(sys.argv) else extensions(),
        cmdclass={"build": CleanBuild, "build_ext": CompileOrFallBack},
    )


def extensions() -> list[Any]:
    """Return the extension modules, or none for plain Python."""
    if os.environ.get("LEVERET_PURE") == "1":
        return []
    try:
        from mypyc.build import mypycify
    except ImportError as error:
        fall_back(f"mypyc cannot be imported ({error})")
        return []
    os.environ.setdefault("MYPYPATH", "src")
    # At level 2 confirmed publishes cost the broker a fifth more time.
    options: dict[str, Any] = {"opt_level": "3", "debug_level": "0", "group_name": "leveret"}
    made = list(mypycify(modules(), multi_file=True, **options))
    for extension in made:
        paths = [Path(path) for path in extension.sources]
        if is_library(extension):
            extension.sources = [str(path) for path in parts(paths)]
        else:
            for path in paths:
                path.write_bytes(declare(path.read_bytes()))
    return made


def is_library(extension: Any) -> bool:
    """Return whether an extension contains all the code; the others load one module of it each."""
    return any(Path(source).name.startswith("__native") for source in extension.sources)


def parts(paths: list[Path]) -> list[Path]:
    """Join the C files of all modules into a few of equal size, and return their paths.

    The compiler reads the declarations of all modules for each file, so few files are quicker.  It
    inlines calls between the files when it links them.
    """
    native = sorted(path for path in paths if path.name.startswith("__native"))
    texts = [lighten(path.read_bytes()) for path in native]
    folder = native[0].parent
    runtime = sorted(path.relative_to(folder) for path in set(paths) - set(native))
    made = [b"".join(b'#include "%s"\n' % os.fsencode(path) for path in runtime)]
    most = sum(map(len, texts)) // PARTS + 1
    for text in texts:
        if len(made) == 1 or len(made[-1]) > most:
            made.append(b"")
        made[-1] += text
    names = [folder / f"__native_part_{number}.c" for number in range(len(made))]
    for name, text in zip(names, made, strict=True):
        name.write_bytes(text)
    return names


#: A module's own code, which runs once, and the functions by which interpreted code calls others.
TOP_LEVEL = re.compile(rb"^(char CPyDef_\w+_____top_level__\(void\))(?= *[;{])", re.MULTILINE)
WRAPPER = re.compile(rb"^(PyObject \*CPyPy_\w+\([^;\n]*\))(?= *\{$)", re.MULTILINE)


def lighten(text: bytes) -> bytes:
    """Return C that spares the compiler what costs it much and gives nothing.

    Nine tenths of mypyc's file are blanks before its lines.  A third of the rest is what runs once,
    when modules are imported, and a fifth only checks the arguments of calls: both are not worth
    what is done for fast code.
    """
    lighter = re.sub(rb"^[ \t]+", b"", text, flags=re.MULTILINE)
    lighter = WRAPPER.sub(rb"__attribute__((cold)) \1", lighter)
    return TOP_LEVEL.sub(rb"__attribute__((cold)) \1", lighter)


#: What mypyc's small files use of Python's headers.
DECLARATIONS = b"""
typedef struct _object PyObject;
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
#define Py_DECREF Py_DecRef
void Py_DecRef(PyObject *);
void PyErr_Clear(void);
PyObject *Py_BuildValue(const char *, ...);
PyObject *PyImport_ImportModuleLevel(const char *, PyObject *, PyObject *, PyObject *, int);
PyObject *PyObject_GetAttrString(PyObject *, const char *);
void *PyCapsule_GetPointer(PyObject *, const char *);
#define NULL ((void *)0)
"""


def declare(text: bytes) -> bytes:
    """Return C that declares the few functions it calls instead of reading Python's headers.

    There is such a file for each module, and most of its compiling is reading them.  They belong to
    Python's stable ABI, the same in each of its builds.
    """
    if os.name != "posix":
        return text
    return text.replace(b"#include <Python.h>\n", DECLARATIONS, 1)


def modules() -> list[str]:
    """Return the paths of the modules to compile."""
    found: list[Path] = []
    for name in COMPILED:
        path = SOURCE / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.exists() else []
    return [str(path) for path in found if is_compiled(path.relative_to(SOURCE))]


def is_compiled(module: Path) -> bool:
    """Tell whether a module of a compiled room is itself compiled."""
    return not (
        module.name == "__init__.py"
        or module.as_posix() in INTERPRETED
        or module.parent.as_posix() in INTERPRETED_FOLDERS
    )


def fall_back(why: str) -> None:
    """Say that the build is plain Python and why; end it where that is not wanted."""
    if os.environ.get("LEVERET_REQUIRE_COMPILED") == "1":
        sys.exit(f"leveret: LEVERET_REQUIRE_COMPILED=1, but {why}")
    line = "*" * 80
    sys.stderr.write(
        f"{line}\nleveret: NOT COMPILED: {why}.\n"
        "This build is plain Python: all features, about a tenth of the speed.\n"
        "A C compiler and Python's headers make it compiled (Debian: gcc python3-dev).\n"
        f"{line}\n"
    )


class CleanBuild(build):
    """A build that starts afresh, so that no module of an earlier one ends up in the wheel."""

    def run(self) -> None:
        """Remove what an earlier build left, then build."""
        for left in (self.build_lib, self.build_temp):
            shutil.rmtree(left, ignore_errors=True)
        super().run()


class CompileOrFallBack(build_ext):
    """Compiles all extensions or none."""

    def initialize_options(self) -> None:
        """Compile extensions side by side: one is large, the others are a few lines each."""
        super().initialize_options()
        self.parallel = True

    def build_extensions(self) -> None:
        """Compile without a look for what warnings tell of.

        On the code in one file gcc 12 spent 13 minutes with `-Wall`, which Python's own flags have,
        and 2.4 without it.  The C is mypyc's; mypy has judged what it was made of.
        """
        flags = getattr(self.compiler, "compiler_so", None)
        if isinstance(flags, list):
            kept = [flag for flag in flags if flag != "-Wall"]
            self.compiler.compiler_so = [*kept, NOT_EXPORTED]
        side_by_side = self.links_side_by_side()
        for extension in self.extensions:
            if not is_library(extension):
                extension.extra_compile_args = [*extension.extra_compile_args, *NOTHING_GUESSED]
            elif side_by_side:
                flags = [*SIDE_BY_SIDE, *WITHOUT]
                extension.extra_compile_args = [*extension.extra_compile_args, *flags]
                extension.extra_link_args = [*extension.extra_link_args, "-O3", *flags]
        super().build_extensions()

    def build_extension(self, ext: Any) -> None:
        """Compile the files of the library side by side, then link them."""
        if is_library(ext):
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                objects = list(pool.map(lambda source: self.object_of(source, ext), ext.sources))
            ext.extra_objects = [*ext.extra_objects, *objects]
            ext.sources = []
        super().build_extension(ext)

    def object_of(self, source: str, ext: Any) -> str:
        """Compile a file of an extension; return the path of its object."""
        made: list[str] = self.compiler.compile(
            [source],
            output_dir=self.build_temp,
            macros=ext.define_macros,
            include_dirs=ext.include_dirs,
            extra_postargs=ext.extra_compile_args,
            depends=ext.depends,
        )
        return made[0]

    def links_side_by_side(self) -> bool:
        """Tell whether the compiler can leave most of its work to the linking, on all processors.

        gcc then still sees the program as a whole, divides it when all has been inlined, and makes
        the same code however many processors there are.  It calls make for that.
        """
        if shutil.which("make") is None:
            return False
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text("int probe(void) { return 0; }\n")
            try:
                flags = [*SIDE_BY_SIDE, *WITHOUT]
                objects = self.compiler.compile([str(source)], output_dir="/", extra_postargs=flags)
                self.compiler.link_shared_object(
                    objects, str(Path(folder, "probe.so")), extra_postargs=flags
                )
            except (BaseError, CCompilerError, OSError):
                return False
        return True

    def run(self) -> None:
        """Compile; on failure leave plain Python behind, not half of each."""
        if self.inplace and self.extensions:
            sys.exit("leveret: build a wheel: compiled modules in place shadow later edits")
        try:
            super().run()
        except (BaseError, CCompilerError, OSError) as error:
            for extension in self.extensions:
                Path(self.get_ext_fullpath(extension.name)).unlink(missing_ok=True)
            self.extensions = []
            self.name_the_wheel_pure()
            fall_back(f"compiling failed ({error})")

    def name_the_wheel_pure(self) -> None:
        """Have the wheel bear the name of plain Python, which runs everywhere."""
        self.distribution.ext_modules = []
        wheel = self.distribution.get_command_obj("bdist_wheel", create=False)
        if isinstance(wheel, bdist_wheel):
            wheel.root_is_pure = True


if __name__ == "__main__":
    main()
