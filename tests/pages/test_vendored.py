"""What others wrote and the pages are made with is what they released, and says whose it is."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any

import pytest

from leveret.pages.assets import FILES

ROOT = Path(__file__).parents[2]
VENDOR = FILES / "vendor"
ROWS: list[dict[str, Any]] = tomllib.loads((VENDOR / "vendored.toml").read_text())["vendored"]

#: What may stand in the sources of a project with the Apache licence.
LICENCES = {"Apache-2.0", "MIT", "MPL-2.0"}


def place(name: str) -> Path:
    return ROOT / name if "/" in name else VENDOR / name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_a_file_is_the_one_that_was_released(row: dict[str, Any]) -> None:
    body = place(row["file"]).read_bytes()
    assert hashlib.sha256(body).hexdigest() == row["sha256"]
    assert row["origin"].startswith(f"{row['name']}@{row['version']}/")
    if added := row.get("added"):
        assert body.endswith(added.encode())
        released = body.removesuffix(added.encode())
        assert hashlib.sha256(released).hexdigest() == row["origin_sha256"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["file"])
def test_its_licence_is_beside_it(row: dict[str, Any]) -> None:
    words = {"Apache-2.0": "Apache License", "MIT": "MIT License", "MPL-2.0": "Mozilla Public"}
    for one in (row, *row.get("holds", ())):
        assert one["licence"] in LICENCES
        assert words[one["licence"]] in place(one["licence_file"]).read_text()


def test_each_file_of_others_has_a_row() -> None:
    files = {path.name for path in VENDOR.iterdir()} - {"vendored.toml"}
    files |= {f"tests/pages/vendor/{path.name}" for path in (ROOT / "tests/pages/vendor").iterdir()}
    told = {row["file"] for row in ROWS}
    told |= {one["licence_file"] for row in ROWS for one in (row, *row.get("holds", ()))}
    assert files == told
