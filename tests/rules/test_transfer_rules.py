"""What the examples of the rules on transfers and waits cannot say: several causes in one step, several rules."""

import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from example_runs import example_run
from findings_builder import fired
from gpu_builder import copying_window
from late_steps import copies, training
from metrics_builder import replace, share
from trace_metrics import metrics_of, recorded_steps
from truths.gpu_runs import GpuRun, Program, Simulated
from truths.gpu_steps import PAGEABLE_BYTES_PER_S, PINNED_BYTES_PER_S, Step, busy, update
from truths.gpu_trace import GpuTrace

from lightning_gpuprof.model.journal import Value
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.pipeline import load_report
from lightning_gpuprof.rules import claims
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.engine import diagnose, settle
from lightning_gpuprof.rules.steps.blocked_in_step import BlockedInStep
from lightning_gpuprof.rules.transfers.amp_scaler_sync import AmpScalerSync
from lightning_gpuprof.rules.transfers.copy_heavy import CopyHeavy
from lightning_gpuprof.rules.transfers.h2d_exposed import H2dExposed
from lightning_gpuprof.rules.transfers.h2d_pageable import H2dPageable
from lightning_gpuprof.rules.transfers.h2d_slow_link import H2dSlowLink
from lightning_gpuprof.rules.transfers.many_small_copies import ManySmallCopies
from lightning_gpuprof.rules.transfers.progress_bar_sync import ProgressBarSync
from lightning_gpuprof.rules.transfers.sync_points import SyncPoints
from lightning_gpuprof.rules.transfers.transfer_hook_slow import TransferHookSlow

PAGEABLE, PINNED = "HtoD (Pageable -> Device)", "HtoD (Pinned -> Device)"
FLOAT = "float"
MIB = 2**20
WAITS: tuple[Any, ...] = (SyncPoints(), ProgressBarSync(), AmpScalerSync())


@pytest.mark.parametrize(
    ("reads", "run", "rule"),
    [
        ("TQDMProgressBar", {}, "progress-bar-sync"),
        ("scaler", {"trainer.precision": "16-mixed"}, "amp-scaler-sync"),
        ("scaler", {"trainer.precision": "bf16-mixed"}, "sync-points"),
        ("optimizer", {"trainer.precision": "16-mixed"}, "sync-points"),
    ],
)
def test_one_wait_is_one_rule_s(reads: str, run: dict[str, Value], rule: str) -> None:
    metrics = example_run(step={"kernels": 100, "reads": {reads: 2000.0}}, run=run)
    assert [one.id for one in WAITS if one.check(metrics) is not None] == [rule]


def test_a_progress_bar_that_reads_rarely_is_quiet() -> None:
    count = iter(range(100))

    def step(trace: GpuTrace) -> None:
        training(trace, kernels=100, reads={"TQDMProgressBar": 2000.0} if next(count) % 6 == 0 else {})

    assert ProgressBarSync().check(metrics_of(recorded_steps(step, steps=6))) is None


def test_the_gain_of_a_wait_is_idle_time_and_not_blocked_time() -> None:
    finding = fired(SyncPoints(), example_run(step={"kernels": 100, "reads": {"training_step": 1500.0}}))
    blocked = next(e.value for e in finding.evidence if e.name == "host blocked per traced step")
    assert isinstance(blocked, float)
    assert blocked > 1.5 * finding.gain.saved_ms_per_step


@pytest.mark.parametrize("ranks", [1, 2])
def test_lightning_s_own_check_of_all_ranks_is_not_the_codes(ranks: int) -> None:
    def step(trace: GpuTrace) -> None:
        trace.item()
        trace.python(2000.0)
        training(trace, kernels=100)

    run: dict[str, Value] = {"trainer.world_size": ranks, "version.lightning": "2.6.6"}
    assert (SyncPoints().check(metrics_of(recorded_steps(step), run=run)) is None) is (ranks == 2)


def test_of_two_waits_the_second_costs_what_the_first_has_blocked() -> None:
    """Without both, the host would be ahead by the time of the first: the second alone is blocked for microseconds."""

    def step(trace: GpuTrace) -> None:
        training(trace, kernels=100)
        with trace.line("train.py(52): training_step"):
            trace.item()
            trace.item()
            trace.python(2000.0)

    finding = fired(SyncPoints(), metrics_of(recorded_steps(step)))
    assert finding.subject == "train.py(52): training_step"
    assert finding.gain.saved_ms_per_step == pytest.approx(4 / 5 * 2.0, rel=0.1)  # after the last no kernel follows


