"""Reads what other profilers say of source lines: a ``.lprof`` of line_profiler, the JSON of Scalene."""

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.line_times import FunctionTimes, TimedLine, of_line_profiler
from lightning_gpuprof.model.shown_code import shown_code

MAX_BYTES = 256 << 20
_MIB = 1 << 20


def read_lines(path: Path) -> tuple[FunctionTimes, ...]:
    """The lines in a file, functions with most time first. Nothing in it is executed.

    Args:
        path: ``kernprof``'s ``.lprof``, or what ``scalene --json`` or ``scalene run`` wrote.

    Raises:
        ReportError: The file cannot be read, is larger than 256 MiB, or is neither.
    """
    try:
        if (size := path.stat().st_size) > MAX_BYTES:
            raise ReportError(f"{path} is {size / _MIB:.0f} MiB: too large for a line profile")
        data = path.read_bytes()
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
    try:
        found = _of_scalene(data) if data.lstrip()[:1] == b"{" else _of_line_profiler(data)
    except Exception as error:  # a pickle that is cut or hostile fails in any way
        what = "not a line profile, or cut short" if data else "empty"
        raise ReportError(f"{path} is {what}. Give a .lprof of line_profiler or the JSON of Scalene.") from error
    return tuple(sorted((one for one in found if one.lines), key=lambda one: -one.total_s))


_Timing = tuple[tuple[str, int, str], list[tuple[int, int, int]]]


class _Stats:
    """Stands for line_profiler's class: its state is plain data."""

    timings: Mapping[tuple[str, int, str], list[tuple[int, int, int]]]
    unit: float


class _PlainUnpickler(pickle._Unpickler):
    """Makes no object but those of line_profiler, for which a class of ours stands.

    Python's own unpickler, as that in C gives a hostile file gigabytes for a number.
    """

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "line_profiler" and name == "LineStats":
            return _Stats
        raise pickle.UnpicklingError(f"it holds {module!r}.{name!r}")


def _of_line_profiler(data: bytes) -> list[FunctionTimes]:
    stats = _PlainUnpickler(io.BytesIO(data)).load()
    timings = msgspec.convert(list(stats.timings.items()), list[_Timing])
    return of_line_profiler(dict(timings), msgspec.convert(stats.unit, float))


class _ScaleneLine(msgspec.Struct):
    lineno: int
    line: str = ""
    n_cpu_percent_python: float = 0.0
    n_cpu_percent_c: float = 0.0
    n_sys_percent: float = 0.0
    n_malloc_mb: float = 0.0


class _ScaleneFile(msgspec.Struct):
    lines: list[_ScaleneLine]


class _Scalene(msgspec.Struct):
    files: dict[str, _ScaleneFile]
    elapsed_time_sec: float


def _of_scalene(data: bytes) -> list[FunctionTimes]:
    profile = msgspec.json.decode(data, type=_Scalene)
    found = []
    for file, of_file in profile.files.items():
        lines = []
        for one in of_file.lines:
            percent = one.n_cpu_percent_python + one.n_cpu_percent_c + one.n_sys_percent
            if percent > 0 or one.n_malloc_mb > 0:
                lines.append(
                    TimedLine(
                        line=one.lineno,
                        total_s=percent / 100 * profile.elapsed_time_sec,
                        python_ratio=one.n_cpu_percent_python / percent if percent > 0 else None,
                        memory_bytes=one.n_malloc_mb * _MIB or None,
                        code=shown_code(one.line.strip()),
                    )
                )
        found.append(FunctionTimes(name="", file=file, lines=tuple(lines), by="Scalene"))
    return found
