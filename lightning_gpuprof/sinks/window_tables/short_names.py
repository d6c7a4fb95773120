"""Names of kernels and of what the host was in flow in, the part that tells them from others flows out."""

from __future__ import annotations

import re

from lightning_gpuprof.sinks import plain
from lightning_gpuprof.sinks.window_tables import kernel_text

_BUILT_IN = re.compile(r"^<built-in (?:function|method) (?P<function>\S+).*>$")
_FRAME = re.compile(r"\(\d+\): ")


def work(name: str, limit: int) -> str:
    """What a device did: a kernel's short name; of a copy or memset what it is between, without the first word.

    Args:
        name: As the trace has it.
        limit: Most characters that come back, at least 8.
    """
    if name.startswith(("Memcpy", "Memset")):
        return plain.name(name.removeprefix("Memcpy "), limit)
    return kernel_text.short(name, limit)


def host(name: str, limit: int) -> str:
    """What the host was in: of a Python function the end, which tells it from others; of a range what it is of.

    Args:
        name: An operator, range, call or Python function, as the trace has it.
        limit: Most characters that come back.
    """
    built_in = _BUILT_IN.match(name)
    if built_in:
        return plain.name(f"{built_in['function']} (built-in)", limit)
    if not _FRAME.search(name):
        return plain.name(name.partition("#")[0].rstrip() or name, limit)
    shown = plain.name(name, max(4 * limit, plain.NAME_LIMIT))
    return shown if len(shown) <= limit else f"...{shown[len(shown) - limit + 3 :]}"
