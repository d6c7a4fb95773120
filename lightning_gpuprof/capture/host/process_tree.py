"""The processes below a process."""

import os
from collections.abc import Collection
from pathlib import Path


def own_pid(proc_root: Path = Path("/proc")) -> int:
    """This process's number in the process table that is mounted, which may be of another pid namespace."""
    try:
        return int(str((proc_root / "self").readlink()))
    except (OSError, ValueError):
        return os.getpid()


def descendants(pid: int, proc_root: Path = Path("/proc"), without: Collection[int] = ()) -> frozenset[int]:
    """Process ids of all children of a process, and of theirs.

    Read from ``task/*/children`` where the kernel has it (CONFIG_PROC_CHILDREN): that costs a file per thread.
    Elsewhere psutil reads the whole process table.

    Args:
        pid: The process.
        proc_root: Where the process table is mounted.
        without: Children that are left out with all below them: other ranks, which Lightning's launcher starts from
            the first.

    Returns:
        Without the process itself; empty also if it has ended.

    Raises:
        OSError: The process table cannot be read.
    """
    root = proc_root / str(pid) / "task" / str(pid) / "children"
    if not root.exists():
        return _scan_process_table(pid, without)
    found: set[int] = set()
    open_ends = [pid]
    while open_ends:
        children = _read_children(f"{proc_root}/{open_ends.pop()}/task").difference(without)
        open_ends += children - found
        found |= children
    return frozenset(found)


def _scan_process_table(pid: int, without: Collection[int]) -> frozenset[int]:
    import psutil

    try:
        children = [child for child in psutil.Process(pid).children() if child.pid not in without]
        return frozenset(below.pid for child in children for below in (child, *child.children(recursive=True)))
    except psutil.NoSuchProcess:
        return frozenset()
    except psutil.Error as error:
        raise PermissionError(str(error)) from error


def _read_children(tasks: str) -> set[int]:
    """Children that any thread of a process has started; none for a process or thread that has just ended."""
    children: set[int] = set()
    try:
        threads = os.listdir(tasks)  # noqa: PTH208 - names suffice, and this runs each second
    except OSError:
        return children
    for thread in threads:
        try:
            with open(f"{tasks}/{thread}/children", "rb", buffering=0) as file:
                children.update(int(child) for child in (file.read() or b"").split())
        except (OSError, ValueError):
            continue
    return children
