"""The names of topics and clusters: no two clusters share one, and what cannot be is refused."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import leveret
from leveret.client.clusters.names import ClusterNames, checked_name
from leveret.limits import CLUSTER_MEMBERS_MAX, CLUSTER_PARTITIONS_MAX

PARTS = st.text(alphabet=".-0a@ü", min_size=1, max_size=6).filter(lambda name: "@" not in name)


def all_names(names: ClusterNames) -> list[str]:
    """Return all names that follow from those of a topic and a cluster, its topic apart."""
    queues = {names.exchange, *(names.queue(number) for number in range(CLUSTER_PARTITIONS_MAX))}
    places = {names.place(number) for number in range(CLUSTER_MEMBERS_MAX)}
    return [*queues, *places, names.dead_letters, names.layout]


@given(st.tuples(PARTS, PARTS), st.tuples(PARTS, PARTS))
def test_two_clusters_share_no_name(one: tuple[str, str], other: tuple[str, str]) -> None:
    first, second = ClusterNames(*one), ClusterNames(*other)
    assert len(set(all_names(first))) == len(all_names(first))
    if one != other:
        assert set(all_names(first)).isdisjoint(all_names(second))
    assert one[0] not in all_names(first)


@pytest.mark.parametrize("name", ["", "a@b", "@", "amq.orders", "a\nb", "a\0", "\x7f"])
def test_a_name_that_would_be_misread_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="topic"):
        checked_name("topic", name)
    with pytest.raises(ValueError, match="cluster"):
        ClusterNames("orders", name)


def test_names_are_text() -> None:
    with pytest.raises(TypeError, match="topic must be a str, not bytes"):
        checked_name("topic", b"orders")  # type: ignore[arg-type]  # what is refused
    with pytest.raises(ValueError, match="lone surrogate"):
        checked_name("topic", "\udc80")


def test_dots_and_utf_8_are_names() -> None:
    names = ClusterNames("eu.orders", "Größe.β", 2)
    assert names.exchange == "eu.orders@Größe.β"
    assert names.queues == ("eu.orders@Größe.β@0", "eu.orders@Größe.β@1")


def test_the_longest_name_that_follows_has_255_bytes() -> None:
    assert checked_name("topic", "t" * 255) == "t" * 255
    room = 255 - len("@c@partitions-0")
    names = ClusterNames("ü" * (room // 2), "c")
    assert max(len(name.encode()) for name in all_names(names)) <= 255
    assert len(names.layout.encode()) == 255 - room % 2
    with pytest.raises(ValueError, match=r"too long together.*256 bytes"):
        ClusterNames("t" * (room + 1), "c")


def test_a_cluster_has_a_number_of_partitions() -> None:
    assert len(ClusterNames("t", "c", CLUSTER_PARTITIONS_MAX).queues) == CLUSTER_PARTITIONS_MAX
    for number in (-1, CLUSTER_PARTITIONS_MAX + 1):
        with pytest.raises(ValueError, match="0 to 256 partitions"):
            ClusterNames("t", "c", number)


def test_the_package_has_the_names_and_loads_them_late() -> None:
    code = "import sys, leveret; print(sorted(n for n in sys.modules if n.startswith('leveret')))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['leveret']"
    for name in leveret.__all__:
        assert name in dir(leveret)
        assert getattr(leveret, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = leveret.Nothing  # type: ignore[attr-defined]  # what is not there
