"""The user's source files, for ``gpuprof compare`` to say what of the code changed between two runs."""

import os
import sys
import sysconfig
import time
import tokenize
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType

from lightning_gpuprof.model.shown_code import shown_lines

MAX_BYTES = 60_000
"""Of all files together: those that do not fit are left out."""
_JUST_WRITTEN_S = 1.0
"""A program may be started as soon as it is written, by clocks that differ."""
_PAUSE_EVERY_S = 0.001
"""Training has the interpreter at least as often as this thread, which takes 1 ms for 30 lines."""


def source_files(
    shown_path: Callable[[str], str], modules: Mapping[str, object] = MappingProxyType(sys.modules)
) -> dict[str, str]:
    """The imported modules of the user, by path as shown.

    Args:
        shown_path: Of a file, the path as people are shown it; empty for a library's.
        modules: By name.

    Returns:
        Path → statements as by :func:`shown_lines`, the program first, at most :data:`MAX_BYTES` of files; none that
        was edited since the program began.
    """
    found: dict[str, str] = {}
    left, began_s = MAX_BYTES, _process_began_s()
    for file in _files_of(dict(modules)):
        path = shown_path(file)
        if not path or path in found:
            continue
        try:
            known = Path(file).stat()
            if known.st_size > left or known.st_mtime > began_s + _JUST_WRITTEN_S:
                continue
            left -= known.st_size
            found[path] = "\n".join(_with_pauses(shown_lines(Path(file).read_text(encoding="utf-8"))))
        except (OSError, ValueError, SyntaxError, tokenize.TokenError):  # gone, no text, or no Python
            continue
    return found


def _with_pauses(lines: Iterator[str]) -> Iterator[str]:
    begin_s = time.perf_counter()
    for line in lines:
        yield line
        if time.perf_counter() - begin_s > _PAUSE_EVERY_S:
            time.sleep(_PAUSE_EVERY_S)
            begin_s = time.perf_counter()


def _process_began_s() -> float:
    """When this process began, as times of files count; where that is not known, no file was edited since."""
    try:
        ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return float("inf")


def _files_of(modules: Mapping[str, object]) -> Iterator[str]:
    """Of all modules but those of Python itself and of installed packages: asking of each takes 50 ms."""
    paths = sysconfig.get_paths()
    libraries = (paths["stdlib"], paths["platstdlib"])
    for name in ("__main__", *modules):
        module = modules.get(name)
        if not isinstance(module, ModuleType):
            continue
        file = object.__getattribute__(module, "__dict__").get("__file__")  # of a lazy module, without importing it
        if not isinstance(file, str) or not file.endswith(".py") or file.startswith(libraries):
            continue
        if not any(f"/{folder}/" in file for folder in ("site-packages", "dist-packages")):
            yield file
