"""People read which lines, modules and phases the device worked for, and what is not known."""

from msgspec.structs import replace

from lightning_gpuprof.model.trace.attribution import (
    Attributed,
    Attribution,
    LineMeaning,
    LineTime,
    ModuleTime,
    PhaseTime,
    SourceLine,
    Stacks,
    Unattributed,
)
from lightning_gpuprof.sinks.window_tables.attribution import (
    MAX_MODULES,
    attributed_table,
    line_table,
    module_table,
    phase_device_table,
)


def line(frame: str, device_us: float, host_us: float = 100.0, means: LineMeaning = "definition") -> LineTime:
    return LineTime(
        line=SourceLine(frame=frame, means=means),
        hits=1200,
        host_us=host_us,
        device_us=device_us,
        backward_us=device_us / 2,
        blocked_us=0.0,
        device_ratio=device_us / 2000,
        copied_bytes=0,
        kernels=3,
    )


def module(*path: str, device_us: float = 0.0, host_us: float = 100.0) -> ModuleTime:
    return ModuleTime(
        path=path,
        calls=3,
        host_us=host_us,
        own_host_us=40.0,
        backward_host_us=50.0,
        host_ratio=(host_us + 50) / 3000,
        device_us=device_us,
        own_us=1.0,
        backward_us=2.0,
        device_ratio=device_us / 2000,
        kernels=1,
    )


def result(
    *lines: LineTime,
    modules: tuple[ModuleTime, ...] = (),
    phases: tuple[PhaseTime, ...] = (),
    stacks: Stacks | None = "python_calls",
    device_us: float = 2000.0,
) -> Attribution:
    rest = (Unattributed(reason="launch_unknown", device_us=500.0), Unattributed(reason="outside", device_us=100.0))
    missing = (Unattributed(reason="not_recorded", device_us=2000.0),)
    return Attribution(
        stacks=stacks,
        device_us=device_us,
        levels=(
            Attributed(level="operator", device_us=1400.0, ratio=0.7, rest=rest),
            Attributed(level="module", device_us=0.0, ratio=0.0, rest=missing),
        ),
        lines=lines,
        modules=modules,
        phases=phases,
        blocked_us=0.0,
        full_queue_us=0.0,
    )


def test_what_is_not_attributed_is_told_with_its_share() -> None:
    rows = attributed_table(result()).rows
    assert [cell.text for cell in rows[0]] == [
        "operator",
        "",
        "70.0 %",
        "25.0 % launched before the window; 5.0 % outside of any",
    ]
    assert rows[1][3].text == "100.0 % no module was called"
    without = attributed_table(result(stacks=None)).rows
    assert "TraceConfig(modules=" in without[1][3].text


def test_a_line_shows_hits_host_device_backward_blocked_and_share() -> None:
    table = line_table(result(line("net.py(5): forward", 1500.0)))
    assert [cell.text for cell in table.rows[0]] == [
        "net.py(5): forward",
        "1,200",
        "0.100",
        "1.50",
        "0.750",
        "0",
        "75.0 %",
    ]
    assert (table.title, table.columns[0].title) == ("Functions of your code", "function")
    assert "begins" in table.columns[0].help
    calls = line_table(result(line("net.py(5): forward", 1500.0, means="call")))
    assert (calls.title, calls.columns[0].title) == ("Lines of your code", "line")
    assert "made the call" in calls.columns[0].help


def test_lines_that_took_next_to_nothing_have_no_row() -> None:
    table = line_table(result(line("net.py(5): forward", 1500.0), line("main.py(1): main", 0.0, host_us=0.01)))
    assert len(table.rows) == 1


def test_a_long_path_keeps_its_end() -> None:
    frame = f"{'package/' * 10}model.py(5): forward"
    assert line_table(result(line(frame, 1.0))).rows[0][0].text.startswith("...")
    assert line_table(result(line(frame, 1.0))).rows[0][0].text.endswith("/model.py(5): forward")


def test_modules_are_a_tree_also_where_rows_are_left_out() -> None:
    small = tuple(module("Net_0", f"Linear_{number}", device_us=10.0) for number in range(MAX_MODULES))
    large = module("Net_0", "Encoder_0", device_us=900.0)
    inner = module("Net_0", "Encoder_0", "Attention_0", device_us=500.0)
    tree = (module("Net_0", device_us=1500.0), large, inner)
    table = module_table(result(modules=tree))
    assert [row[0].text for row in table.rows] == ["Net_0", "· Encoder_0", "· · Attention_0"]
    assert table.rows[2][0].help == "Net_0 / Encoder_0 / Attention_0"
    crowded = module_table(result(modules=(*tree, *small)))
    assert len(crowded.rows) == MAX_MODULES
    assert [row[0].text for row in crowded.rows][:3] == ["Net_0", "· Encoder_0", "· · Attention_0"]


def test_on_a_cpu_modules_have_the_time_of_their_calls_and_of_their_backward() -> None:
    slow = module("encoder", host_us=1450.0)
    table = module_table(result(modules=(slow, module("encoder", "layers.0")), stacks=None, device_us=0.0))
    titles = [column.title for column in table.columns]
    assert titles == ["module", "", "forward", "backward", "self", "share", "calls"]
    assert [cell.text for cell in table.rows[0]] == ["encoder", "", "1.45", "0.0500", "0.0400", "50.0 %", "3"]
    assert table.rows[0][1].ratio == 0.5
    assert table.rows[1][0].text == "· layers.0"


def test_modules_have_class_and_parameters_where_the_trace_says_them() -> None:
    known = replace(module("encoder", host_us=1450.0), parameters=1_234_567, type="Encoder")
    table = module_table(result(modules=(known, module("encoder", "layers.0")), stacks=None, device_us=0.0))
    assert (table.columns[1].title, table.columns[-1].title) == ("type", "parameters")
    assert [row[1].text for row in table.rows] == ["Encoder", ""]
    assert [row[-1].text for row in table.rows] == ["1,234,567", "-"]
    assert "numbered" not in module_table(result(modules=(known,))).columns[0].help
    assert "numbered" in module_table(result(modules=(module("Net_0"),))).columns[0].help


def test_names_cannot_break_a_table() -> None:
    text = line_table(result(line("a\x1b[31m.py(1): f", 1.0))).rows[0][0].text
    assert text == "a\\x1b[31m.py(1): f"


def test_phases_have_the_colour_of_the_phase() -> None:
    phase = PhaseTime(phase="backward", device_us=1500.0, device_ratio=0.75, kernels=7)
    (row,) = phase_device_table(result(phases=(phase,))).rows
    assert (row[0].text, row[1].key, row[2].text, row[3].text, row[4].text) == (
        "backward",
        "backward",
        "1.50",
        "75.0 %",
        "7",
    )


def test_absent_says_why() -> None:
    assert "with_stack=True" in line_table(result(stacks=None)).absent
    assert "no code of yours" in line_table(result()).absent
    assert "until 2022" in module_table(result(stacks="operators")).absent
    assert "no device activity" in attributed_table(result(device_us=0.0)).absent
    assert "no device activity" in phase_device_table(result(device_us=0.0)).absent
    assert "TraceConfig(modules=" in module_table(result(stacks=None)).absent