@pytest.mark.parametrize("kind", [PAGEABLE, PINNED])
def test_waits_for_a_large_copy_are_not_those_of_small_ones(kind: str) -> None:
    """15 small tensors and an image of 150 MB: the host waits for the image, and is late after it."""

    def step(trace: GpuTrace) -> None:
        copies(trace, kind=kind, us=2.0, nbytes=2000, count=15)
        copies(trace, kind=PAGEABLE, us=20_000.0, nbytes=150_000_000, after_us=5000.0)
        training(trace, kernels=100)

    assert ManySmallCopies().check(metrics_of(recorded_steps(step))) is None


def test_no_shape_is_named_where_it_may_be_the_batch() -> None:
    """A batch of one type is copied to the device as ``aten::copy_`` of its own shape."""

    def step(trace: GpuTrace) -> None:
        batch = [256, 3, 224, 224]
        trace.copy(5000.0, 154_000_000, kind=PINNED, op="aten::copy_", inputs=([batch], [FLOAT]))
        training(trace, kernels=100, layout={"us": 300.0, "types": (FLOAT, FLOAT)})

    finding = fired(CopyHeavy(), metrics_of(recorded_steps(step), period_ms=18.1))
    assert finding.subject == "aten::copy_"
    assert "256x3" not in finding.summary + finding.advice
    assert finding.gain.saved_ms_per_step == pytest.approx(3.0, rel=0.05)


@pytest.mark.parametrize(("empty_ratio", "fires"), [(0.9, False), (0.02, True)])
@pytest.mark.parametrize("rule", [H2dExposed(), CopyHeavy()], ids=lambda rule: rule.id)
def test_copies_are_free_where_workers_set_the_pace(rule: Any, empty_ratio: float, fires: bool) -> None:
    def step(trace: GpuTrace) -> None:
        copy = {"kind": PINNED, "us": 6000.0, "nbytes": 100_000_000} if rule.id == "h2d-exposed" else None
        layout = None if copy is not None else {"us": 600.0, "types": (FLOAT, FLOAT)}
        training(trace, fetch_us=20_000.0, kernels=100, copy=copy, layout=layout)

    metrics = replace(metrics_of(recorded_steps(step), period_ms=36.0), fetch_waited_ratio=empty_ratio)
    assert (rule.check(metrics) is not None) is fires


def test_without_the_tables_of_copies_it_is_not_evaluated() -> None:
    metrics = example_run(**H2dPageable.examples[0].changes)
    (window,) = metrics.windows
    without = msgspec.structs.replace(window, analysis=msgspec.structs.replace(window.analysis, api_tables=None))
    with pytest.raises(MissingSignal, match="could not be analysed"):
        H2dPageable().check(replace(metrics, windows=(without,)))


def test_the_ceiling_of_the_link_is_beside_the_copies_where_all_gpus_have_the_same() -> None:
    metrics = replace(example_run(gpu={}), windows=(copying_window(h2d_ms=10.0, copies=2),))
    (gpu,) = metrics.devices
    facts = msgspec.structs.replace(gpu.facts, pcie_generation_max=4.0, pcie_width_max=16.0)
    known = msgspec.structs.replace(gpu, facts=facts)
    other = msgspec.structs.replace(gpu, facts=msgspec.structs.replace(facts, pcie_width_max=8.0))

    def link(*devices: object) -> float | None:
        (window,) = replace(metrics, devices=devices).windows
        return window.analysis.api_tables.pcie_bytes_per_s  # type: ignore[no-any-return]

    assert link(known) == link(known, known) == pytest.approx(31.504e9)
    assert link(known, other) is None
    assert link() is None


@pytest.mark.parametrize(("average", "largest", "fires"), [(72, 144, True), (10, 90, False)])
def test_small_copies_beside_large_ones_count_unless_large_ones_are_few(
    average: int, largest: int, fires: bool
) -> None:
    """Images and labels of 2 kB, at a tenth of the link."""
    window = copying_window(h2d_ms=10.653, copies=2)
    (row,) = window.analysis.api_tables.cuda_gpu_mem_size_sum
    row = msgspec.structs.replace(
        row,
        min_bytes=2000,
        max_bytes=largest * MIB,
        average_bytes=float(average * MIB),
        total_bytes=average * MIB * row.count,
    )
    tables = msgspec.structs.replace(window.analysis.api_tables, cuda_gpu_mem_size_sum=(row,))
    window = msgspec.structs.replace(window, analysis=msgspec.structs.replace(window.analysis, api_tables=tables))
    metrics = replace(example_run(gpu={}), windows=(window,))
    if fires:
        finding = fired(H2dSlowLink(), metrics)
        assert finding.summary.startswith(f"Copies of {average} MiB on average")
    else:
        with pytest.raises(MissingSignal, match="no window holds 3 copies"):
            H2dSlowLink().check(metrics)


