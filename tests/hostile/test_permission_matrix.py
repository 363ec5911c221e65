"""The permission matrix: every method and every route, for every kind of user, as it is declared.

`make matrix` tries more users on the same rows: every part of what a row needs, and every tag with
every right.
"""

from __future__ import annotations

from pathlib import Path

from support.hostile.hostile_matrix import read_matrix, try_methods, try_routes, undeclared


def test_every_method_and_route_is_declared() -> None:
    assert undeclared(read_matrix()) == []


def test_methods_do_what_is_declared() -> None:
    report = try_methods(read_matrix(), whole=False)
    assert report.differences == []
    assert report.refused > 300
    assert report.compared > 300


def test_routes_do_what_is_declared(tmp_path: Path) -> None:
    report = try_routes(read_matrix(), tmp_path, whole=False)
    assert report.differences == []
    assert report.refused > 1_000
    assert report.compared > 100
