"""Tables of a trace's health."""

import msgspec
from empty_structs import empty
from table_texts import texts

from lightning_gpuprof.model.trace.health import Health, LaunchCalls, Signal
from lightning_gpuprof.sinks.window_tables import health as tables

FOUND = empty(
    Health,
    events=12_345,
    bytes_json=2 << 20,
    categories={"kernel": 10, "cpu_op": 200},
    how="stream",
    resolution_ns=1000,
    window_us=5000.0,
    host_window_us=4900.0,
    steps=3,
    calls=(LaunchCalls(name="cudaLaunchKernel", count=11, with_work=10, without_work=1),),
    kernel_launches=11,
    kernel_launches_without_work=1,
    device_work=10,
    work_matched=10,
    signals=(
        Signal(name="operators", present=True, count=200, without="", advice=""),
        Signal(name="shapes", present=False, count=0, without="no FLOPs", advice="TraceConfig(record_shapes=True)."),
        Signal(name="memory events", present=None, count=None, without="", advice=""),
    ),
    problems=("The kernels of 1 of 11 launches are not in the trace.",),
    notes=("Times are whole microseconds.",),
)


def test_problems_come_before_notes() -> None:
    assert texts(tables.problem_table(FOUND)) == [
        ["The kernels of 1 of 11 launches are not in the trace."],
        ["Times are whole microseconds."],
    ]


def test_a_sound_trace_is_said_to_be_sound() -> None:
    sound = tables.problem_table(msgspec.structs.replace(FOUND, problems=(), notes=()))
    assert (sound.rows, sound.absent) == ((), "No problem found in this trace.")


def test_counts_are_shown_and_what_is_not_known_is_a_dash() -> None:
    values = {row[0]: row[1] for row in texts(tables.health_table(FOUND))}
    assert (values["entries in the file"], values["size of the JSON"], values["window"]) == ("12,345", "2 MiB", "5 ms")
    assert (values["without a kernel"], values["device window"], values["resolution"]) == ("1", "-", "1000 ns")


def test_absent_signals_say_what_follows_and_the_way_out() -> None:
    assert texts(tables.signal_table(FOUND)) == [
        ["operators", "yes", "200", "", ""],
        ["shapes", "no", "-", "no FLOPs", "TraceConfig(record_shapes=True)."],
        ["memory events", "-", "-", "", ""],
    ]


def test_calls_and_categories_are_listed() -> None:
    assert texts(tables.launch_call_table(FOUND)) == [["cudaLaunchKernel", "11", "10", "1"]]
    assert texts(tables.category_table(FOUND)) == [["cpu_op", "200"], ["kernel", "10"]]
    nothing = msgspec.structs.replace(FOUND, calls=(), categories={})
    assert tables.launch_call_table(nothing).rows == tables.category_table(nothing).rows == ()
