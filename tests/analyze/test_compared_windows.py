"""Trace windows of two runs: totals per traced step, and what the tables of a report do not reach."""

from pathlib import Path

import msgspec
import pytest
from built_reports import run
from empty_structs import empty
from recorded_traces import recorded_trace

from lightning_gpuprof.analyze.compare import compare
from lightning_gpuprof.analyze.comparison.window_changes import window_changes
from lightning_gpuprof.model.comparison import WindowChanges
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.model.trace.analysis import TraceAnalysis
from lightning_gpuprof.model.trace.kernels import ClassRow, KernelFacts, KernelRow
from lightning_gpuprof.model.window import OperatorRow, WindowFacts
from lightning_gpuprof.trace.analyses.comparison.differences import differences_of
from lightning_gpuprof.trace.analysis import analyse
from lightning_gpuprof.trace.facts import window_facts

Table = dict[str, tuple[int, float]]
"""Kernel -> count, microseconds in the window. The class of ``gemm_a`` is ``gemm``."""


def kernel_facts(kernels: Table, *, hidden: int = 0) -> KernelFacts:
    """Facts of a window's kernels, of which so many more are in no row."""
    classes: Table = {}
    for name, (count, us) in kernels.items():
        of_class = classes.get(name.partition("_")[0], (0, 0.0))
        classes[name.partition("_")[0]] = of_class[0] + count, of_class[1] + us
    return empty(
        KernelFacts,
        count=sum(count for count, _ in kernels.values()) + hidden,
        total_us=sum(us for _, us in kernels.values()),
        classes=tuple(
            empty(ClassRow, kernel_class=name, count=count, total_us=us, average_us=us / count)
            for name, (count, us) in classes.items()
        ),
        kernels=tuple(kernel_row(name, count, us) for name, (count, us) in kernels.items()),
    )


def kernel_row(name: str, count: int, us: float) -> KernelRow:
    return empty(KernelRow, name=name, kernel_class=name.partition("_")[0], count=count, total_us=us)


def window(
    kernels: Table | None = None,
    *,
    steps: int = 4,
    operators: Table | None = None,
    hidden: int = 0,
    reason: str = "steady",
) -> WindowFacts:
    return WindowFacts(
        start_step=10,
        stop_step=10 + steps,
        reason=reason,
        steps_us=(20_000.0,) * steps,
        top_operators=tuple(
            OperatorRow(name=name, count=count, total_us=us) for name, (count, us) in (operators or {}).items()
        ),
        analysis=TraceAnalysis(kernels=None if kernels is None else kernel_facts(kernels, hidden=hidden)),
    )


def traced(*windows: WindowFacts) -> Report:
    return msgspec.structs.replace(run(), windows=windows)


def changes(before: Report, after: Report) -> WindowChanges:
    return window_changes(before, after)


def test_totals_are_per_traced_step_and_windows_of_a_run_are_added_up() -> None:
    before = traced(window({"gemm_a": (8, 800.0)}, steps=4))
    after = traced(window({"gemm_a": (4, 600.0)}, steps=2), window({"gemm_a": (2, 300.0)}, steps=1))
    found = changes(before, after)
    (gemm,) = found.kernels
    assert (found.before_steps, found.after_steps) == (4, 3)
    assert (gemm.before_us, gemm.after_us, gemm.change_us) == (200.0, 300.0, 100.0)
    assert (gemm.before_count, gemm.after_count, gemm.status) == (2.0, 2.0, "slower")
    assert found.kernel_total.change_us == 100.0


def test_rows_are_by_absolute_change_and_small_ones_are_the_same() -> None:
    found = changes(
        traced(window({"gemm_a": (4, 400.0), "relu_b": (4, 100.0), "copy_c": (4, 800.0)})),
        traced(window({"gemm_a": (4, 404.0), "copy_c": (4, 400.0), "norm_d": (4, 60.0)})),
    )
    assert [(one.name, one.status) for one in found.kernels] == [
        ("copy_c", "faster"),
        ("relu_b", "vanished"),
        ("norm_d", "appeared"),
        ("gemm_a", "same"),
    ]
    assert {one.name for one in found.kernel_classes} == {"gemm", "relu", "copy", "norm"}


def test_a_kernel_that_the_other_reports_table_does_not_reach_is_left_out_not_vanished() -> None:
    found = changes(
        traced(window({"gemm_a": (4, 400.0), "relu_b": (4, 100.0)})),
        traced(window({"gemm_a": (4, 400.0)}, hidden=12)),
    )
    assert [one.name for one in found.kernels] == ["gemm_a"]
    assert found.left_out == 1


def test_operators_are_compared_without_any_device_work() -> None:
    before = traced(window(operators={"aten::mm": (4, 40.0), "aten::add": (4, 4.0)}))
    after = traced(window(operators={"aten::mm": (4, 80.0)}))
    found = changes(before, after)
    assert [(one.name, one.change_us) for one in found.operators] == [("aten::mm", 10.0)]
    assert (found.kernels, found.kernel_classes, found.kernel_total) == ((), (), None)


def test_an_operator_that_only_some_windows_tables_reach_is_left_out_not_spread_over_all() -> None:
    both: Table = {"aten::mm": (4, 4000.0), "aten::add": (4, 800.0)}
    before = traced(window(operators=both), window(operators={"aten::mm": (4, 4000.0)}))
    for earlier, later in ((before, traced(window(operators=both))), (traced(window(operators=both)), before)):
        found = changes(earlier, later)
        assert [(one.name, one.before_us, one.after_us) for one in found.operators] == [("aten::mm", 1000.0, 1000.0)]
        assert found.left_out == 1
    assert changes(before, before).left_out == 1