HOOK: Any = TransferHookSlow()


def hooked(ms: float, *, name: str = "on_after_batch_transfer", **more: Any) -> Any:
    return example_run(times_ms={"h2d": ms + 0.1}, hooks={("Net", name): ms}, **more)


def test_a_hook_that_waits_is_gained_once_and_named_first() -> None:
    found = diagnose(hooked(50.0, blocked_ms={"h2d": 50.0}), [HOOK, BlockedInStep()]).findings
    assert [f.rule for f in found] == ["transfer-hook-slow", "blocked-in-step"]
    assert [f.gain is None for f in found] == [False, True]


def test_a_hook_that_works_in_every_third_step_has_its_part_of_all_steps() -> None:
    metrics = hooked(0.001)
    (slow,) = metrics.transfer_hooks
    slow = replace(slow, share=replace(slow.share, total_ratio=0.3))
    finding = HOOK.check(replace(metrics, transfer_hooks=(slow,)))
    assert "takes 15.0 ms of each 50.0 ms step (30 %)" in finding.summary
    assert finding.evidence[0].value == pytest.approx(0.3)


def test_a_hook_that_copies_to_a_device_and_pageable_memory_are_gained_once() -> None:
    copy = {"kind": PAGEABLE, "us": 10_000.0, "nbytes": 40_000_000, "after_us": 5000.0}
    run = example_run(step={"kernels": 100, "copy": copy}, pin_memory=False)
    assert run.period_ms is not None
    (own,) = hooked(0.3 * run.period_ms, name="transfer_batch_to_device").transfer_hooks
    own = replace(own, share=share(0.3 * run.period_ms, run.period_ms))
    found = {f.rule: f for f in diagnose(replace(run, transfer_hooks=(own,)), [HOOK, H2dPageable()]).findings}
    assert found.keys() == {"transfer-hook-slow", "h2d-pageable"}
    assert "the same time as transfer-hook-slow" in found["h2d-pageable"].summary


@pytest.mark.parametrize("seed", [1, 2])
def test_pinned_batches_bring_no_more_than_the_finding_promises(seed: int, tmp_path: Path) -> None:
    """The same training with pinned batches is computed: host, copies and kernels wait as on a GPU."""

    def program(kind: str, bytes_per_s: float) -> Callable[[Random, bool], Program]:
        def made(random: Random, faulty: bool) -> Program:
            def upload(run: GpuRun) -> None:
                run.copy(30 * MIB / bytes_per_s * 1e6, 30 * MIB, kind=kind)

            forward, backward = busy(random, size=3072)
            step = Step(forward=forward, backward=backward, update=update, upload=upload)
            return Program(step=step, conditions={"loader.pin_memory": kind == PINNED})

        return made

    def report(name: str, kind: str, bytes_per_s: float) -> Report:
        (tmp_path / name).mkdir()
        return load_report(Simulated(program=program(kind, bytes_per_s))(tmp_path / name, seed).parent)

    before = report("pageable", PAGEABLE, PAGEABLE_BYTES_PER_S)
    after = report("pinned", PINNED, PINNED_BYTES_PER_S)
    finding = next(one for one in before.findings if one.rule == "h2d-pageable")
    achieved_ms = before.steps.period_ms.mean - after.steps.period_ms.mean  # a host that is ahead has short medians
    assert finding.gain.lower_ms <= achieved_ms <= finding.gain.saved_ms_per_step


def test_it_and_other_idle_time_gain_no_more_than_the_device_idles() -> None:
    metrics = hooked(10.0, run={"device.type": "cuda"}, idle_ratio=0.1)
    hook = HOOK.check(metrics)
    late = msgspec.structs.replace(hook, rule="late", explains=claims.LATE_LAUNCHES)
    gains = [f.gain.saved_ms_per_step for f in settle([hook, late], metrics) if f.gain is not None]
    assert metrics.period_ms is not None
    assert sum(gains) == pytest.approx(0.1 * metrics.period_ms, rel=0.01)


def test_on_a_device_that_no_window_saw_a_hook_has_no_lower_bound_and_impossible_numbers_are_not_believed() -> None:
    assert HOOK.check(hooked(50.0, run={"device.type": "cuda"})).gain.saved_lower_ms_per_step == 0
    metrics = hooked(50.0)
    broken = replace(metrics.transfer_hooks[0], share=share(math.nan, 100.0))
    assert HOOK.check(replace(metrics, transfer_hooks=(broken,))) is None
