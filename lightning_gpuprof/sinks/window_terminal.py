"""The facts of one trace flow in, their summary on the terminal flows out."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.constrain import Constrain
from rich.padding import Padding
from rich.text import Text

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.sinks import numbers, plain, tables
from lightning_gpuprof.sinks.console import MAX_WIDTH
from lightning_gpuprof.sinks.terminal_table import draw

TOP_NAMES = 10
NAME_CELLS = 52


def render(window: WindowFacts, *, width: int = MAX_WIDTH) -> RenderableType:
    """The facts as something that rich prints.

    Args:
        window: Facts of a trace.
        width: Columns that no line passes.
    """
    parts: list[RenderableType] = [Text(line) for line in _lines(window)]
    for title, rows in (
        ("Operators by host time", window.top_operators),
        ("Kernels by device time", window.top_kernels),
    ):
        if rows:
            what = "operator" if rows is window.top_operators else "kernel"
            parts += [
                Text(f"\n{title}", style="bold"),
                draw(tables.named_times(title, what, rows[:TOP_NAMES], NAME_CELLS)),
            ]
    return Constrain(Padding(Group(*parts), (0, 0, 0, 2)), width)


def _lines(window: WindowFacts) -> list[str]:
    lines = [f"{numbers.count(window.events)} events, {numbers.size(window.bytes_json)} of JSON"]
    if window.problem:
        lines.append(f"problem: {plain.sentence(window.problem)}")
    if window.steps_us:
        mean_ms = sum(window.steps_us) / len(window.steps_us) / 1e3
        lines.append(
            f"{len(window.steps_us)} steps, mean {numbers.significant(mean_ms)} ms (inflated by profiling); "
            f"DataLoader {numbers.significant(window.dataloader_us / 1e3)} ms in all"
        )
    if not window.devices:
        lines.append("no device work")
    for device in window.devices:
        share = device.busy_us / device.window_us if device.window_us > 0 else None
        lines.append(
            f"{tables.traced_device(device)}: {numbers.count(device.kernels)} kernels in "
            f"{numbers.significant(device.window_us / 1e3)} ms; busy {numbers.significant(device.busy_us / 1e3)} ms "
            f"({numbers.percent(share)}), idle {numbers.significant(device.idle_us / 1e3)} ms"
        )
    if window.kernels:
        lines.append(
            f"launches: {numbers.count(window.launches_matched)} of the device events have theirs in the trace, "
            f"{numbers.count(window.launches_unmatched)} have not"
        )
    return lines
