"""Idle time of recorded traces: sums, the ground truth, a slow and obvious computation, and what the traces show."""

from functools import cache
from itertools import pairwise

import msgspec
import pytest
from recorded_traces import FLOAT_TIMES, TRUTH, recorded_trace, tolerance_us

from lightning_gpuprof.model.trace.idle import IDLE_CAUSES, DeviceIdle, Idle, IdleCause
from lightning_gpuprof.trace.analyses.code.waits import allocates, copies_pageable, synchronises
from lightning_gpuprof.trace.analyses.idle.idle import idle_times
from lightning_gpuprof.trace.host_phases import phase_of_name
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.tables import Spans

pytestmark = pytest.mark.skipif(not TRUTH, reason="no recorded traces beside the repository (../shared/traces)")

SMALL = sorted(name for name in TRUTH if TRUTH[name]["n_events"] < 6000)
"""Traces that the slow computation takes in a moment."""


@cache
def measured(name: str) -> tuple[LinkedTrace, Idle]:
    linked = recorded_trace(name)
    return linked, idle_times(linked)


def ns(us: float) -> int:
    return round(us * 1000)


def test_busy_and_idle_are_the_ground_truth_s(name: str) -> None:
    truth = TRUTH[name]["devices"]
    assert [device.device for device in measured(name)[1].devices] == sorted(truth, key=lambda d: (len(d), d))
    for device in measured(name)[1].devices:
        expected = truth[device.device]
        tolerance = tolerance_us(name, expected["n"])
        assert device.window_us == pytest.approx(expected["window_us"], abs=tolerance_us(name, 1))
        assert device.busy_us == pytest.approx(expected["busy_us"], abs=tolerance)
        assert device.idle_us == pytest.approx(expected["idle_us"], abs=tolerance)
        if not name.startswith(FLOAT_TIMES):
            assert device.gaps == expected["n_gaps"]
            assert max((gap.duration_us for gap in device.longest), default=0) == expected["max_gap_us"]


def test_everything_sums_to_the_nanosecond(name: str) -> None:
    for device in measured(name)[1].devices:
        assert ns(device.busy_us) + ns(device.idle_us) == ns(device.window_us)
        assert sum(ns(row.idle_us) for row in device.causes) == ns(device.idle_us)
        assert sum(row.idle_ratio for row in device.causes) == pytest.approx(1 if device.idle_us else 0)
        of_cause = {row.cause: ns(row.idle_us) for row in device.causes}
        host = ns(device.host.calls_us) + ns(device.host.operators_us or 0) + ns(device.host.elsewhere_us)
        assert host == of_cause.get("launch", 0) + of_cause.get("host_work", 0)
        for step in device.steps:
            assert ns(step.busy_us) + ns(step.idle_us) == ns(step.window_us)
            assert sum(map(ns, step.causes_us.values())) == ns(step.idle_us)
        for cause, of_device_ns in of_cause.items():
            assert sum(ns(step.causes_us.get(cause, 0)) for step in device.steps) <= of_device_ns
        for gap in device.longest:
            assert sum(map(ns, gap.causes_us.values())) == ns(gap.duration_us)
            assert gap.causes_us[gap.cause] == max(gap.causes_us.values())
            assert gap.host_ratio is None or 0.5 <= gap.host_ratio <= 1
        assert len(device.longest) == min(20, device.gaps)
        lengths = [gap.duration_us for gap in device.longest]
        assert lengths == sorted(lengths, reverse=True)


def test_the_result_is_json(name: str) -> None:
    found = measured(name)[1]
    assert msgspec.json.decode(msgspec.json.encode(found), type=Idle) == found


Interval = tuple[int, int]


def intervals(spans: Spans, chosen: list[bool]) -> list[Interval]:
    rows = zip(spans.start_ns.tolist(), spans.end_ns.tolist(), chosen, strict=True)
    return [(start, end) for start, end, wanted in rows if wanted]


def inside(at: int, of: list[Interval]) -> bool:
    return any(start <= at < end for start, end in of)


