"""An annotated trace of a run holds what was sampled while it was recorded, at the right moments."""

import gzip
import json
from pathlib import Path

import torch
from planted_runs import Naps, Planted, fit, quiet_profiler
from torch.utils.data import DataLoader

from lightning_gpuprof import HostConfig
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.cli.main import main


class Slow(Planted):
    def training_step(self, batch: object, batch_idx: int) -> object:
        Naps.take(0.05)
        return super().training_step(batch, batch_idx)


def test_samples_of_the_window_are_counters_of_the_annotated_trace(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=(10, 29), host=HostConfig(interval_s=0.1))
    fit(tmp_path, model=Slow(), loader=DataLoader(torch.ones(40, 8), batch_size=1), profiler=profiler)
    (trace,) = profiler.folder.glob("*.pt.trace.json.gz")
    target = tmp_path / "annotated.json"
    assert main(["trace", str(trace), "--annotated", str(target)]) == 0
    events = json.loads(target.read_text())["traceEvents"]
    with gzip.open(trace, "rt") as file:
        steps = [e for e in json.load(file)["traceEvents"] if str(e.get("name")).startswith("ProfilerStep#")]
    begin, end = min(e["ts"] for e in steps), max(e["ts"] + e["dur"] for e in steps)
    memory = [e for e in events if e["ph"] == "C" and "process RSS" in e["name"]]
    inside = [e for e in memory if begin <= e["ts"] <= end]
    values = [next(iter(e["args"].values())) for e in inside]
    journal = read_journal(trace.parent / "rank0.jsonl")
    (window,) = journal.windows
    during = [s for s in journal.samples if s.subject == "process" and window.start_ns <= s.t_ns <= window.stop_ns]
    assert len(inside) >= len(during) >= 1  # its first and last step are a little longer than the window is noted
    assert {s.values["rss_bytes"] for s in during} <= set(values)
    assert all(50e6 < value < 50e9 for value in values)
    other = tmp_path / "elsewhere.json.gz"
    other.write_bytes(trace.read_bytes())
    assert main(["trace", str(other), "--annotated", str(target)]) == 0
    assert not any(e["ph"] == "C" and "RSS" in e["name"] for e in json.loads(target.read_text())["traceEvents"])
