"""Kernels of every step, from a scripted source in place of CUPTI to the report's rows."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from planted_runs import Planted, fit, quiet_profiler, single_rows

from lightning_gpuprof import TraceConfig
from lightning_gpuprof.analyze.every_kernel import every_kernel
from lightning_gpuprof.analyze.journal_columns import KernelColumns
from lightning_gpuprof.capture import every_kernel as module_under_test
from lightning_gpuprof.capture.every_kernel import (
    MAX_KERNELS,
    CuptiSource,
    KernelRecords,
    KernelSampler,
    _monitor_class,
)
from lightning_gpuprof.capture.recorder import SourceUnavailableError
from lightning_gpuprof.capture.step_clock import ClosedStep
from lightning_gpuprof.errors import ArgumentError
from lightning_gpuprof.model.every_kernel import EveryKernel
from lightning_gpuprof.model.journal import KernelBlock, KernelNames


class Scripted:
    """Hands over what it was given, one batch at a time."""

    def __init__(self, *batches: KernelRecords, lost: int = 0) -> None:
        self.batches = list(batches)
        self.lost = lost
        self.take: Callable[[KernelRecords], object] = print

    def open(self, take: Callable[[KernelRecords], object]) -> None:
        self.take = take

    def flush(self) -> None:
        if self.batches:
            self.take(self.batches.pop(0))

    def close(self) -> int:
        while self.batches:
            self.flush()
        return self.lost


def read(sampler: KernelSampler, source: Scripted) -> list[KernelBlock | KernelNames]:
    """What a look finds after the next batch."""
    source.flush()
    return [*sampler.sample(0)]


def records(*kernels: tuple[str, int, int]) -> KernelRecords:
    """Name, start and duration of each."""
    names = list(dict.fromkeys(name for name, _, _ in kernels))
    number = [names.index(name) for name, _, _ in kernels]
    start, duration = ([kernel[column] for kernel in kernels] for column in (1, 2))
    return KernelRecords(names, np.array(number), np.array(start, np.int64), np.array(duration, np.int64))


def steps(*edges: int, first: int = 0) -> list[ClosedStep]:
    return [
        ClosedStep(first + number, start, end, 0, 0, 0, [], None, -1)
        for number, (start, end) in enumerate(itertools.pairwise(edges))
    ]


def columns_of(found: Sequence[KernelBlock | KernelNames]) -> KernelColumns:
    columns = KernelColumns()
    for one in found:
        if isinstance(one, KernelNames):
            columns.names.update(one.names)
        else:
            columns.add(msgspec.json.decode(msgspec.json.encode(one), type=KernelBlock))
    return columns


def found_in(found: Sequence[KernelBlock | KernelNames]) -> EveryKernel | None:
    journal: Any = SimpleNamespace(kernels=columns_of(found))
    return every_kernel(journal)


def rows(found: EveryKernel | None) -> dict[str, tuple[float, float, float, int]]:
    assert found is not None
    return {one.name: (one.calls_per_step, one.median_us, one.max_us, one.max_batch) for one in found.kernels}


def test_kernels_are_summed_in_the_step_during_which_they_began() -> None:
    source = Scripted(
        records(("gemm", 100_000, 5_000), ("gemm", 110_000, 7_000), ("relu", 150_000, 1_000)),
        records(("gemm", 199_000, 50_000), ("gemm", 260_000, 9_000)),
    )
    sampler = KernelSampler(source)
    sampler.open()
    sampler.steps_closed(steps(100_000, 200_000, first=40))
    blocks = read(sampler, source)
    sampler.steps_closed(steps(200_000, 300_000, first=41))
    blocks += [*read(sampler, source), *sampler.close()]
    found = found_in(blocks)
    assert rows(found) == {"gemm": (2.0, 35.5, 62.0, 40), "relu": (0.5, 1.0, 1.0, 40)}
    assert found is not None
    assert (found.steps, found.kernels_per_step, found.device_us_per_step) == (2, 2.5, 36.0)


def test_kernels_wait_for_their_step_and_those_outside_of_steps_do_not_count() -> None:
    source = Scripted(records(("early", 5, 1), ("k", 15, 1), ("between", 25, 1), ("k", 35, 3), ("late", 60, 1)))
    sampler = KernelSampler(source)
    sampler.open()
    names = read(sampler, source)
    assert [type(one) for one in names] == [KernelNames]
    sampler.steps_closed([*steps(10, 20), *steps(30, 40, first=1)])
    first = [*names, *sampler.sample(0)]
    assert rows(found_in(first)) == {"k": (1.0, 0.002, 0.003, 1)}
    sampler.steps_closed(steps(50, 70, first=2))
    assert rows(found_in([*first, *sampler.close()]))["late"] == (1 / 3, 0.001, 0.001, 2)


def test_names_have_one_number_over_all_blocks_and_their_count_is_bounded() -> None:
    many = records(*((f"k{number}", number, 1) for number in range(MAX_KERNELS + 50)))
    source = Scripted(many, records(("k7", 9_000, 1)), lost=3)
    sampler = KernelSampler(source)
    sampler.open()
    sampler.steps_closed(steps(0, 8_000, 10_000))
    found = columns_of([*read(sampler, source), *read(sampler, source), *sampler.close()])
    assert len(found.names) == MAX_KERNELS + 1
    assert found.names[7] == "k7"
    assert found.lost == 3
    assert found.columns[1][:, 0].tolist() == [1, 7, 1, 1]


def test_what_waits_is_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_under_test, "MAX_WAITING", 10)
    source = Scripted(records(*(("k", start, 1) for start in range(100, 130))))
    sampler = KernelSampler(source)
    sampler.open()
    sampler.steps_closed(steps(0, 50))
    found = columns_of([*read(sampler, source), *sampler.close()])
    assert found.lost == 20


def test_blocks_are_cut_at_their_most_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_under_test, "MAX_KERNEL_ROWS", 4)
    source = Scripted(records(*((f"k{number}", 10 * number, number) for number in range(10))))
    sampler = KernelSampler(source)
    sampler.open()
    sampler.steps_closed(steps(*range(0, 110, 10)))
    blocks = [one for one in read(sampler, source) if isinstance(one, KernelBlock)]
    assert [block.count for block in blocks] == [4, 4, 2]
    assert [block.first_batch for block in blocks] == [0, 4, 8]
    batches = np.concatenate(columns_of(blocks).columns, axis=1)[0]
    assert batches.tolist() == list(range(10))


def test_nothing_is_kept_of_steps_where_nothing_is_recorded() -> None:
    sampler = KernelSampler(Scripted())
    sampler.steps_closed(steps(0, 10, 20))
    sampler.open()
    assert [*sampler.sample(0), *sampler.close()] == []
    sampler.steps_closed(steps(20, 30))
    assert not sampler._closed


def test_only_lost_kernels_are_a_report_too() -> None:
    sampler = KernelSampler(Scripted(lost=9))
    sampler.open()
    found = found_in(sampler.close())
    assert found is not None
    assert (found.steps, found.kernels, found.lost) == (0, (), 9)


def test_a_step_of_eight_thousand_kernels_takes_less_than_three_kilobytes() -> None:
    draw = np.random.default_rng(1)
    names = [f"void kernel_{number}" for number in range(200)]
    source = Scripted(
        *(
            KernelRecords(
                names,
                np.arange(8000) % 200,
                100_000_000 * step + np.sort(draw.integers(0, 90_000_000, 8000)),
                draw.integers(2_000, 400_000, 8000),
            )
            for step in range(50)
        )
    )
    sampler = KernelSampler(source)
    sampler.open()
    sampler.steps_closed(steps(*range(0, 51 * 100_000_000, 100_000_000)))
    blocks = [block for _ in range(50) for block in read(sampler, source)]
    written = sum(len(msgspec.json.encode(block)) for block in blocks)
    assert written / 50 < 3_000
    found = found_in(blocks)
    assert found is not None
    assert (found.steps, found.kernels_per_step) == (50, 8000)


@pytest.mark.parametrize(
    "block",
    [
        KernelBlock(first_batch=0, count=1, widths="111", crc32=0, data=b""),
        KernelBlock(first_batch=-1, count=0, widths="0000", crc32=0, data=b""),
        KernelBlock(first_batch=0, count=10**9, widths="0000", crc32=0, data=b""),
        KernelBlock(first_batch=0, count=3, widths="1111", crc32=0, data=b"no deflate"),
    ],
)
def test_damaged_blocks_are_refused(block: KernelBlock) -> None:
    with pytest.raises(ValueError, match="not a block of kernels"):
        KernelColumns().add(block)
    block.crc32 = block.checksum()
    with pytest.raises(ValueError, match=r"."):
        KernelColumns().add(block)


def test_without_a_gpu_the_report_says_so_once_and_training_goes_on(tmp_path: Path) -> None:
    profiler = quiet_profiler(trace=TraceConfig(every_kernel=True))
    report = fit(tmp_path, Planted(), single_rows(30), profiler=profiler)
    assert report.windows == ()
    assert report.kernels is None
    assert [text for text in report.validity.caveats if "every_kernel" in text] == [
        "kernels: every_kernel has no effect: torch finds no GPU"
    ]


def test_windows_beside_it_are_refused() -> None:
    for options in ({"windows": 20}, {"windows": [20, 30]}):
        with pytest.raises(ArgumentError, match=r"trace.every_kernel must not be set beside windows"):
            quiet_profiler(trace=TraceConfig(every_kernel=True), **options)
    with pytest.raises(ArgumentError, match=r"trace.every_kernel must not be set beside windows"):
        quiet_profiler(trace=TraceConfig(every_kernel=True, on_slow_step=True))
    assert quiet_profiler(windows=[], trace=TraceConfig(every_kernel=True)).options.windows == ()


def test_no_gpu_is_no_source() -> None:
    source = CuptiSource()
    with pytest.raises(SourceUnavailableError, match="torch finds no GPU"):
        source.open(print)
    assert source.close() == 0


def test_buffers_of_cupti_become_names_and_times_on_the_clock_of_the_run() -> None:
    """With the layout of a record as numpy has it, and torch's monitor in name only."""
    dtype = np.dtype([("kind", "<i4"), ("start", "<u8"), ("end", "<u8"), ("name", "<u8")])
    texts = {7: "gemm", 9: "relu"}
    ended: list[str] = []

    class Monitor:
        def __init__(self, folder: str, *, activities: tuple[int, ...]) -> None:
            self.activities = activities
            self._dropped_records = 0
            self._flush_stop = threading.Event()

    module = SimpleNamespace(
        CuptiMonitor=Monitor,
        _PY_PROFILER=SimpleNamespace(
            _get_approximate_time=lambda: time.perf_counter_ns() // 2,
            _cupti_monitor_shutdown_buffers=lambda: ended.append("buffers"),
        ),
        _require_cupti_python=lambda: None,
        _CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL=10,
        _KERNEL_DTYPE=dtype,
        _decode_c_string=lambda pointer, default: texts.get(pointer, default),
        _demangle_symbol=lambda text: f"void {text}",
    )
    taken: list[KernelRecords] = []
    monitor = _monitor_class(module)(taken.append)
    assert monitor.activities == (10,)
    monitor._open_outputs()
    time.sleep(0.01)
    now = time.perf_counter_ns() // 2
    times = [(10, 100, 150, 7), (10, 200, 210, 9), (10, 300, 350, 7), (10, 400, 401, 3)]
    buffer = np.array([(kind, now + 1000 * a, now + 1000 * b, name) for kind, a, b, name in times], dtype)
    monitor._write_raw_buffer(0, 0, buffer.ctypes.data, buffer.nbytes)
    (found,) = taken
    assert [found.names[number] for number in found.name] == ["void gemm", "void relu", "void gemm", "unnamed"]
    assert (found.start_ns - 2 * now).tolist() == pytest.approx([200_000, 400_000, 600_000, 800_000], rel=0.2)
    assert found.duration_ns.tolist() == pytest.approx([100_000, 20_000, 100_000, 2_000], rel=0.02)
    other = np.array([(11, 1, 2, 7)], dtype)
    without_time = np.array([(10, 0, 2, 7)], dtype)
    monitor._write_raw_buffer(0, 0, other.ctypes.data, other.nbytes)
    monitor._write_raw_buffer(0, 0, without_time.ctypes.data, without_time.nbytes)
    monitor._write_raw_buffer(0, 0, buffer.ctypes.data, dtype.itemsize + 3)
    monitor._write_raw_buffer(0, 0, buffer.ctypes.data, 0)
    assert len(taken) == 1
    assert monitor._dropped_records == 3
    monitor.end_threads()
    assert monitor._flush_stop.is_set()
    assert ended == ["buffers"]