def slow_causes(linked: LinkedTrace, number: int) -> dict[IdleCause, int]:
    """Every gap, cut at every begin and end of anything; each piece has the first cause that holds of it."""
    trace, work = linked.trace, linked.work
    names = trace.names
    rows = sorted(linked.device_rows[number].tolist(), key=lambda row: int(work.start_ns[row]))
    found: dict[IdleCause, int] = dict.fromkeys(IDLE_CAUSES, 0)
    calls = {row: i for i, row in enumerate(trace.runtime.correlation.tolist()) if row >= 0}
    steps = list(zip(linked.steps.start_ns.tolist(), linked.steps.end_ns.tolist(), strict=True))

    def launch_of(row: int) -> int | None:
        return calls.get(int(work.correlation[row])) if work.correlation[row] >= 0 else None

    pageable = {launch_of(row) for row in range(len(work)) if copies_pageable(names[work.name[row]])}

    def spans_of(threads: set[int]) -> dict[IdleCause, list[Interval]]:
        def named(spans: Spans, wanted: object) -> list[Interval]:
            chosen = [bool(wanted(names[n])) and t in threads for n, t in zip(spans.name, spans.thread, strict=True)]  # type: ignore[operator]
            return intervals(spans, chosen)

        def phase(wanted: str) -> list[Interval]:
            both = (trace.annotation, trace.cpu_op)
            return [i for spans in both for i in named(spans, lambda n: phase_of_name(n) == wanted)]

        waits = [
            (synchronises(names[n]) or row in pageable) and t in threads
            for row, (n, t) in enumerate(zip(trace.runtime.name, trace.runtime.thread, strict=True))
        ]
        collective = [
            interval
            for spans in (trace.annotation, trace.cpu_op)
            for interval in named(spans, lambda n: n.startswith(("c10d::", "nccl:", "gloo:")))
        ]
        return {
            "data": phase("data_wait"),
            "checkpoint": phase("checkpoint"),
            "callbacks": phase("callbacks"),
            "validation": phase("validation"),
            "profiler": intervals(trace.overhead, [True] * len(trace.overhead))
            + named(trace.python_function, lambda n: "torch/profiler/profiler.py" in n and n.endswith(": step")),
            "allocator": named(trace.runtime, allocates),
            "communication": collective,
            "host_sync": intervals(trace.runtime, waits),
        }

    told = {}
    reached = int(work.end_ns[rows[0]])
    for row in rows[1:]:
        begin, end = reached, int(work.start_ns[row])
        reached = max(reached, int(work.end_ns[row]))
        if end <= begin:
            continue
        together = [r for r in rows if work.start_ns[r] == end]
        first = min(
            together, key=lambda r: trace.runtime.start_ns[c] if (c := launch_of(r)) is not None else float("inf")
        )
        call = launch_of(first)
        if call is None:
            behind = [r for r in rows if work.stream[r] == work.stream[first] and work.start_ns[r] >= end]
            in_time = any((c := launch_of(r)) is not None and trace.runtime.start_ns[c] <= begin for r in behind)
            cause: IdleCause = "queued" if end - begin >= 5000 else "back_to_back"
            found[cause if in_time else "unexplained"] += end - begin
            continue
        launched, held = int(trace.runtime.start_ns[call]), int(trace.runtime.duration_ns[call])
        if launched <= begin:
            found["queued" if end - begin >= 5000 else "back_to_back"] += end - begin
            continue
        late = min(end, launched + held if held > 1_000_000 else launched)
        found["launch_latency"] += end - late
        thread = int(trace.runtime.thread[call])
        threads = {thread, linked.main_thread if linked.main_thread is not None else thread}
        if thread not in told:
            told[thread] = spans_of(threads)
        spans = {cause: [i for i in of if i[1] > begin - 10**9 and i[0] < late] for cause, of in told[thread].items()}
        others = [
            int(trace.runtime.start_ns[c])
            for r in range(len(work))
            if (c := launch_of(r)) is not None and trace.runtime.thread[c] in threads
        ]
        before = max((start for start in others if start < late), default=begin - 10**9)
        edges = sorted(
            {min(max(e, before), begin) for i in spans["host_sync"] for e in i} | {min(before, begin), begin}
        )
        waited = sum(b - a for a, b in pairwise(edges) if inside(a, spans["host_sync"]))
        awake = max([stop for start, stop in merged(spans["host_sync"]) if start <= begin < stop], default=begin)
        if waited:
            spans["host_sync"].append((awake, awake + waited))
        edges = sorted(
            {e for of in [*spans.values(), steps] for i in of for e in i if begin < e < late} | {begin, late}
        )
        left = 0
        for a, b in pairwise(edges):
            claims = [cause for cause, of in spans.items() if inside(a, of)]
            if steps and not inside(a, steps):
                claims.append("between_steps")
            if claims:
                found[claims[0]] += b - a
            else:
                left += b - a
        found["host_work" if left > 1_000_000 else "launch"] += left
    return {cause: time for cause, time in found.items() if time}


