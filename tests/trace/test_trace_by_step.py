"""Operators and kernels step by step."""

from operator_events import launch, op
from tiny_traces import linked_trace, step

from lightning_gpuprof.model.trace.by_step import ByStep
from lightning_gpuprof.sinks.window_tables.by_step import MAX_STEPS, kernel_step_table, operator_step_table
from lightning_gpuprof.trace.analyses.operators.by_step import MAX_ROWS, by_step


def two_steps() -> ByStep:
    return by_step(
        linked_trace(
            [
                step(7, 0, 100),
                step(8, 100, 100),
                op("aten::linear", 10, 40),
                op("aten::mm", 20, 20),
                *launch(22, 1, 7, name="gemm"),
                op("aten::mm", 120, 60),
                *launch(130, 2, 11, name="gemm"),
                *launch(140, 3, 2, name="relu"),
                op("aten::add", 300, 5),
                *launch(301, 4, 50, name="gemm"),
            ]
        )
    )


def test_times_are_in_the_step_of_the_call_and_of_the_launch() -> None:
    found = two_steps()
    assert found.steps == ("ProfilerStep#7", "ProfilerStep#8")
    assert [(row.name, row.calls, row.times_us) for row in found.operators] == [
        ("aten::mm", (1, 1), (20, 60)),
        ("aten::linear", (1, 0), (20, 0)),
    ]
    assert [(row.name, row.calls, row.times_us) for row in found.kernels] == [
        ("gemm", (1, 1), (7, 11)),
        ("relu", (0, 1), (0, 2)),
    ]


def test_each_step_has_a_column() -> None:
    table = kernel_step_table(two_steps())
    assert [column.title for column in table.columns] == ["kernel", "step 7", "step 8", "calls"]
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["gemm", "0.00700", "0.0110", "2"],
        ["relu", "0", "0.00200", "1"],
    ]


def test_windows_without_steps_and_with_many() -> None:
    without = by_step(linked_trace([op("aten::mm", 0, 5)]))
    assert without == ByStep()
    assert operator_step_table(without).absent == "The window has no steps."
    events = [step(number, 100 * number, 100) for number in range(30)]
    events += [op(f"aten::op{number}", 100 * (number % 30) + 1 + number // 30, 0.5) for number in range(90)]
    many = by_step(linked_trace(events))
    assert len(many.operators) == MAX_ROWS
    table = operator_step_table(many)
    assert len(table.columns) == MAX_STEPS + 2
    assert table.title == "Operators by step: host time of their own in ms (first 10 of 30 steps) (first 10 of 90)"
