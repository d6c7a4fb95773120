"""Writes a file whole or not at all."""

import os
from contextlib import suppress
from pathlib import Path

from lightning_gpuprof.errors import ReportError


def write_whole(target: Path, *pieces: bytes) -> None:
    """Write under a temporary name in the same folder, then rename, so that nobody reads half a file.

    Args:
        target: The file; one that exists is replaced.
        pieces: Its whole content, in one piece or several.

    Raises:
        ReportError: The folder is missing, read-only or full.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.writelines(pieces)
        temporary.replace(target)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise ReportError(
            f"cannot write {target}: {error.strerror or error}. Name a folder that can be written to"
        ) from error
