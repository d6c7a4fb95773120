"""What was measured beside the steps: compiling, input, GPUs, host, memory."""

from lightning_gpuprof.model.report import Report
from lightning_gpuprof.sinks import compile_tables, device_tables, host_tables, input_tables, tables
from lightning_gpuprof.sinks.html_page import bdi, section, titled
from lightning_gpuprof.sinks.memory_tables import memory_tables


def compiling(report: Report) -> str:
    """What ``torch.compile`` did."""
    facts = report.compile
    shown = () if facts is None else (compile_tables.recompile_table(facts), compile_tables.graph_break_table(facts))
    lead = f"<p>{bdi(compile_tables.summary(report))}</p>\n" if facts is not None else ""
    return section("compile", compile_tables.summary_table(report), lead, titled(shown))


def input_pipeline(report: Report) -> str:
    """The input pipeline from inside."""
    return section("input", input_tables.verdict_table(report), "", titled(input_tables.inner_tables(report)))


def gpus(report: Report) -> str:
    """What the driver reported of each GPU."""
    return section("gpus", tables.device_table(report), "", titled(device_tables.more_tables(report)))


def host(report: Report) -> str:
    """Processor, memory, disk, threads, workers."""
    first, *others = host_tables.tables_of(report)
    return section("host", first, "", titled(others))


def memory(report: Report) -> str:
    """The device's and the process's memory, each table a section."""
    first, *others = memory_tables(report.memory)
    rest = (section(f"memory-{number}", table) for number, table in enumerate(others, 2))
    return section("memory", first) + "".join(rest)
