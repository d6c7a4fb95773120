"""Charts of the live scalars for TensorBoard's Custom Scalars tab."""

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LAYOUT_TAG = b"custom_scalars__config__"
"""Under which TensorBoard keeps the layout of a run; of several the last one counts."""

_MAX_FILES, _MAX_BYTES = 64, 1 << 20
"""How far a layout of the user's own is looked for: one from before the fit is at the beginning of a file."""

_Layout = dict[str, dict[str, list[Any]]]


def layout(*, gpus: bool) -> _Layout:
    """Charts by group, as ``SummaryWriter.add_custom_scalars`` takes them; those of GPUs only where these are sampled.

    Returns:
        Group → chart → kind and regular expressions of names, which TensorBoard matches from the beginning. A logger's
        ``prefix`` may stand before a name.
    """
    groups = {
        "gpuprof: step": {
            "step and its phases (ms)": [r"[a-z0-9_]+_ms"],
            "waiting for data vs. step time (ms)": ["data_wait_ms", "step_ms"],
            "throughput (samples/s)": ["samples_per_s"],
        },
        "gpuprof: GPU": {
            "utilization (a kernel was running, 0 to 1)": [r"gpu[^/]*/utilization_ratio"],
            "memory (bytes)": [r"gpu[^/]*/memory_used_bytes", r"gpu[^/]*/(.+/)?(allocated|reserved)_bytes"],
            "power (W)": [r"gpu[^/]*/power_w"],
            "SM clock (MHz)": [r"gpu[^/]*/sm_clock_mhz"],
        },
        "gpuprof: host": {
            "CPUs kept busy by this process": ["process/cpu_cpus"],
            "memory left (bytes)": ["host/memory_available_bytes"],
        },
        "gpuprof: diagnosis, at the end of the run": {
            "findings": ["final/findings_count"],
            "speed-up at most (ratio)": ["final/speedup_max_ratio"],
            "step time (ms)": ["final/step_time_(median|p95)_ms"],
        },
    }
    return {
        group: {chart: ["Multiline", [rf"(.*-)?gpuprof/{name}$" for name in names]] for chart, names in charts.items()}
        for group, charts in groups.items()
        if gpus or group != "gpuprof: GPU"
    }


def offer(logger: Any, *, gpus: bool) -> bool:
    """Give a TensorBoard logger the layout, unless its run has one.

    Args:
        logger: A Lightning logger.
        gpus: Whether GPUs are sampled.

    Returns:
        Whether it was given: not to other loggers, and not over a layout of the user's own.
    """
    experiment = getattr(logger, "experiment", None)
    add_custom_scalars = getattr(experiment, "add_custom_scalars", None)
    folder = getattr(logger, "log_dir", None)
    if not callable(add_custom_scalars) or not isinstance(folder, str):
        return False
    getattr(experiment, "flush", lambda: None)()
    if _has_layout(sorted(Path(folder).glob("events.out.tfevents.*"))[-_MAX_FILES:]):
        return False
    add_custom_scalars(layout(gpus=gpus))
    return True


def _has_layout(files: Sequence[Path]) -> bool:
    for path in files:
        with contextlib.suppress(OSError), path.open("rb") as file:
            if LAYOUT_TAG in file.read(_MAX_BYTES):
                return True
    return False