def merged(of: list[Interval]) -> list[Interval]:
    result: list[Interval] = []
    for start, end in sorted(of):
        if result and start <= result[-1][1]:
            result[-1] = result[-1][0], max(end, result[-1][1])
        else:
            result.append((start, end))
    return result


@pytest.mark.parametrize("small", SMALL or ["none"])
def test_causes_are_those_of_a_slow_computation(small: str) -> None:
    linked, found = measured(small)
    for number in linked.device_rows:
        device = next(one for one in found.devices if one.device == linked.trace.devices[number])
        fast = {row.cause: ns(row.idle_us) for row in device.causes}
        slow = slow_causes(linked, number)
        assert fast == slow


def only(name: str) -> DeviceIdle:
    (device,) = measured(f"{name}.json.gz")[1].devices
    return device


def share(device: DeviceIdle, *causes: IdleCause) -> float:
    return sum(row.idle_ratio for row in device.causes if row.cause in causes)


def test_a_training_with_its_loader_in_the_main_process_waits_for_data() -> None:
    device = only("v100_resnet50_dl0_2021")
    assert share(device, "data") > 0.7
    assert [gap.cause for gap in device.longest[:5]] == ["data"] * 5
    assert {gap.phase for gap in device.longest[:5]} == {"data_wait"}
    assert device.longest[0].line.frame == "resnet50_profiler_api.py(42): <module>"
    assert all(step.causes_us["data"] > 0.6 * step.idle_us for step in device.steps[1:])
    assert "data" not in device.steps[0].causes_us  # its fetch was before the device's first work


def test_a_training_with_worker_processes_that_are_too_slow_waits_for_data() -> None:
    device = only("rtx2080ti_resnet")
    assert share(device, "data") > 0.6
    assert device.longest[0].cause == "data"
    assert share(device, "allocator") > 0.1  # the first step loads its libraries and takes its memory


def test_a_pipeline_that_resizes_pictures_on_the_cpu_waits_for_data() -> None:
    device = only("h100_owlv2")
    assert share(device, "data") > 0.9
    assert device.longest[0].host == "<built-in function zoom_shift>"


def test_a_small_model_on_a_fast_device_is_launched_too_slowly() -> None:
    for name in ("h100_bert_small", "h100_nsfw_vit", "gp100_gpu_user_annotation"):
        assert share(only(name), "launch", "launch_latency") > 0.9


def test_first_calls_on_a_device_are_allocation_and_loading() -> None:
    device = only("a100_alexnet_cuda_sync")
    assert share(device, "allocator", "host_work") > 0.95
    assert [gap.host for gap in device.longest[:3]] == ["cudaFree", "cudaMalloc", "cudaMalloc"]


def test_many_collectives_cost_the_host_time_to_start_them() -> None:
    assert share(only("v100_2rank_rank1_comm_heavy"), "communication") > 0.05


def test_a_device_whose_queue_is_full_only_turns_around() -> None:
    device = only("v100_ns_resolution")
    assert share(device, "back_to_back", "queued") > 0.8
    assert device.idle_ratio is not None
    assert device.idle_ratio < 0.02
