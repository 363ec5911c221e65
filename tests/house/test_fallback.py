"""The build falls back to plain Python as a whole, reports it, and does not if it must not."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from types import ModuleType

import pytest
from setuptools import Distribution, Extension

ROOT = Path(__file__).parents[2]
GOOD = "#include <Python.h>\nPyMODINIT_FUNC PyInit_good(void) { return NULL; }\n"
BAD = "#error this does not compile\n"


@pytest.fixture
def build() -> ModuleType:
    """The project's own setup script."""
    spec = importlib.util.spec_from_file_location("leveret_setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_into(
    folder: Path, build: ModuleType, sources: dict[str, str], prefix: str = "__native_"
) -> list[str]:
    """Compile one extension per source by the project's rule; return the compiled modules.

    Only the file with all the code has `__native_` in its name, which mypyc gives it.
    """
    extensions = []
    for name, text in sources.items():
        path = folder / f"{prefix}{name}.c"
        path.write_text(text)
        extensions.append(Extension(name, [str(path)]))
    command = build.CompileOrFallBack(Distribution({"name": "x", "ext_modules": extensions}))
    command.build_lib = str(folder / "lib")
    command.build_temp = str(folder / "temp")
    command.ensure_finalized()
    command.run()
    return sorted(path.name.split(".")[0] for path in (folder / "lib").glob("*.so"))


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LEVERET_REQUIRE_COMPILED", raising=False)
    monkeypatch.delenv("LEVERET_PURE", raising=False)


#: A compiler that records its calls, and fails for files that match a shell pattern.
COMPILER = """#!/bin/sh
echo "$*" >> {log}
for argument; do
  case $argument in {refused}) exit 1 ;; esac
done
exec gcc "$@"
"""


def compile_with(
    folder: Path,
    build: ModuleType,
    patch: pytest.MonkeyPatch,
    refused: str,
    prefix: str = "__native_",
) -> tuple[list[str], list[str]]:
    """Compile with that compiler; return the compiled modules and its recorded calls."""
    compiler, log = folder / "cc", folder / "log"
    compiler.write_text(COMPILER.format(log=log, refused=refused))
    compiler.chmod(0o755)
    patch.setenv("CC", str(compiler))
    found = compile_into(folder, build, {"good": GOOD}, prefix)
    return found, [line for line in log.read_text().splitlines() if "good" in line]


@pytest.mark.skipif(shutil.which("make") is None, reason="gcc divides its work by make")
def test_all_processors_compile(
    tmp_path: Path, build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, asked = compile_with(tmp_path, build, monkeypatch, "-nothing")
    assert found == ["good"]
    assert all("-flto=" in line for line in asked)


def test_a_compiler_that_cannot_divide_its_work_compiles_as_well(
    tmp_path: Path, build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, asked = compile_with(tmp_path, build, monkeypatch, "-flto=*")
    assert found == ["good"]
    assert asked
    assert not any("-flto" in line for line in asked)


def test_a_file_of_a_few_lines_is_not_divided(
    tmp_path: Path, build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, asked = compile_with(tmp_path, build, monkeypatch, "-nothing", prefix="")
    assert found == ["good"]
    assert asked
    assert not any("-flto" in line for line in asked)


def test_c_is_made_lighter_and_says_the_same(build: ModuleType) -> None:
    text = b'char CPyDef_x_____top_level__(void) {\n\t  return f(" a  b");\n}\nint g(void)\n'
    assert build.lighten(text) == (
        b"__attribute__((cold)) char CPyDef_x_____top_level__(void) {\n"
        b'return f(" a  b");\n}\nint g(void)\n'
    )


def test_what_loads_a_module_is_compiled_without_the_headers(
    tmp_path: Path, build: ModuleType
) -> None:
    declared = build.declare(GOOD.encode()).decode()
    assert "#include" not in declared
    assert compile_into(tmp_path, build, {"good": declared}, prefix="") == ["good"]


def test_what_is_not_declared_is_not_guessed(tmp_path: Path, build: ModuleType) -> None:
    text = build.declare(GOOD.replace("return NULL", "return PyList_New(0)").encode()).decode()
    assert compile_into(tmp_path, build, {"good": text}, prefix="") == []


def test_what_compiles_is_compiled(tmp_path: Path, build: ModuleType) -> None:
    assert compile_into(tmp_path, build, {"good": GOOD}) == ["good"]


def test_a_failure_leaves_no_half_compiled_package(
    tmp_path: Path, build: ModuleType, capfd: pytest.CaptureFixture[str]
) -> None:
    assert compile_into(tmp_path, build, {"good": GOOD, "bad": BAD}) == []
    assert "NOT COMPILED: compiling failed" in capfd.readouterr().err


def test_a_wheel_that_is_plain_python_says_so(tmp_path: Path, build: ModuleType) -> None:
    path = tmp_path / "bad.c"
    path.write_text(BAD)
    modules = [Extension("bad", [str(path)])]
    distribution = Distribution({"name": "x", "version": "1", "ext_modules": modules})
    wheel = distribution.get_command_obj("bdist_wheel")
    wheel.ensure_finalized()
    assert wheel.get_tag() != ("py3", "none", "any")
    command = build.CompileOrFallBack(distribution)
    command.build_lib = str(tmp_path / "lib")
    command.build_temp = str(tmp_path / "temp")
    command.ensure_finalized()
    command.run()
    assert wheel.get_tag() == ("py3", "none", "any")


def test_no_compiler_means_plain_python(
    tmp_path: Path,
    build: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CC", "/nonexistent/cc")
    assert compile_into(tmp_path, build, {"good": GOOD}) == []
    assert "NOT COMPILED" in capfd.readouterr().err


def test_a_required_compiled_build_fails_instead(
    tmp_path: Path, build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERET_REQUIRE_COMPILED", "1")
    with pytest.raises(SystemExit, match="LEVERET_REQUIRE_COMPILED=1, but compiling failed"):
        compile_into(tmp_path, build, {"bad": BAD})


def test_pure_asks_for_no_extensions(build: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERET_PURE", "1")
    assert build.extensions() == []


def test_it_is_never_built_in_place(build: ModuleType) -> None:
    command = build.CompileOrFallBack(
        Distribution({"name": "x", "ext_modules": [Extension("bad", ["bad.c"])]})
    )
    command.inplace = True
    command.ensure_finalized()
    with pytest.raises(SystemExit, match="in place"):
        command.run()


def test_the_compiled_rooms_are_those_of_the_house(
    build: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    names = {Path(path).relative_to("src/leveret").as_posix() for path in build.modules()}
    assert {"message.py", "errors.py", "routing/topic.py"} <= names
    assert not {"wire/buffer.py", "wire/generate.py", "store/disk.py"} & names
    assert not [name for name in names if name.startswith(("server/", "cli/"))]
    session = {"confirms", "intake", "kept", "output", "tally"}
    engine = {"acks", "message", "numbering", *(f"session/{name}" for name in session)}
    found = {name for name in names if name.startswith("client/")}
    assert found == {f"client/{name}.py" for name in engine}
