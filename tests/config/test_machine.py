"""What control groups allow a process, read from trees of files as systems of each kind have them.

Each tree is what /proc and /sys/fs/cgroup hold of one process: in a container or not, in version 1
or 2 of control groups.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from leveret import machine
from leveret.config import memory_share
from leveret.limits import PROGRAM_BYTES, THREADS_LEAST

MIB = 1024 * 1024

VERSION_2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

#: Without a namespace of its own, a container sees its own group where it is mounted.
DOCKER_1 = "".join(
    f"{number} 31 0:30 /docker/1f /sys/fs/cgroup/{name} ro - cgroup cgroup rw,{name}\n"
    for number, name in enumerate(("memory", "cpu,cpuacct", "pids"), 32)
)
#: The machine of a hybrid: version 2 is there, and the controllers are those of version 1.
HYBRID = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "36 31 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
    "37 31 0:34 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
NONE_1 = "9223372036854771712"


def tree(root: Path, groups: str, mounts: str, files: dict[str, str]) -> Path:
    """Make a root with a process in some groups; `files` lie below /sys/fs/cgroup."""
    texts = {"proc/self/cgroup": groups, "proc/self/mountinfo": mounts}
    texts |= {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    for name, text in texts.items():
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n" * (name in files))
    return root


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "says"),
    [
        pytest.param(
            "0::/system.slice/leveret.service\n",
            VERSION_2,
            {"system.slice/leveret.service/memory.max": str(400 * MIB)},
            "system.slice/leveret.service/memory.max",
            id="systemd",
        ),
        pytest.param(
            "0::/a.slice/b.service\n",
            VERSION_2,
            {
                "a.slice/b.service/memory.max": "max",
                "a.slice/memory.max": str(400 * MIB),
                "a.slice/memory.high": "max",
            },
            "a.slice/memory.max",
            id="slice-above",
        ),
        pytest.param(
            "0::/a.slice/b.service\n",
            VERSION_2,
            {
                "a.slice/b.service/memory.max": str(800 * MIB),
                "a.slice/b.service/memory.high": str(400 * MIB),
                "a.slice/memory.max": str(600 * MIB),
            },
            "a.slice/b.service/memory.high",
            id="slowed-down-before",
        ),
        pytest.param(
            "0::/\n", VERSION_2, {"memory.max": str(400 * MIB)}, "memory.max", id="container"
        ),
        pytest.param(
            "0::/../../other\n",
            VERSION_2,
            {"memory.max": str(400 * MIB)},
            "memory.max",
            id="moved-out-of-its-namespace",
        ),
        pytest.param(
            "12:memory:/docker/1f\n3:cpu,cpuacct:/docker/1f\n1:name=systemd:/docker/1f\n",
            DOCKER_1,
            {"memory/memory.limit_in_bytes": str(400 * MIB)},
            "memory/memory.limit_in_bytes",
            id="container-1",
        ),
        pytest.param(
            "5:pids:/x\n4:memory:/a/b\n0::/a/b\n",
            HYBRID,
            {
                "memory/a/b/memory.limit_in_bytes": NONE_1,
                "memory/a/memory.limit_in_bytes": str(400 * MIB),
                "memory/memory.limit_in_bytes": NONE_1,
                "unified/a/b/cgroup.procs": "1",
            },
            "memory/a/memory.limit_in_bytes",
            id="hybrid",
        ),
        pytest.param(
            "0::/with space\\x2d.slice\n",
            VERSION_2.replace(" / /", r" /with\040space\134x2d.slice /"),
            {"memory.max": str(400 * MIB)},
            "memory.max",
            id="escaped",
        ),
        pytest.param(
            "cut off\n0::/\n",
            # A user of FUSE mounts under any name; the kernel escapes blanks and line feeds alone.
            "40 23 0:41 / /home/u/\r\f\v\x1c\x85\u2028 rw - fuse.x x rw\ncut off\n" + VERSION_2,
            {"memory.max": str(400 * MIB), "memory.high": "-1"},
            "memory.max",
            id="strange-names",
        ),
    ],
)
def test_the_least_limit_of_memory_upwards_is_found(
    tmp_path: Path, groups: str, mounts: str, files: dict[str, str], says: str
) -> None:
    root = tree(tmp_path, groups, mounts, files)
    found = machine.memory(root)
    assert found == machine.Bound(400 * MIB, str(root / "sys/fs/cgroup" / says))


@pytest.mark.parametrize("text", ["max", NONE_1, "", "-1x"])
def test_without_a_limit_it_is_the_machines_memory(tmp_path: Path, text: str) -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    expected = machine.Bound(total, "the machine")
    assert machine.memory(tree(tmp_path, "0::/\n", VERSION_2, {"memory.max": text})) == expected
    assert machine.memory(tmp_path / "nothing") == expected


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "says"),
    [
        ("0::/a\n", VERSION_2, {"a/cpu.max": "50000 100000"}, "a/cpu.max"),
        ("0::/a/b\n", VERSION_2, {"a/b/cpu.max": "max 100000", "a/cpu.max": "9 10"}, "a/cpu.max"),
        (
            "4:cpu:/a\n",
            HYBRID,
            {"cpu/a/cpu.cfs_quota_us": "100000", "cpu/a/cpu.cfs_period_us": "100000"},
            "cpu/a/cpu.cfs_quota_us",
        ),
        (
            "4:cpu,cpuacct:/docker/1f\n",
            DOCKER_1,
            {
                "cpu,cpuacct/cpu.cfs_quota_us": "5000",
                "cpu,cpuacct/cpu.cfs_period_us": "100000",
            },
            "cpu,cpuacct/cpu.cfs_quota_us",
        ),
    ],
)
def test_a_quota_of_processors_counts_parts_as_one(
    tmp_path: Path, groups: str, mounts: str, files: dict[str, str], says: str
) -> None:
    found = machine.processors(tree(tmp_path, groups, mounts, files))
    assert found.amount == 1
    # A machine with one processor has none to take away.
    assert found.source in {"the machine", str(tmp_path / "sys/fs/cgroup" / says)}
    assert (os.cpu_count() == 1) is (found.source == "the machine")


@pytest.mark.parametrize("quota", ["max 100000", "-1 100000", "100000 0", "", "x y"])
def test_no_quota_leaves_the_processors_that_the_process_may_run_on(
    tmp_path: Path, quota: str
) -> None:
    found = machine.processors(tree(tmp_path, "0::/\n", VERSION_2, {"cpu.max": quota}))
    assert found.amount == len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("groups", "mounts", "name"),
    [("0::/a\n", VERSION_2, "a/pids.max"), ("8:pids:/a\n", HYBRID, "pids/a/pids.max")],
)
def test_too_few_threads_are_refused_with_their_source(
    tmp_path: Path, groups: str, mounts: str, name: str
) -> None:
    enough = machine.threads(tree(tmp_path, groups, mounts, {name: str(THREADS_LEAST)}))
    machine.check_threads(enough)
    few = machine.threads(tree(tmp_path, groups, mounts, {name: str(THREADS_LEAST - 1)}))
    assert few.source == str(tmp_path / "sys/fs/cgroup" / name)
    with pytest.raises(machine.TooFewThreads, match=f"{name}.*raise it with TasksMax"):
        machine.check_threads(few)


def test_the_programs_own_memory_is_left_to_it() -> None:
    assert memory_share(400 * MIB) == int((400 * MIB - PROGRAM_BYTES) * 0.4)
    assert memory_share(1 * MIB) > 0
