"""The idle time of a window's devices flows in, a bar for each device flows out: busy, and each cause of idle time."""

from __future__ import annotations

from html import escape

from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.idle import IDLE_CAUSE_TERMS, DeviceIdle
from lightning_gpuprof.sinks import numbers, plain
from lightning_gpuprof.sinks.html_page import bdi, term
from lightning_gpuprof.sinks.window_tables.idle import cause_word

_BUSY = "time in which at least one stream of the device worked"


def idle_html(analysis: TraceAnalysis) -> str:
    """One stacked bar for each device with its words and numbers; empty if no device did anything."""
    return "" if analysis.idle is None else "".join(map(_device, analysis.idle.devices))


def _device(device: DeviceIdle) -> str:
    if device.window_us <= 0:
        return ""
    busy = device.busy_us / device.window_us
    parts = [("busy", "busy", busy, _BUSY)]
    parts += [
        (f"idle_{row.cause}", cause_word(row.cause), row.window_ratio, IDLE_CAUSE_TERMS[row.cause])
        for row in device.causes
    ]
    shown = plain.name(device.device, 40)
    name = f"GPU {shown}" if shown.isdecimal() else shown or "device"
    said = ", ".join(f"{word} {numbers.percent(share)}" for _, word, share, _ in parts)
    pieces = "".join(
        f'<span style="width:{share * 100:.3f}%;background:var(--{key})" '
        f'title="{word} {numbers.percent(share)}"></span>'
        for key, word, share, _ in parts
        if share > 0
    )
    items = "".join(
        f'<li><i style="background:var(--{key})"></i>{term(word, meaning)} {numbers.percent(share)}</li>\n'
        for key, word, share, meaning in parts
    )
    window = numbers.seconds(device.window_us / 1e6)
    return (
        f"<p>{bdi(name)}: {window} from its first to its last work</p>\n"
        f'<div class="stack" role="img" aria-label="{escape(f"{name}: {said}")}">{pieces}</div>\n'
        f'<ul class="colours">\n{items}</ul>\n'
    )
