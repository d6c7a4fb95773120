"""Tables of the step trace: what a reader sees, also where there is nothing."""

from table_texts import texts

from lightning_gpuprof.model.phases import Phase
from lightning_gpuprof.model.trace.step_trace import StepDevice, StepRow, StepTrace
from lightning_gpuprof.sinks.window_tables.step_trace import step_device_table, step_host_table, step_phase_table


def device(number: str = "0", communication_us: float = 0.0) -> StepDevice:
    return StepDevice(
        device=number,
        busy_us=6000,
        idle_us=4000,
        kernel_us=5000 + communication_us,
        compute_us=5000,
        memcpy_us=1000,
        communication_us=communication_us,
        exposed_communication_us=communication_us / 2,
    )


def step(name: str, phases_us: dict[Phase, float], *devices: StepDevice, total_us: float = 10_000) -> StepRow:
    return StepRow(
        name=name,
        total_us=total_us,
        phases_us=phases_us,
        other_us=total_us - sum(phases_us.values()),
        kernels_launched=100,
        devices=devices,
    )


def trace(*steps: StepRow, mean: StepRow | None = None) -> StepTrace:
    return StepTrace(steps=steps, mean=mean, has_steps=mean is not None)


TWO = trace(
    step("ProfilerStep#1", {"forward": 4000, "backward": 5000}, device()),
    step("ProfilerStep#2", {"forward": 2000, "backward": 5000}, device()),
    mean=step("mean of 2", {"forward": 3000, "backward": 5000}, device()),
)


def test_phases_of_the_mean_step_with_shares_and_range() -> None:
    table = step_phase_table(TWO)
    assert table.title == "Step time on the main thread (mean of 2 steps)"
    assert texts(table) == [
        ["forward", "", "3", "30.0 %", "2", "4"],
        ["backward", "", "5", "50.0 %", "5", "5"],
        ["other", "", "2", "20.0 %", "1", "3"],
        ["sum", "", "10", "100.0 %", "10", "10"],
    ]


def test_each_step_with_the_mean_before_it() -> None:
    table = step_host_table(TWO)
    assert [column.title for column in table.columns] == ["step", "total", "forward", "backward", "other", "launched"]
    assert texts(table) == [
        ["mean of 2", "10", "3", "5", "2", "100"],
        ["ProfilerStep#1", "10", "4", "5", "1", "100"],
        ["ProfilerStep#2", "10", "2", "5", "3", "100"],
    ]


def test_one_step_is_not_shown_twice() -> None:
    one = step("ProfilerStep#1", {"forward": 4000}, device())
    assert len(step_host_table(trace(one, mean=one)).rows) == 1
    assert len(step_device_table(trace(one, mean=one)).rows) == 1


def test_more_phases_than_fit_are_summed_with_the_rest() -> None:
    phases: dict[Phase, float] = {
        "data_wait": 900,
        "h2d": 100,
        "forward": 1000,
        "backward": 2000,
        "optimizer": 800,
        "zero_grad": 300,
        "callbacks": 400,
        "validation": 500,
    }
    table = step_host_table(trace(step("ProfilerStep#1", phases)))
    titles = [column.title for column in table.columns]
    assert "h2d" not in titles
    assert len(titles) == 2 + 7 + 2
    shown = [float(text.replace(",", "")) for text in texts(table)[0][1:-1]]
    assert shown[0] == sum(shown[1:])


def test_of_many_steps_the_longest_are_shown_in_their_order() -> None:
    steps = [step(f"ProfilerStep#{n}", {}, total_us=1000 if n % 3 else 2000) for n in range(60)]
    names = [row[0] for row in texts(step_host_table(trace(*steps)))]
    assert names == [f"ProfilerStep#{n}" for n in range(0, 60, 3)]


def test_columns_of_communication_and_devices_are_there_if_they_say_something() -> None:
    plain = [column.title for column in step_device_table(TWO).columns]
    assert plain == ["step", "busy", "idle", "busy share", "compute", "copies"]
    several = trace(step("ProfilerStep#1", {}, device("0", 800.0), device("1")))
    table = step_device_table(several)
    assert [column.title for column in table.columns][-2:] == ["communication", "exposed"]
    assert texts(table) == [
        ["ProfilerStep#1", "0", "6", "4", "60.0 %", "5", "1", "0.800", "0.400"],
        ["ProfilerStep#1", "1", "6", "4", "60.0 %", "5", "1", "0", "0"],
    ]


def test_a_window_without_steps_says_so() -> None:
    whole = trace(step("whole window", {"forward": 4000}))
    assert step_phase_table(whole).title.endswith("(the window has no steps)")
    assert [row[0] for row in texts(step_host_table(whole))] == ["whole window"]
    assert step_device_table(whole).absent == "The window has no device activity."
