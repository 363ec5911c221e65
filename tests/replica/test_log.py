"""Where a follower's log and a leader's part, by the epochs of both."""

from __future__ import annotations

import pytest

from replica.model.log import Group, Log, Start, history_of, last_common

pytestmark = pytest.mark.one_build


def log_of(*epochs: int) -> Log:
    """Return a log of groups of these epochs, whose contents are alike in each log."""
    return tuple(Group(epoch, 100 * epoch + number) for number, epoch in enumerate(epochs, 1))


def test_a_history_has_the_first_group_of_each_epoch() -> None:
    assert history_of(log_of(1, 1, 3, 4, 4)) == (Start(1, 1), Start(3, 3), Start(4, 4))
    assert history_of(()) == ()


@pytest.mark.parametrize(
    ("follower", "leader", "common"),
    [
        ((), (1,), 0),
        ((1, 1), (1, 1, 3), 2),
        ((1, 1, 1), (1, 1, 3), 2),
        ((1, 2), (1, 1, 3), 1),
        ((2,), (1, 3), 0),
        ((1, 1, 2), (1, 3), 1),
        ((1, 3, 3, 3), (1, 3), 4),  # the leader has written more since it said so
    ],
)
def test_the_last_common_group(
    follower: tuple[int, ...], leader: tuple[int, ...], common: int
) -> None:
    assert last_common(log_of(*follower), history_of(log_of(*leader))) == common
