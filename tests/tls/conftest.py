"""Certificates of the tests' own, made once for a session."""

from __future__ import annotations

import pytest

from support.brokers.secure import Pki


@pytest.fixture(scope="session")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    """Return certificates of a broker and of clients."""
    return Pki(tmp_path_factory.mktemp("pki"))
