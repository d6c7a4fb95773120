"""Runs on disk for the commands: folders with a ``report.json``, as a run leaves them."""

from pathlib import Path

import msgspec
import sample_report

from lightning_gpuprof.sinks import json_report


def save_run(folder: Path, *, period_ms: float = 20.0, steady: int = 380) -> Path:
    """Write the full sample with another period and number of steady steps; gives the folder."""
    folder.mkdir(parents=True)
    full = sample_report.full_report()
    steps = msgspec.structs.replace(
        full.steps,
        period_ms=sample_report.distribution(period_ms) if steady else None,
        steady_count=steady,
        samples_per_s=64 / period_ms * 1e3,
    )
    wall = msgspec.structs.replace(full.wall, total_s=2.0 + 0.4 * period_ms)
    json_report.write(msgspec.structs.replace(full, steps=steps, wall=wall), folder / "report.json")
    return folder
