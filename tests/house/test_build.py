"""The loaded build: entirely compiled or entirely pure, and never from the sources."""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import sysconfig
from pathlib import Path

import pytest

import leveret
from leveret.wire.buffer import COMPILED

pytestmark = pytest.mark.both_builds

#: Modules that are compiled in a compiled build, one of each compiled room that has modules.
ROOMS = ("wire", "routing", "store", "broker", "session", "haremq")
#: Modules of the client that handle each message.
CLIENT = ("acks", "message", "numbering", "session.intake", "session.output")
GROUND_FLOOR = ("message", "clock", "limits", "errors", "chunk")
INTERPRETED = (
    "leveret.haremq.listener",
    "leveret.haremq.protobuf_codec",
    "leveret.wire.buffer",
    "leveret.wire.generate",
    "leveret.wire.generate_properties",
    "leveret.wire.spec",
    "leveret.store.disk",
)
INTERPRETED_FOLDERS = ("leveret.store.disks.",)


def core_modules() -> list[str]:
    """Return the names of all modules that a compiled build compiles, as installed."""
    names = [name for name in GROUND_FLOOR if importlib.util.find_spec(f"leveret.{name}")]
    found = [f"leveret.{name}" for name in names]
    found += [f"leveret.client.{name}" for name in CLIENT]
    for room in ROOMS:
        package = importlib.import_module(f"leveret.{room}")
        for module in pkgutil.walk_packages(package.__path__, f"leveret.{room}."):
            kept_plain = module.name in INTERPRETED or module.name.startswith(INTERPRETED_FOLDERS)
            if not module.ispkg and not kept_plain:
                found.append(module.name)
    return found


def test_the_build_is_the_expected_one() -> None:
    expected = os.environ.get("LEVERET_EXPECT_BUILD")
    if expected is None:
        pytest.skip("LEVERET_EXPECT_BUILD is not set: run by `make test`")
    assert expected == ("compiled" if COMPILED else "pure")


def test_the_package_is_installed_and_not_the_sources() -> None:
    # The modules of a distribution are in platlib or purelib, those of a checkout in neither.
    installed = {Path(sysconfig.get_path(kind)).resolve() for kind in ("platlib", "purelib")}
    assert Path(leveret.__file__).resolve().parent.parent in installed


@pytest.mark.parametrize("name", core_modules())
def test_every_core_module_is_of_the_one_build(name: str) -> None:
    origin = importlib.import_module(name).__file__
    assert origin is not None
    assert origin.endswith(".so") is COMPILED


def test_no_compiled_module_lies_beside_its_source() -> None:
    sources = Path(__file__).parents[2] / "src"
    assert list(sources.rglob("*.so")) == []


@pytest.mark.parametrize("name", INTERPRETED)
def test_what_stays_interpreted_is_interpreted_in_both_builds(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None:
        pytest.skip(f"{name} is not in this version")
    assert spec.origin is not None
    assert spec.origin.endswith(".py")
