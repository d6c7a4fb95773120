import msgspec
import sample_report

from lightning_gpuprof.model.host import GcUse, GroupUse, HostUse, Level, MachineUse, PressureUse, ProcessUse
from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import host_tables


def report(host: HostUse) -> Report:
    return msgspec.structs.replace(sample_report.minimal_report(), host=host)


def lines(host: HostUse) -> list[str]:
    return host_tables.lines(report(host))


def level(value: float) -> Level:
    return Level(mean=value, max=value)


def test_the_usual_line_says_who_uses_the_cpus_and_the_memory() -> None:
    usual, unusual = lines(sample_report.HOST)
    assert usual == (
        "CPUs in use (of 8): this process 1.02, 2 workers 1.40, other programs 0.30 · peak memory: this process "
        "1.43 GiB, workers 839 MiB · at least 36.3 GiB available"
    )
    assert unusual == (
        "swapping: at most 3.81 MiB in, 0 B out per second · CPU pressure of the machine 12.0 % · CPU quota used up in "
        "15.0 % of its periods · garbage collector 3.1 % of the time (longest 52.0 ms)"
    )


def test_what_did_not_hold_the_run_back_is_not_named() -> None:
    quiet = HostUse(
        process=ProcessUse(cpu_cpus=level(1.0), run_delay_ratio=level(0.01)),
        machine=MachineUse(cpu_steal_cpus=level(0.01), swapping_samples=0, shm_used_ratio=level(0.1)),
        pressure=(PressureUse(scope="machine", resource="io", some_ratio=level(0.01)),),
        cgroup=GroupUse(throttled_ratio=0.01, oom_kill_count=0.0),
        gc=GcUse(pause_ratio=0.001, pause_ms_per_step=0.1, longest_s=0.001),
    )
    assert lines(quiet) == ["CPUs in use: this process 1.00"]


def test_pressure_of_the_group_is_named_where_the_machine_s_is_not() -> None:
    of_group = PressureUse(scope="cgroup", resource="memory", some_ratio=level(0.3))
    assert lines(HostUse(pressure=(of_group,))) == ["memory pressure of the cgroup 30.0 %"]
    of_machine = msgspec.structs.replace(of_group, scope="machine")
    assert lines(HostUse(pressure=(of_machine, of_group))) == ["memory pressure of the machine 30.0 %"]


def test_each_trouble_has_its_word() -> None:
    troubled = HostUse(
        process=ProcessUse(run_delay_ratio=level(0.2)),
        machine=MachineUse(cpu_steal_cpus=level(0.5), shm_used_ratio=level(0.95)),
        cgroup=GroupUse(oom_kill_count=2.0),
    )
    (line,) = lines(troubled)
    for words in (
        "waited for a CPU 20.0 %",
        "hypervisor took 0.500 CPUs",
        "/dev/shm 95.0 % full",
        "2 processes killed",
    ):
        assert words in line


def test_nothing_measured_gives_no_line_and_says_so_in_the_first_table() -> None:
    assert lines(HostUse()) == []
    first, *others = host_tables.tables_of(report(HostUse()))
    assert (first.rows, first.absent) == ((), "Host: not measured.")
    assert [table.title for table in others if table.rows] == []


def test_each_process_has_a_row_and_each_row_a_cell_for_each_column() -> None:
    found = host_tables.tables_of(report(sample_report.HOST))
    assert [row[0].text for row in found[0].rows] == ["this process", "workers together", "worker 0", "worker 1"]
    for table in found:
        assert {len(row) for row in table.rows} <= {len(table.columns)}
    by_title = {table.title: table for table in found}
    assert [cell.text for cell in by_title["Longest garbage collector pauses"].rows[0]] == ["17", "2", "52.0 ms"]
    growth = [cell.text for cell in by_title["Growth of memory"].rows[0]]
    assert (growth[0], growth[1], growth[-1]) == ("process", "57.2 MiB", "rises")


def test_the_machine_s_table_says_where_its_cpu_time_went() -> None:
    use = MachineUse(cpu_user_ratio=0.5, cpu_system_ratio=0.25, cpu_io_wait_ratio=0.125)
    table = host_tables.machine_table(HostUse(machine=use))
    assert [(row[0].text, row[1].text) for row in table.rows] == [
        ("CPU time in programs", "50.0 %"),
        ("CPU time in the kernel", "25.0 %"),
        ("CPU time idle, waiting for a disk", "12.5 %"),
    ]


def test_a_process_has_its_context_switches() -> None:
    use = ProcessUse(voluntary_switches_per_s=300.0, involuntary_switches_per_s=20.0)
    table = host_tables.process_table(HostUse(process=use))
    shown = dict(zip([column.title for column in table.columns], table.rows[0], strict=True))
    assert (shown["waits"].text, shown["preempted"].text) == ("300", "20")
