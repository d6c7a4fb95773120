"""The sampled stacks of the steps for speedscope, and as folded text."""

from collections.abc import Iterator, Sequence

from lightning_gpuprof.model import code_place, speedscope
from lightning_gpuprof.model.phases import words_of
from lightning_gpuprof.model.report import StackRow


def folded(rows: Sequence[StackRow]) -> Iterator[str]:
    """Lines ``forward;train.py:12 training_step 123``, the folded format of ``flamegraph.pl``.

    Args:
        rows: A report's ``stacks``.

    Yields:
        A stack with its own time in whole microseconds, without the line's end; none below half a microsecond.
    """
    for row in _ordered(rows):
        if time_us := round(row.total_s * 1e6):
            path = (words_of(row.phase), *row.frames)
            yield f"{';'.join(text.replace(';', ',') for text in path)} {time_us}"


def speedscope_of(rows: Sequence[StackRow]) -> dict[str, object]:
    """The same for https://www.speedscope.app, to be written as JSON.

    Args:
        rows: A report's ``stacks``.

    Returns:
        One profile: the phases, and below them the calls of the user's code.
    """
    kept = [row for row in _ordered(rows) if row.total_s > 0]
    paths = [(words_of(row.phase), *row.frames) for row in kept]
    numbers: dict[str, int] = {}
    samples = [[numbers.setdefault(frame, len(numbers)) for frame in path] for path in paths]
    name = "all steps by phase and line of yours"
    profile = speedscope.profile(name, samples, [row.total_s * 1e6 for row in kept])
    return speedscope.document([_frame(frame) for frame in numbers], [profile])


def _ordered(rows: Sequence[StackRow]) -> list[StackRow]:
    """What begins alike beside each other."""
    return sorted(rows, key=lambda row: (row.phase, row.frames))


def _frame(frame: str) -> dict[str, object]:
    place = code_place.parts(frame)
    return {"name": frame} if place is None else {"name": place.function, "file": place.file, "line": place.line}
