"""Makes folders, and writes a file whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from lightning_gpuprof.errors import ReportError


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, if they are missing.

    Raises:
        ReportError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ReportError(f"cannot create {folder}: {error.strerror or error}. Name another folder") from error


def write_whole(target: Path, *pieces: bytes) -> None:
    """Write a file so that nobody reads half of it.

    Args:
        target: The file; one that exists is replaced.
        pieces: Its whole content, in one piece or several.

    Raises:
        ReportError: The folder is missing, read-only or full.
    """
    with made_whole(target) as temporary, temporary.open("wb") as file:
        file.writelines(pieces)


@contextmanager
def made_whole(target: Path) -> Iterator[Path]:
    """A temporary name in the same folder to write to, which becomes the target if nothing fails.

    Raises:
        ReportError: The folder is missing, read-only or full.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise ReportError(
            f"cannot write {target}: {error.strerror or error}. Name a folder that can be written to"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()
