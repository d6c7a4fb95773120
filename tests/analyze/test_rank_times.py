"""Known delays in the journals of ranks are found: who is late, and who took turns."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from built_journals import MS, SLOTS, ints, journal
from msgspec.structs import replace

from lightning_gpuprof.analyze.journal_columns import CpuColumns, DeviceColumns, Journal
from lightning_gpuprof.analyze.rank_summary import summarise
from lightning_gpuprof.analyze.rank_times import rank_times
from lightning_gpuprof.model.clock_events import MASK, REASONS
from lightning_gpuprof.model.journal import Sample, Segment, Slot
from lightning_gpuprof.model.missing import Unmeasured
from lightning_gpuprof.model.phases import SegmentKind
from lightning_gpuprof.model.rank_times import LateOutside, RankTimes

N = 100


def rank(
    number: int, forward_ms: object = None, *, of: int = 2, device: str = "cpu", n: int = N, **header: object
) -> Journal:
    one = journal(n, forward_ms=np.full(n, 5.0) if forward_ms is None else forward_ms)
    changed = {"rank": number, "world_size": of, "host": f"node{number // 4}", "job": "j", **header}
    return replace(
        one,
        header=msgspec.structs.replace(one.header, **changed),
        conditions={**one.conditions, "trainer.strategy": "DDPStrategy", "device.type": device},
    )


def side_by_side(journals: Sequence[Journal], unread: dict[int, str] | None = None) -> RankTimes:
    own, *others = (summarise(one) for one in journals)
    found = rank_times(own, others, unread)
    assert isinstance(found, RankTimes)
    return found


def not_compared(journals: Sequence[Journal], unread: dict[int, str] | None = None) -> str:
    own, *others = (summarise(one) for one in journals)
    found = rank_times(own, others, unread)
    assert isinstance(found, Unmeasured)
    return found.why


def jittered(seed: int, mean_ms: float) -> np.ndarray:
    return mean_ms + np.random.default_rng(seed).uniform(-0.5, 0.5, N)


def test_the_rank_whose_validation_takes_longest_is_named_with_what_it_takes_longer_than_any_other() -> None:
    val = Slot(id=len(SLOTS), action="validation_step", phase="forward", region="validation")
    end = Slot(id=len(SLOTS) + 1, action="epoch end", phase="logging", region="validation")

    def validating(number: int, batches_ms: int, waits_ms: int) -> Journal:
        one = rank(number, of=3)
        charged = {val.id: batches_ms * MS, end.id: waits_ms * MS}
        between = Segment(kind="epoch_gap", start_ns=0, end_ns=sum(charged.values()), charged=charged)
        return replace(one, slots=[*one.slots, val, end], segments=[*one.segments, between])

    found = side_by_side([validating(0, 200, 700), validating(1, 900, 0), validating(2, 300, 600)]).outside
    assert said(found, "validation") == (1, pytest.approx(0.9), pytest.approx(0.6))


@pytest.mark.parametrize("kind", ["setup", "epoch_gap"])
def test_the_rank_whose_hooks_take_longest_outside_of_steps_is_known_by_them(kind: SegmentKind) -> None:
    hook = Slot(id=len(SLOTS), action="hook", phase="callbacks", hook="on_train_epoch_end", callback="Images")
    own = replace(hook, id=hook.id + 1, callback="GpuProfiler")
    other = Slot(id=hook.id + 2, action="other", phase="loop")

    def with_hook(number: int, ms: int) -> Journal:
        one = rank(number)
        charged = {hook.id: ms * MS, own.id: 500 * MS, other.id: (900 - ms) * MS}
        around = Segment(kind=kind, start_ns=0, end_ns=sum(charged.values()), charged=charged)
        return replace(one, slots=[*one.slots, hook, own, other], segments=[*one.segments, around])

    found = side_by_side([with_hook(0, 100), with_hook(1, 900)]).outside
    assert said(found, kind) == (1, pytest.approx(0.9), pytest.approx(0.8))
    assert all(one.excess_s == 0 for one in found if one.part != kind)


def said(found: Sequence[LateOutside], part: str) -> tuple[int, float, float]:
    return next((one.rank, one.total_s, one.excess_s) for one in found if one.part == part)


def test_a_rank_that_waits_in_its_validation_batches_for_the_callback_of_another_is_not_named() -> None:
    val = Slot(id=len(SLOTS), action="validation_step", phase="forward", region="validation")
    hook = Slot(
        id=len(SLOTS) + 1, action="images", phase="callbacks", region="validation", hook="on_validation_batch_end"
    )

    def validating(number: int, batches_ms: int, hook_ms: int, looks: int) -> Journal:
        one = rank(number)
        charged = {val.id: batches_ms * MS, hook.id: hook_ms * MS}
        between = Segment(kind="epoch_gap", start_ns=0, end_ns=sum(charged.values()), charged=charged)
        seen = {"looks": {val.id: looks}, "in_collectives": {val.id: looks - 1}}
        return replace(one, slots=[*one.slots, val, hook], segments=[*one.segments, between], **seen)

    found = side_by_side([validating(0, 100, 1000, 1), validating(1, 1000, 0, 10)]).outside
    assert said(found, "validation") == (0, pytest.approx(1.1), pytest.approx(1.0))


def test_the_late_rank_has_the_excess_and_is_the_slowest() -> None:
    found = side_by_side([rank(0), rank(1, np.full(N, 7.0))])
    quick, late = found.ranks
    assert (quick.rank, late.rank, found.world_size) == (0, 1, 2)
    assert late.excess_ms == pytest.approx(2.0)
    assert quick.excess_ms == pytest.approx(-2.0)
    assert late.slowest_ratio == 1.0
    assert (found.late.ranks, found.late.phase) == ((1,), "forward")
    assert found.late.lost.median_ms == pytest.approx(2.0)
    assert found.imbalance.median_ms == 0
    assert late.phases_ms == {"data_wait": 4.0, "forward": 7.0, "callbacks": 1.0}
    assert (quick.period_ms, late.period_ms) == (10.0, 12.0)
    assert sum(late.phases_ms.values()) == late.period_ms


def test_ranks_that_are_late_in_turn_share_the_steps() -> None:
    even, odd = np.where(np.arange(N) % 2, 5.0, 9.0), np.where(np.arange(N) % 2, 9.0, 5.0)
    found = side_by_side([rank(0, even), rank(1, odd)])
    assert [one.slowest_ratio for one in found.ranks] == pytest.approx([0.5, 0.5], abs=0.02)
    assert found.imbalance.median_ms == pytest.approx(2.0)


def test_all_ranks_of_a_slow_node_are_late_together() -> None:
    found = side_by_side([rank(one, jittered(one, 9.0 if one // 4 == 3 else 5.0), of=64) for one in range(64)])
    assert found.late.ranks == (12, 13, 14, 15)
    assert found.late_name == "ranks 12 to 15 (all of host node3)"
    assert found.late.slowest_ratio == 1.0
    assert found.late.lost.median_ms == pytest.approx(4.0, abs=0.3)


@pytest.mark.parametrize(("later_ms", "lost_ms"), [(12.0, 6.6), (14.0, 8.6)])
def test_two_late_ranks_of_different_lateness_are_one_set(later_ms: float, lost_ms: float) -> None:
    """Also where the later one is farther from the other than that from the rest."""
    found = side_by_side([rank(one, jittered(one, {2: later_ms, 5: 9.0}.get(one, 5.0)), of=8) for one in range(8)])
    assert found.late.ranks == (2, 5)
    assert found.late.lost.median_ms == pytest.approx(lost_ms, abs=0.5)


def test_a_rank_that_is_later_than_a_late_node_comes_first() -> None:
    late_ms = {4: 7.0, 5: 7.0, 6: 30.0, 7: 7.0}
    found = side_by_side([rank(one, jittered(one, late_ms.get(one, 5.0)), of=12) for one in range(12)])
    assert found.late.ranks == (6,)


def test_the_same_local_rank_of_each_host_is_one_set() -> None:
    found = side_by_side([rank(one, jittered(one, 9.0 if one % 4 == 2 else 5.0), of=64) for one in range(64)])
    assert found.late_name == "ranks 2, 6, 10, 14 and 12 more (local rank 2 of each host)"
    assert found.late.lost.median_ms == pytest.approx(4.0, abs=0.3)


def test_where_most_ranks_are_late_these_are_named_and_no_work_is_called_unequal() -> None:
    found = side_by_side([rank(one, jittered(one, 5.0 if one == 4 else 15.0), of=5) for one in range(5)])
    assert found.late.ranks == (0, 1, 2, 3)
    assert found.most_are_late
    assert found.imbalance.median_ratio < 0.05


def test_of_a_late_rank_whose_work_is_as_unequal_as_that_of_all_only_what_changes_is_unequal_work() -> None:
    numbers = np.random.default_rng(5)
    work = [numbers.lognormal(1.6, 0.4, N) + (3.0 if one == 3 else 0.0) for one in range(8)]
    found = side_by_side([rank(one, work[one], of=8) for one in range(8)])
    equal_ms = max(one.mean() for one in work)
    assert found.late.ranks == (3,)
    assert found.imbalance.median_ms == pytest.approx((np.max(work, axis=0) - equal_ms).mean(), abs=1)


def test_the_order_of_the_journals_does_not_matter() -> None:
    ranks = [rank(0, of=3), rank(1, np.full(N, 7.0), of=3), rank(2, of=3)]
    assert side_by_side(ranks) == side_by_side(ranks[::-1])


def test_other_numbers_of_the_ranks_permute_what_is_said_of_them() -> None:
    forward_ms = [np.full(N, 5.0), np.full(N, 7.0), np.full(N, 6.0)]
    numbers = [2, 0, 1]
    before = side_by_side([rank(number, ms, of=3) for number, ms in enumerate(forward_ms)])
    after = side_by_side([rank(number, ms, of=3) for number, ms in zip(numbers, forward_ms, strict=True)])
    assert after.imbalance == before.imbalance
    assert [after.ranks[number] for number in numbers] == [
        replace(one, rank=number) for one, number in zip(before.ranks, numbers, strict=True)
    ]


def test_of_a_host_with_a_device_only_the_wait_for_batches_is_a_rank_s_own() -> None:
    found = side_by_side([rank(0, device="cuda"), rank(1, np.full(N, 7.0), device="cuda")])
    assert found.phases == ("data_wait",)
    assert found.imbalance.median_ms == 0


@pytest.mark.parametrize(("every", "ms"), [(2, 10.0), (10, 100.0), (50, 900.0)])
def test_a_rank_that_is_late_now_and_then_is_named(every: int, ms: float) -> None:
    def jitter(seed: int) -> np.ndarray:
        return 5.0 + np.random.default_rng(seed).uniform(-0.2, 0.2, 2000)

    late_ms = jitter(2) + np.where(np.arange(2000) % every == 1, ms, 0.0)
    found = side_by_side([rank(one, late_ms if one == 2 else jitter(one), of=4, n=2000) for one in range(4)])
    rare = found.rare
    assert (rare.ranks, rare.phase) == ((2,), "forward")
    assert rare.excess_ms == pytest.approx(ms, rel=0.1)
    assert rare.steps_ratio == pytest.approx(1 / every, rel=0.3)
    assert 0.3 < rare.lost_ratio < 1
    assert rare.of_all_ratio > 0.95


def late_now_and_then(number: int, late: Collection[int], *, of: int, every: int, ms: float) -> Journal:
    """20,000 steps, in which all others wait for late ranks in the step after."""
    n = 20_000
    noise_ms = np.random.default_rng(number).uniform(-0.2, 0.2, n)
    stalls_ms = np.where(np.arange(n) % every == 1, ms, 0.0)
    one = rank(number, 5.0 + noise_ms + (stalls_ms if number in late else 0.0), of=of, n=n)
    if number in late:
        return one
    sync = Slot(id=len(SLOTS), action="sync", phase="sync")
    waits = ints(np.r_[0.0, stalls_ms[:-1]] * MS)
    steps = replace(one.steps, charged={**one.steps.charged, sync.id: waits}, period_ns=one.steps.period_ns + waits)
    return replace(one, slots=[*one.slots, sync], steps=steps)


@pytest.mark.parametrize("late", [(2,), (4, 5, 6, 7)])
def test_who_is_late_in_so_few_steps_that_none_is_drawn_is_named(late: tuple[int, ...]) -> None:
    """One rank, or all of a host whose disk stops now and then."""
    found = side_by_side([late_now_and_then(one, late, of=8, every=1000, ms=5000.0) for one in range(8)]).rare
    assert (found.ranks, found.phase, found.steps) == (late, "forward", pytest.approx(20_000, rel=0.1))
    assert found.steps_ratio == pytest.approx(0.001, rel=0.1)
    assert found.excess_ms == pytest.approx(5000.0, rel=0.01)
    assert found.lost_ratio == pytest.approx(5 / 15, rel=0.1)
    assert found.lower_ratio > 0.2
    assert msgspec.json.encode(found)  # as a report writes it: no numbers of NumPy
    assert found.of_all_ratio > 0.9


def test_of_ranks_that_do_the_same_none_is_late_alone() -> None:
    assert side_by_side([rank(one, of=4) for one in range(4)]).rare is None


def test_a_rank_that_has_no_cpu_is_told_from_one_that_has_more_to_do() -> None:
    def with_delay(one: Journal, ms: float) -> Journal:
        batch = one.steps.batch[::2]
        return replace(one, cpu=CpuColumns(batch=batch, charged={}, run_delay_ns=ints(np.full(len(batch), ms * MS))))

    quick, late = with_delay(rank(0), 0.1), with_delay(rank(1, np.full(N, 15.0)), 9.0)
    starved = side_by_side([quick, late]).late
    assert starved.run_delay_ms == pytest.approx((9.0, 0.1))
    assert starved.is_starved
    assert not side_by_side([quick, with_delay(rank(1, np.full(N, 15.0)), 0.2)]).late.is_starved
    assert side_by_side([quick, rank(1, np.full(N, 15.0))]).late.run_delay_ms is None


BACKWARD = Slot(id=9, action="backward", phase="backward")


def on_device(number: int, *, every: int = 2, of: int = 4, strategy: str = "DDPStrategy", **ms: float) -> Journal:
    """Steps of 60 ms on the host, every so many of them measured on the device; the rest waits in the backward."""
    one = rank(number, np.full(N, 55.0), of=of, device="cuda")
    batch = one.steps.batch[number % every :: every]
    own = {1: ms.get("fetch", 1.0), 2: ms.get("forward", 20.0), 3: ms.get("callback", 1.0)}
    times = {**own, BACKWARD.id: 60.0 - sum(own.values())}
    charged = {slot: ints(np.full(len(batch), value * MS)) for slot, value in times.items()}
    return replace(
        one,
        slots=[*SLOTS, BACKWARD],
        device=DeviceColumns(batch=batch, charged=charged),
        conditions={**one.conditions, "trainer.strategy": strategy},
    )


@pytest.mark.parametrize(("part", "phase"), [("fetch", "data_wait"), ("forward", "forward"), ("callback", "callbacks")])
def test_the_clock_of_a_device_tells_what_a_rank_is_late_in(part: str, phase: str) -> None:
    """Its idle time is charged where the host was late; what it waits for others is in the backward."""
    found = side_by_side([on_device(one, **({part: 32.0} if one == 2 else {})) for one in range(4)])
    assert (found.late.ranks, found.late.phase) == ((2,), phase)
    assert found.late.lost.median_ms == pytest.approx(12.0 if part == "forward" else 31.0)


@pytest.mark.parametrize(
    ("part", "mhz", "samples", "is_slow"),
    [
        ("forward", 1200.0, 30, True),
        ("forward", 1700.0, 30, False),
        ("fetch", 1200.0, 30, False),
        ("forward", 1200.0, 10, None),
    ],
)
def test_a_late_rank_whose_gpu_has_a_lower_clock_is_told_from_one_that_has_more_to_do(
    part: str, mhz: float, samples: int, is_slow: bool | None
) -> None:
    def at(one: Journal, mhz: float) -> Journal:
        read = {"sm_clock_mhz": mhz, "utilization_ratio": 0.9}
        times_ns = one.steps.start_ns[:samples].tolist()
        return replace(
            one, samples=[Sample(source="nvml", subject="gpu0", t_ns=t_ns, values=read) for t_ns in times_ns]
        )

    ranks = [at(on_device(one, **({part: 32.0} if one == 2 else {})), mhz if one == 2 else 1755.0) for one in range(4)]
    late = side_by_side(ranks).late
    assert late.sm_clock_mhz == (None if is_slow is None else (mhz, 1755.0))
    assert late.has_slow_gpu == bool(is_slow)


def test_ranks_whose_devices_do_the_same_are_not_late() -> None:
    found = side_by_side([on_device(one) for one in range(4)])
    assert found.late.lost.median_ms == 0


def test_ranks_that_measured_different_steps_on_their_devices_are_compared() -> None:
    found = side_by_side([on_device(0, every=2), on_device(1, every=7, callback=21.0), on_device(2), on_device(3)])
    assert found.late.ranks == (1,)
    assert found.steps < N / 7


@pytest.mark.parametrize("strategy", ["FSDPStrategy", "ModelParallelStrategy", ""])
def test_ranks_that_may_meet_in_all_that_the_model_does_are_compared_by_what_is_around_it(strategy: str) -> None:
    def compared(**late: float) -> RankTimes:
        return side_by_side([on_device(one, strategy=strategy, **(late if one == 2 else {})) for one in range(4)])

    assert compared(forward=32.0).late.lost.median_ms == 0
    found = compared(callback=32.0)
    assert (found.late.ranks, found.late.phase) == ((2,), "callbacks")
    assert found.late.lost.median_ms == pytest.approx(31.0)


@pytest.mark.parametrize("days_apart", [0, 1, 400])
def test_clocks_of_hosts_need_not_agree(days_apart: int) -> None:
    ns = days_apart * 86_400 * 10**9
    found = side_by_side([rank(0), rank(1, np.full(N, 7.0), epoch_ns=ns, start_ns=ns // 7)])
    assert found.late.ranks == (1,)


def test_the_others_are_judged_where_a_rank_is_missing() -> None:
    ranks = [rank(0, of=5), rank(1, np.full(N, 7.0), of=5), rank(4, of=5)]
    found = side_by_side(ranks, {2: "its journal cannot be read (torn)"})
    assert found.late.ranks == (1,)
    assert [one.rank for one in found.ranks] == [0, 1, 4]
    assert found.left_out == (
        "rank 2: its journal cannot be read (torn)",
        "rank 3: no journal in the run's folder",
    )


def test_a_rank_that_was_killed_early_is_left_out() -> None:
    found = side_by_side([rank(0, of=3), rank(1, np.full(N, 7.0), of=3), rank(2, of=3, n=12)])
    assert [one.rank for one in found.ranks] == [0, 1]
    assert found.left_out == ("rank 2: fewer than 10 steady steps",)


def test_a_rank_whose_journal_ends_early_does_not_end_the_comparison_of_the_others() -> None:
    """Of a long run few steps are drawn, and of its beginning next to none."""
    ranks = [rank(one, np.full(5000, 7.0 if one == 1 else 5.0), of=4, n=5000) for one in range(3)]
    found = side_by_side([*ranks, rank(3, of=4, n=30)])
    assert found.late.ranks == (1,)
    assert found.left_out == ("rank 3: fewer than 10 of its steady steps are steady on the other ranks, too",)


@pytest.mark.parametrize("changed", [{"job": "another"}, {"stage": "validate"}, {"world_size": 3}])
def test_journals_of_another_job_are_not_compared(changed: dict[str, object]) -> None:
    assert "(rank 1: its journal is of another job)" in not_compared([rank(0), rank(1, **changed)])


def test_why_nothing_was_compared_is_said() -> None:
    assert not_compared([rank(0)]) == "1 rank of 2 can be compared (rank 1: no journal in the run's folder)"
    assert "1 rank of 4 can be compared (ranks 1 to 3: no journal" in not_compared([rank(0, of=4)])
    assert "rank 1: two journals" in not_compared([rank(0), rank(1), rank(1)])


def test_a_thousand_ranks_are_compared() -> None:
    """As many as no report read one by one: each is one row of the arrays."""
    quick, late = summarise(rank(0, of=1024)), summarise(rank(0, np.full(N, 7.0), of=1024))
    others = [msgspec.structs.replace(late if one == 700 else quick, rank=one) for one in range(1, 1024)]
    found = rank_times(quick, others)
    assert isinstance(found, RankTimes)
    assert len(found.ranks) == 1024
    assert found.late.ranks == (700,)


def sampled(one: Journal, *, model: str = "Tesla T4", mask: float = 0.0, tokens: int = 512) -> Journal:
    """With a GPU that is busy, and batches of rows of so many tokens."""
    read = {"sm_clock_mhz": 1200.0 if mask else 1755.0, "utilization_ratio": 0.9, MASK: mask}
    of_gpu = [
        Sample(source="nvml", subject="gpu1", t_ns=t_ns, values=read) for t_ns in one.steps.start_ns[:30].tolist()
    ]
    rows = {"looks_count": 9.0, "rows_count": 288.0, "cells_count": 288.0 * tokens}
    batches = Sample(source="input", subject="loader0.padding:input_ids", t_ns=of_gpu[-1].t_ns, values=rows)
    return replace(
        one,
        samples=[*of_gpu, batches],
        conditions={**one.conditions, "gpu1.name": model, "gpu1.uuid": f"GPU-{one.header.rank}"},
    )


def test_what_holds_down_the_clocks_of_a_late_gpu_is_known() -> None:
    ranks = [
        sampled(on_device(one, forward=32.0), mask=REASONS["sw_thermal"]) if one == 2 else sampled(on_device(one))
        for one in range(4)
    ]
    assert side_by_side(ranks).late.throttled == ("sw_thermal", 1.0, 0.0)
    assert side_by_side([sampled(one, mask=REASONS["sw_thermal"]) for one in ranks]).late.throttled is None
    assert summarise(ranks[2]).gpu.uuid == "GPU-2"


def test_what_a_late_rank_reads_from_disk_and_its_workers_are_compared() -> None:
    def loading(one: Journal, *, workers: int, read_mb: float) -> Journal:
        seen = [
            Sample(source="host", subject=subject, t_ns=t_ns, values={"read_bytes_per_s": read_mb * 5e5})
            for t_ns in (1, 2)
            for subject in ("process", "workers")
        ]
        return replace(one, samples=seen, conditions={**one.conditions, "loader.num_workers": workers})

    others = [loading(on_device(rank), workers=4, read_mb=1.0) for rank in range(3)]
    found = side_by_side([*others, loading(on_device(3, fetch=32.0), workers=1, read_mb=80.0)]).late
    assert (found.ranks, found.phase) == ((3,), "data_wait")
    assert (found.workers, found.read_bytes_per_s) == ((1.0, 4.0), (80e6, 1e6))
    assert found.has_fewer_workers
    assert found.reads_from_disk


@pytest.mark.parametrize(
    ("tokens", "part", "more"), [(2048, "forward", True), (540, "forward", False), (2048, "callback", False)]
)
def test_a_late_rank_with_longer_rows_is_known_by_them(tokens: int, part: str, more: bool) -> None:
    late = sampled(on_device(2, **{part: 32.0}), tokens=tokens)
    found = side_by_side([sampled(on_device(0)), sampled(on_device(1)), late, sampled(on_device(3))]).late
    assert found.batch_length == (tokens, 512.0)
    assert found.larger_batches == (("tokens in a row", 2048.0, 512.0) if more else None)


@pytest.mark.parametrize(
    ("late", "changed", "name"),
    [
        ((5,), {}, "rank 5 (host node1, GPU 1)"),
        ((1, 6), {"gpu1.name": "Tesla T4"}, "ranks 1 and 6 (all with a Tesla T4)"),
        ((1, 4), {"gpu1.name": "A100"}, "ranks 1 and 4"),
        ((2, 3), {"trainer.tensor_parallel": 2}, "ranks 2 and 3 (all of data shard 1)"),
        ((2, 3), {"trainer.pipeline_stage": 1}, "ranks 2 and 3 (all of pipeline stage 1)"),
        ((4, 5, 6, 7), {"slurm.switch": "s2"}, "ranks 4 to 7 (all of host node1)"),
        ((2, 3, 4, 5), {"slurm.switch": "s2"}, "ranks 2 to 5 (all on switch s2)"),
    ],
)
def test_late_ranks_are_named_by_what_they_alone_share(
    late: tuple[int, ...], changed: dict[str, Any], name: str
) -> None:
    def one(number: int) -> Journal:
        made = sampled(on_device(number, of=8, forward=32.0 if number in late else 20.0), model="A100")
        is_changed = number in late or "trainer.tensor_parallel" in changed
        return replace(made, conditions={**made.conditions, **(changed if is_changed else {})})

    assert side_by_side([one(number) for number in range(8)]).late_name == name


def test_the_pace_of_the_median_rank_is_known_beside_that_without_the_late_one() -> None:
    found = side_by_side([rank(one, np.full(N, 5.0 + {2: 8.0, 1: 1.0}.get(one, 0.0)), of=5) for one in range(5)])
    assert found.late.ranks == (2,)
    assert found.late.lost.median_ms == pytest.approx(7.0)
    assert found.above_median.median_ms == pytest.approx(8.0)
