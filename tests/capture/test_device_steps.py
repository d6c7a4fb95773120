"""Device spans in real fits, on a device that stays a little behind the host."""

import statistics
import threading
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import msgspec
import pytest
import torch
from equipped import Equipped
from fake_device import FakeDevice, LaggingDevice
from lightning.pytorch.demos.boring_classes import BoringModel
from quiet_trainer import trainer_in

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.capture.device_spans import EVERY_NS
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.model.journal import DeviceBlock, Slot
from lightning_gpuprof.model.journal import Record as JournalRecord

MS = 1_000_000


def profiler_on(device: FakeDevice, folder: Path, **options: Any) -> GpuProfiler:
    own = {"windows": [], "reports": [], "dirpath": str(folder / "out"), **options}
    return Equipped({"events": lambda root_device: device}, **own)


class Sleeping(BoringModel):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        time.sleep(0.004)
        return super().training_step(batch, batch_idx)

    def on_after_backward(self) -> None:
        time.sleep(0.002)

    def val_dataloader(self) -> Any:
        return []


def fit(callback: GpuProfiler, folder: Path, *, epochs: int = 2, **options: Any) -> None:
    trainer = trainer_in(folder, [callback], max_epochs=epochs, num_sanity_val_steps=None, **options)
    torch.manual_seed(0)
    trainer.fit(Sleeping())


def device_records(callback: GpuProfiler) -> tuple[list[Slot], list[DeviceBlock]]:
    decoder: msgspec.json.Decoder[JournalRecord] = msgspec.json.Decoder(JournalRecord)
    records = [decoder.decode(line) for line in (callback.folder / "rank0.jsonl").read_bytes().splitlines()]
    return [r for r in records if isinstance(r, Slot)], [r for r in records if isinstance(r, DeviceBlock)]


@pytest.mark.parametrize("profiler", [None, "simple"])
def test_sampled_steps_have_their_time_in_the_right_phases(tmp_path: Path, profiler: str | None) -> None:
    device = LaggingDevice(lag_ns=20 * MS)
    callback = profiler_on(device, tmp_path, reports=["json"])
    fit(callback, tmp_path, profiler=profiler)
    slots, blocks = device_records(callback)
    journal = read_journal(callback.folder / "rank0.jsonl")
    period = dict(zip(journal.steps.batch.tolist(), journal.steps.period_ns.tolist(), strict=True))
    measured = [
        (batch, {slots[slot].phase: 0 for slot in block.charged}, {s: c[i] for s, c in block.charged.items()})
        for block in blocks
        for i, batch in enumerate(block.batch)
    ]
    assert len(measured) >= 3
    batches = [batch for batch, *_ in measured]
    assert batches == sorted(set(batches))
    assert len(batches) <= (journal.steps.end_ns - journal.steps.start_ns[0]) / EVERY_NS + 1  # others are left alone
    ratios = []
    for batch, by_phase, by_slot in measured:
        for slot, ns in by_slot.items():
            by_phase[slots[slot].phase] += ns
        assert by_phase["forward"] >= 4 * MS
        assert by_phase["callbacks"] >= 2 * MS
        ratios.append(sum(by_phase.values()) / period[batch])
    assert statistics.median(ratios) == pytest.approx(1, rel=0.25)
    assert device.threads == {threading.get_ident()}
    assert device.calls["new_event"] <= 100


def test_the_report_has_the_device_span_of_each_phase_beside_its_host_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    device = LaggingDevice(lag_ns=20 * MS)
    callback = profiler_on(device, tmp_path, reports=["terminal"])
    fit(callback, tmp_path, epochs=5)
    rows = {row.phase: row for row in callback.report.phases}
    forward = rows["forward"]
    backward = rows["backward"]
    assert forward.device_ms is not None
    assert backward.device_ms is not None
    assert 4 <= forward.device_ms <= forward.device_ms + backward.device_ms <= callback.report.steps.period_ms.max
    assert rows["validation"].device_ms == 0.0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "out"), "--all"]) == 0
    assert "device span" in capsys.readouterr().out


def test_no_step_is_measured_while_a_window_is_open(tmp_path: Path) -> None:
    device = LaggingDevice(lag_ns=0)
    callback = profiler_on(device, tmp_path, windows=(0, 63))
    fit(callback, tmp_path, epochs=1)
    assert device.calls["record"] == 0


def test_a_device_that_fails_costs_the_spans_and_nothing_else(tmp_path: Path) -> None:
    device = LaggingDevice(lag_ns=0)
    device.broken = "record"
    callback = profiler_on(device, tmp_path, reports=["json"])
    with pytest.warns(RuntimeWarning, match="device spans: switched off after RuntimeError: device lost in record"):
        fit(callback, tmp_path, epochs=1)
    assert callback.report.steps.count == 64
    assert device.calls["record"] == 1


def test_without_a_device_there_is_neither_a_thread_nor_a_record(tmp_path: Path) -> None:
    seen: set[str] = set()

    class Watch(pl.Callback):
        def on_train_batch_end(self, *args: Any) -> None:
            seen.update(thread.name for thread in threading.enumerate())

    callback = GpuProfiler(windows=[], reports=[], dirpath=str(tmp_path / "out"))
    trainer_in(tmp_path, [callback, Watch()], max_steps=5).fit(BoringModel())
    assert any(name.startswith("gpuprof") for name in seen)
    assert not any("device" in name for name in seen)
    assert device_records(callback)[1] == []
