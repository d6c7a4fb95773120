"""Reads a small file of the kernel; nothing is held open between two readings."""

from __future__ import annotations

import os

_MAX_BYTES = 1 << 18


def read(path: str, *, records: bool = False) -> bytes:
    """The whole file, of at most 256 KiB; three system calls, because a buffered file of Python costs twice as much.

    Files are not kept open: workers that share tensors by file descriptors run into the limit of those as it is.

    Args:
        path: The file.
        records: The kernel gives it in whole records of up to a page: a short answer is not the end.

    Raises:
        OSError: It is not there, may not be read, or its process has just ended.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = os.read(descriptor, _MAX_BYTES)
        if len(found) < 1 << 12 and not records:
            return found
        parts = [found]
        while parts[-1] and sum(map(len, parts)) < _MAX_BYTES:  # the kernel gives some files page by page
            parts.append(os.read(descriptor, _MAX_BYTES))
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_if_there(path: str, *, records: bool = False) -> bytes | None:
    """The whole file, or None if it cannot be read.

    Args:
        path: The file.
        records: The kernel gives it in whole records of up to a page: a short answer is not the end.
    """
    try:
        return read(path, records=records)
    except OSError:
        return None


def number(text: bytes | None) -> int | None:
    """The number that a file holds alone; None for ``max`` and anything else."""
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def keyed(text: bytes | None) -> dict[bytes, int]:
    """Lines of a name and a number (``nr_periods 10``, ``MemTotal:  8 kB``); other lines are left out."""
    found: dict[bytes, int] = {}
    for line in (text or b"").splitlines():
        parts = line.split()
        if len(parts) >= 2:
            try:
                found[parts[0].rstrip(b":")] = int(parts[1])
            except ValueError:
                continue
    return found
