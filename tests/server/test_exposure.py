"""What a broker warns of at its start: ports that others than this machine's users can reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_process import BrokerProcess

PLAIN = "a port without TLS is listened on beyond this machine"
GUEST = "the user guest has its default password"
METRICS = "metrics need no password"

#: All addresses of this machine; nobody but the test knows the port.
EVERYWHERE = "0.0.0.0"  # noqa: S104


def warned(process: BrokerProcess) -> list[str]:
    """Return the warnings of exposure in what a started broker printed."""
    said = [line for line in process.output.splitlines() if "warning" in line.lower()]
    return [text for line in said for text in (PLAIN, GUEST, METRICS) if text in line]


@pytest.mark.parametrize(
    ("host", "settings", "warnings"),
    [
        ("127.0.0.1", {}, []),
        ("localhost", {}, []),
        (EVERYWHERE, {}, [PLAIN, GUEST]),
        ("127.0.0.1", {"http_host": EVERYWHERE}, [PLAIN, GUEST]),
        ("127.0.0.1", {"http_host": EVERYWHERE, "http": "false"}, []),
        ("127.0.0.1", {"metrics_host": EVERYWHERE}, [METRICS]),
        (EVERYWHERE, {"default_pass": "of-its-own"}, [PLAIN]),
    ],
)
def test_exposure_is_warned_of(
    tmp_path: Path, host: str, settings: dict[str, str], warnings: list[str]
) -> None:
    with BrokerProcess(tmp_path / "data", host=host, settings=settings) as process:
        assert sorted(set(warned(process))) == sorted(warnings)


def test_it_is_warned_of_at_each_start_until_the_password_is_another(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", host=EVERYWHERE) as process:
        assert GUEST in warned(process)
        process.kill()
        process.start()
        assert GUEST in warned(process)
