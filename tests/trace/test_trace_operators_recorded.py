"""Operators of recorded traces against a slow and obvious computation, and sums that must hold."""

from collections import defaultdict
from functools import cache

import numpy as np
import pytest
from recorded_traces import NAMES, recorded_trace

from lightning_gpuprof.model.trace.operators import Operators
from lightning_gpuprof.trace.analyses.operators.op_analyse import op_analyse
from lightning_gpuprof.trace.analyses.operators.operators import operators
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import Nesting

RANGES = ("ProfilerStep#", "enumerate(DataLoader)", "Optimizer.")

pytestmark = pytest.mark.skipif(not NAMES, reason="no recorded traces beside the repository (../shared/traces)")


@cache
def measured(name: str) -> tuple[LinkedTrace, Operators]:
    linked = recorded_trace(name)
    return linked, operators(linked, most_shapes=10**9)


def ns(us: float | None) -> int:
    return round((us or 0.0) * 1000)


def test_device_self_times_sum_exactly_to_the_attributed_device_time(name: str) -> None:
    linked, found = measured(name)
    assert ns(found.device_us) == int(linked.work.duration_ns.sum())
    assert sum(ns(row.device_self_us) for row in found.operators) == ns(found.attributed_device_us)
    assert sum(ns(row.device_self_us) for row in found.types) == ns(found.attributed_device_us)
    assert ns(found.attributed_device_us) <= ns(found.device_us)


def test_host_self_times_sum_exactly_to_those_of_all_operators(name: str) -> None:
    linked, found = measured(name)
    ops = linked.trace.cpu_op
    ops = ops.where(~linked.named(ops, lambda text: text.startswith(RANGES)))
    expected = int(Nesting(ops.start_ns, ops.end_ns, ops.thread).exclusive_ns.sum())
    assert sum(ns(row.host_self_us) for row in found.operators) == expected == ns(found.host_self_us)
    assert sum(ns(row.host_self_us) for row in found.types) == expected


def test_rows_by_shape_hold_the_calls_and_times_of_the_detail(name: str) -> None:
    linked, found = measured(name)
    if found.shapes is None:
        assert not (linked.trace.cpu_op.inputs >= 0).any()
        return
    assert sum(row.occurrences for row in found.shapes) <= found.calls
    of_shapes: dict[tuple[str, str], int] = defaultdict(int)
    for row in found.shapes:
        of_shapes[row.operator, row.phase] += ns(row.device_self_us)
    of_detail = {(row.operator, row.phase): ns(row.device_self_us) for row in found.operators}
    assert all(time <= of_detail[key] for key, time in of_shapes.items())


def slow_totals(linked: LinkedTrace) -> dict[str, tuple[int, int, int, int]]:
    """Calls, host total, device self and device total of each operator, by walking up from each call and launch."""
    trace, ops, parent = linked.trace, linked.trace.cpu_op, linked.operators.parent.tolist()
    names = [trace.names[number] for number in ops.name.tolist()]
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for row, (start, end) in enumerate(zip(ops.start_ns.tolist(), ops.end_ns.tolist(), strict=True)):
        around, same = parent[row], False
        while around >= 0:
            same |= names[around] == names[row]
            around = parent[around]
        sums[names[row]][0] += 1
        sums[names[row]][1] += 0 if same else end - start
    for row, lasting in zip(linked.operator.tolist(), linked.work.duration_ns.tolist(), strict=True):
        if row < 0 or names[row].startswith(RANGES):
            continue
        sums[names[row]][2] += lasting
        seen = set()
        while row >= 0:
            if names[row] not in seen:
                seen.add(names[row])
                sums[names[row]][3] += lasting
            row = parent[row]
    return {name: tuple(values) for name, values in sums.items() if not name.startswith(RANGES)}  # type: ignore[misc]


def test_totals_are_those_of_the_slow_computation(name: str) -> None:
    linked, found = measured(name)
    phases: dict[str, set[str]] = defaultdict(set)
    for row in found.operators:
        phases[row.operator].add(row.phase)
    expected = slow_totals(linked)
    assert set(phases) == set(expected)
    for row in found.operators:
        if len(phases[row.operator]) == 1:  # the slow computation knows no phases
            got = (row.occurrences, ns(row.host_total_us), ns(row.device_self_us), ns(row.device_total_us))
            assert got == expected[row.operator], row.operator


def test_analysis_of_every_operator_has_the_sums_of_the_detail(name: str) -> None:
    linked, found = measured(name)
    chosen = list(dict.fromkeys(row.operator for row in found.operators))[:12]
    if not chosen:
        return
    entries = op_analyse(linked, chosen)
    for operator in chosen:
        host = [entry for entry in entries if entry.operator == operator and entry.side == "host"]
        rows = [row for row in found.operators if row.operator == operator]
        assert sum(entry.occurrences for entry in host) == sum(row.occurrences for row in rows)
        assert sum(ns(entry.total_us) for entry in host) >= sum(ns(row.host_total_us) for row in rows)


def test_each_training_trace_has_forward_backward_and_optimizer() -> None:
    for name in ("v100_resnet50_dl0_2021.json.gz", "rtx2080ti_resnet.json.gz", "v100_ns_resolution.json.gz"):
        linked, found = measured(name)
        assert {"forward", "backward", "optimizer"} <= {row.phase for row in found.operators}
        forward = sum(row.device_self_us or 0 for row in found.operators if row.phase == "forward")
        backward = sum(row.device_self_us or 0 for row in found.operators if row.phase == "backward")
        assert 1.3 < backward / forward < 3, name  # a backward does about twice the work of a forward
        assert np.all(linked.work.duration_ns >= 0)