def test_a_kernel_that_only_some_windows_tables_reach_is_left_out_and_one_that_did_not_run_is_not() -> None:
    both: Table = {"gemm_a": (4, 4000.0), "relu_b": (4, 800.0)}
    after = traced(window(both))
    unreached = changes(traced(window(both), window({"gemm_a": (4, 4000.0)}, hidden=4)), after)
    assert ([one.name for one in unreached.kernels], unreached.left_out) == (["gemm_a"], 1)
    rarer = changes(traced(window(both), window({"gemm_a": (4, 4000.0)})), after)
    assert {one.name: one.before_us for one in rarer.kernels} == {"gemm_a": 1000.0, "relu_b": 100.0}
    assert rarer.left_out == 0


def test_windows_of_slow_steps_count_only_where_there_are_no_others() -> None:
    slow = window({"gemm_a": (4, 9_000.0)}, reason="slow step: 90 ms against 20 ms")
    usual = window({"gemm_a": (4, 400.0)})
    assert changes(traced(slow, usual), traced(usual)).kernels[0].status == "same"
    assert changes(traced(slow), traced(usual)).kernels[0].status == "faster"


def test_work_that_was_launched_before_a_window_widens_what_is_the_same_and_is_told() -> None:
    before = traced(window({"gemm_a": (40, 4000.0)}))
    lagging = msgspec.structs.replace(window({"gemm_a": (44, 4400.0)}), launches_matched=40, launches_unmatched=4)
    found = changes(before, traced(lagging))
    assert found.kernels[0].status == "same"
    assert any("9 % of the device work in the later run's windows was launched before them" in c for c in found.caveats)
    assert found.caveats[0] in compare(before, traced(lagging)).notes


def test_windows_of_recorded_traces_agree_with_the_comparison_of_the_traces(shared: Path) -> None:
    """Per step and by class, up to what was launched before the window, which only the traces can tell."""
    names = ("v100_resnet50_dl0_2021.json.gz", "v100_resnet50_dl0_preschema.json.gz")
    traces = [recorded_trace(name) for name in names]
    runs = []
    for linked in traces:
        facts = window_facts(linked.trace, start_step=0, stop_step=6)
        runs.append(traced(msgspec.structs.replace(facts, analysis=analyse(linked, only=["kernels"]))))
    found = {one.name: one for one in changes(*runs).kernel_classes}
    for expected in differences_of(*traces).kernel_classes:
        if expected.name == "copy":  # there with copies between memories, which are no kernels
            continue
        assert found[expected.name].before_us == pytest.approx(expected.before_us, rel=0.02)
        if expected.name != "gemm":
            assert found[expected.name].after_us == pytest.approx(expected.after_us, rel=0.1)


@pytest.mark.parametrize("other", [(), (WindowFacts(start_step=1, stop_step=2, problem="no trace"),)])
def test_a_run_without_a_usable_window_gives_none(other: tuple[WindowFacts, ...]) -> None:
    assert window_changes(traced(window({"gemm_a": (4, 400.0)})), traced(*other)) is None


OPERATORS: Table = {f"aten::op{number}": (4, 100.0 * number) for number in range(1, 9)}


def stretched(factor: float, **exceptions: float) -> Table:
    """The operators so many times as long; some more than that."""
    return {
        name: (count, us * factor * exceptions.get(name.removeprefix("aten::"), 1.0))
        for name, (count, us) in OPERATORS.items()
    }


@pytest.mark.parametrize(("factor", "status"), [(3.0, "slower"), (0.4, "faster")])
def test_operators_of_a_window_that_is_longer_as_a_whole_are_called_slower_only_beyond_it(
    factor: float, status: str
) -> None:
    more = {"op8": 2.0 if factor > 1 else 0.5, "op1": 1.05}
    found = changes(traced(window(operators=OPERATORS)), traced(window(operators=stretched(factor, **more))))
    assert found.host_factor == pytest.approx(factor)
    assert {one.name for one in found.operators if one.status == status} == {"aten::op8"}
    assert {one.status for one in found.operators if one.name != "aten::op8"} == {"same"}
    assert any(f"operators took {factor:.2g}x as long on the host" in said for said in found.caveats)


def test_an_operator_that_did_not_follow_the_others_is_told_by_itself() -> None:
    """One that got faster while all others were inflated is faster, and a few slower ones are no inflation."""
    inflated = changes(traced(window(operators=OPERATORS)), traced(window(operators=stretched(3.0, op8=0.2))))
    assert {one.name for one in inflated.operators if one.status == "faster"} == {"aten::op8"}
    few = changes(traced(window(operators=OPERATORS)), traced(window(operators=stretched(1.0, op8=5.0, op7=3.0))))
    assert few.host_factor is None
    assert {one.name for one in few.operators if one.status == "slower"} == {"aten::op8", "aten::op7"}
    assert not few.caveats


def test_operators_that_are_called_more_often_are_no_inflation() -> None:
    after = {name: (3 * count, 3 * us) for name, (count, us) in OPERATORS.items()}
    found = changes(traced(window(operators=OPERATORS)), traced(window(operators=after)))
    assert found.host_factor is None
    assert {one.status for one in found.operators} == {"slower"}
