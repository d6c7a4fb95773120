"""What is sampled beside a fit reaches the report and every logger; a fake GPU driver stands behind the real pynvml."""

import textwrap
from pathlib import Path

import lightning.pytorch as pl
import pytest
from fake_nvml import builder
from logger_files import csv_points, events_in
from planted_runs import Planted, Sleepy, fit, quiet_profiler
from python_process import run_python
from torch.utils.data import DataLoader

from lightning_gpuprof.pipeline import load_report

FIT = """
import ctypes
ctypes.CDLL({library!r}, ctypes.RTLD_GLOBAL)
from planted_runs import *
from lightning_gpuprof import NvmlConfig
profiler = GpuProfiler(windows=[], nvml=NvmlConfig(interval_s=0.05), reports=["json", "terminal"])
fit(Path({folder!r}), Planted({{"training_step": 0.01}}), DataLoader(Sleepy(120)), profiler=profiler,
    logger=pl.loggers.CSVLogger({folder!r}, name="csv", version=0), log_every_n_steps=10)
"""


@pytest.mark.slow
@pytest.mark.skipif(builder.compiler() is None, reason="no C compiler to build the fake driver with")
def test_the_gpus_of_the_process_are_in_the_report_and_in_the_loggers(tmp_path: Path) -> None:
    scenario = builder.Scenario(
        gpus=(
            builder.FakeGpu(uuid="GPU-aaaa", name="Fake A"),
            builder.FakeGpu(uuid="GPU-bbbb", name="Fake B", fails={"power": builder.NOT_SUPPORTED}),
        )
    )
    library = builder.build(scenario, tmp_path)
    code = FIT.format(library=str(library), folder=str(tmp_path))
    run_python("-c", textwrap.dedent(code), CUDA_VISIBLE_DEVICES="GPU-bbbb", CUDA_DEVICE_ORDER="PCI_BUS_ID")
    report = load_report(tmp_path / "csv" / "version_0" / "gpuprof")
    (device,) = report.devices
    assert (device.name, device.uuid) == ("Fake B", "GPU-bbbb")
    utilization = device.values["utilization_ratio"]
    assert utilization.mean == pytest.approx(0.83)
    assert device.values["power_w"] is None
    fan = device.values["fan_ratio"]
    assert (fan.min, fan.mean, fan.max) == pytest.approx((0.34, 0.34, 0.34))
    assert "fan_ratio" in {curve.name for curve in report.curves if curve.subject == "gpu0"}
    assert (device.subject, device.facts.driver_version, device.facts.memory_total_bytes) == ("gpu0", "999.01", 80e9)
    assert device.throttle == ()
    assert device.energy.per_step_j == pytest.approx(device.energy.total_j / report.steps.count)
    assert {counter.name for counter in device.errors} >= {"ecc_corrected_count", "remapped_rows_count"}
    columns = csv_points(tmp_path / "csv" / "version_0" / "metrics.csv")
    assert {value for _, value in columns["gpuprof/gpu0/utilization_ratio"]} == {0.83}
    assert "gpuprof/gpu0/power_w" not in columns
    assert not any(name.startswith("gpuprof/gpu1") for name in columns)


def test_every_logger_gets_the_same_names_and_steps_as_the_trainers_own_metrics(tmp_path: Path) -> None:
    report = fit(
        tmp_path,
        Planted({"training_step": 0.002}),
        DataLoader(Sleepy(55), batch_size=1),
        profiler=quiet_profiler(reports=["json", "tensorboard"]),
        logger=[
            pl.loggers.CSVLogger(tmp_path, name="csv", version=0),
            pl.loggers.TensorBoardLogger(tmp_path, name="tb", version=0),
        ],
        log_every_n_steps=10,
    )
    assert report.steps.count == 55
    columns = csv_points(tmp_path / "csv" / "version_0" / "metrics.csv")
    assert (
        [step for step, _ in columns["gpuprof/step_ms"]] == [step for step, _ in columns["loss"]] == [9, 19, 29, 39, 49]
    )
    events = events_in(tmp_path / "tb" / "version_0")
    shown = {one.step: one.value for one in events.Scalars("gpuprof/step_ms")}
    assert shown == pytest.approx(dict(columns["gpuprof/step_ms"]), rel=1e-6)  # TensorBoard keeps 32 bits
    assert {n for n in columns if n.startswith("gpuprof/")} == {
        n for n in events.Tags()["scalars"] if n.startswith("gpuprof/")
    }


def test_a_cadence_of_its_own_is_kept(tmp_path: Path) -> None:
    fit(
        tmp_path,
        loader=DataLoader(Sleepy(40), batch_size=1),
        profiler=quiet_profiler(log_every_n_steps=20),
        logger=pl.loggers.CSVLogger(tmp_path, name="csv", version=0),
        log_every_n_steps=5,
        accumulate_grad_batches=2,
        max_epochs=2,
    )
    columns = csv_points(tmp_path / "csv" / "version_0" / "metrics.csv")
    # 40 batches make 20 optimizer steps an epoch; the second interval is due with the very last step.
    assert [step for step, _ in columns["gpuprof/step_ms"]] == [19, 39]
