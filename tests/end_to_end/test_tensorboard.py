"""Traces, scalars and text of a real fit as TensorBoard itself reads them: its own loaders and a started server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from planted_runs import Planted, Sleepy, fit
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.model.journal import DISTURBED, PROFILED
from lightning_gpuprof.model.report import Report

ITEM_S = 0.003
WINDOW = (10, 13)


class Recorded:
    """One fit with a TensorBoard logger, a window and a dataset of 3 ms an item."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.profiler = GpuProfiler(windows=[WINDOW], reports=["tensorboard", "json"])
        self.report: Report = fit(
            folder,
            Planted(),
            DataLoader(Sleepy(60, ITEM_S), batch_size=1),
            profiler=self.profiler,
            logger=pl.loggers.TensorBoardLogger(folder, name="run", version=0),
            log_every_n_steps=10,
        )


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("tensorboard"))


@pytest.fixture(scope="module")
def events(recorded: Recorded) -> EventAccumulator:
    found = EventAccumulator(str(recorded.folder / "run" / "version_0"))
    found.Reload()
    return found


def test_the_window_is_recorded_with_its_data_loading(recorded: Recorded) -> None:
    (window,) = recorded.report.windows
    assert window.problem == ""
    assert (window.start_step, window.stop_step) == WINDOW
    assert len(window.steps_us) == 4
    assert all(us >= ITEM_S * 1e6 for us in window.steps_us)
    assert window.dataloader_us >= 4 * ITEM_S * 1e6
    assert window.events > 100
    assert window.stop_cost_ms is not None
    assert recorded.profiler.folder is not None
    names = sorted(p.name for p in recorded.profiler.folder.iterdir())
    assert [n for n in names if n.endswith(".pt.trace.json.gz")] == [window.file]
    assert not [n for n in names if n.endswith((".plain.json", ".tmp"))]


def test_steps_under_the_window_and_beside_its_analysis_are_marked_and_no_others(recorded: Recorded) -> None:
    assert recorded.profiler.folder is not None
    steps = read_journal(recorded.profiler.folder / "rank0.jsonl").steps
    # Two steps of warm-up before; the step after begins with stopping the trace.
    assert list(steps.batch[(steps.flags & PROFILED) != 0]) == list(range(8, 15))
    beside = list(steps.batch[(steps.flags & DISTURBED) != 0])
    assert beside == list(range(14, 14 + len(beside)))


def test_scalars_carry_units_and_lie_on_the_trainers_own_steps(events: EventAccumulator) -> None:
    tags = events.Tags()["scalars"]
    own = [tag for tag in tags if tag.startswith("gpuprof/")]
    assert {"gpuprof/step_ms", "gpuprof/data_wait_ms", "gpuprof/forward_ms", "gpuprof/samples_per_s"} <= set(own)
    live_steps = [e.step for e in events.Scalars("gpuprof/step_ms")]
    trainer_steps = [e.step for e in events.Scalars("loss")]
    assert live_steps[: len(trainer_steps)] == trainer_steps[: len(live_steps)]
    assert len(live_steps) >= 5
    waits = [e.value for e in events.Scalars("gpuprof/data_wait_ms")]
    assert all(value >= ITEM_S * 1e3 for value in waits)


def test_the_diagnosis_is_in_the_text_tab(events: EventAccumulator) -> None:
    tags = events.Tags()["tensors"]
    assert any(tag.startswith("gpuprof/report") for tag in tags)
    text = (
        events.Tensors(next(t for t in tags if t.startswith("gpuprof/report")))[0].tensor_proto.string_val[0].decode()
    )
    assert "|" in text
    assert "forward" in text


def test_the_profiler_tabs_own_loader_sees_the_data_loading(recorded: Recorded) -> None:
    from torch_tb_profiler import io
    from torch_tb_profiler.profiler.data import RunProfileData
    from torch_tb_profiler.profiler.node import OperatorNode  # noqa: F401 - importing shows that the package is whole
    from torch_tb_profiler.profiler.overall_parser import ProfileRole

    assert recorded.profiler.folder is not None
    file = recorded.profiler.folder / recorded.report.windows[0].file
    data = RunProfileData.parse("rank0", 1, str(file), io.Cache())
    assert data.avg_costs.costs[ProfileRole.DataLoader] >= ITEM_S * 1e6
    assert data.avg_costs.costs[ProfileRole.DataLoader] <= data.avg_costs.costs[ProfileRole.Total]


@pytest.fixture(scope="module")
def server(recorded: Recorded) -> Iterator[str]:
    """A started TensorBoard over the run's folder; yields its address."""
    log = recorded.folder / "server.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [
                *[sys.executable, "-m", "tensorboard.main", "--logdir", str(recorded.folder)],
                *["--port", "0", "--host", "127.0.0.1", "--load_fast", "false"],
            ],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        address = ""
        deadline = time.monotonic() + 90
        while not address:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
            address = next((w for w in log.read_text().split() if w.startswith("http://127.0.0.1:")), "")
        yield address.rstrip("/")
    finally:
        process.terminate()
        process.wait(20)


def get(address: str) -> Any:
    """The JSON at an address, once the plugin has loaded its runs."""
    deadline = time.monotonic() + 90
    while True:
        try:
            with urllib.request.urlopen(address, timeout=30) as response:
                found = json.loads(response.read())
        except urllib.error.HTTPError as error:
            found = None
            if time.monotonic() > deadline:
                raise AssertionError(f"{address}: {error}") from error
        if found and (not isinstance(found, dict) or not found.get("loading")):
            return found
        assert time.monotonic() < deadline, f"{address} stays empty: {found}"
        time.sleep(0.3)


@pytest.mark.slow
def test_a_started_tensorboard_serves_the_window(server: str, recorded: Recorded) -> None:
    base = f"{server}/data/plugin/pytorch_profiler"
    (run,) = get(f"{base}/runs")["runs"]
    query = f"run={urllib.request.quote(run, safe='')}"  # type: ignore[attr-defined]
    assert {"Overview", "Operator", "Trace"} <= set(get(f"{base}/views?{query}"))
    assert get(f"{base}/workers?{query}&view=Overview") == ["rank0"]
    overview = get(f"{base}/overview?{query}&worker=rank0&span=1&view=Overview")
    columns = [c.get("name") for c in overview["steps"]["columns"]]
    loading = columns.index("DataLoader")
    rows = overview["steps"]["rows"]
    assert len(rows) >= 3
    assert all(row[loading] >= ITEM_S * 1e6 for row in rows)
    assert "DataLoader" in json.dumps(overview["recommendations"])


@pytest.mark.slow
def test_a_started_tensorboard_serves_scalars_and_text(server: str) -> None:
    tags = get(f"{server}/data/plugin/scalars/tags")
    assert any("gpuprof/step_ms" in own for own in tags.values())
    texts = get(f"{server}/data/plugin/text/tags")
    assert any(tag.startswith("gpuprof/report") for own in texts.values() for tag in own)
