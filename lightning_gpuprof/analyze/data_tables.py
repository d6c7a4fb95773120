"""Raw values of journals and reports as tables for other programs, at full precision."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec
import numpy as np

from lightning_gpuprof.analyze import compilation, steady
from lightning_gpuprof.analyze.journal import Journal
from lightning_gpuprof.model.data_table import DataTable, Values
from lightning_gpuprof.model.line_times import FunctionTimes
from lightning_gpuprof.model.phases import PHASES
from lightning_gpuprof.model.report import STEP_LABELS, CallbackRow, LedgerRow, PhaseRow, Report

SAMPLES: dict[str, str] = {"devices": "nvml", "host": "host", "memory": "memory", "input": "input"}
"""Table -> source of the journal's samples in it."""

_NS_PER_MS = 1e6
_NS_PER_S = 1e9
_WINDOW_FIELDS = (
    "start_step",
    "stop_step",
    "file",
    "problem",
    "reason",
    "inflation_ratio",
    "events",
    "kernels",
    "stop_cost_ms",
)

Item = TypeVar("Item")


def journal_tables(journals: Sequence[Journal]) -> list[DataTable]:
    """What was measured, of all ranks: ``steps``, and the samples as ``devices``, ``host``, ``memory`` and ``input``.

    Returns:
        Tables with a column ``rank``. Times are since the start of the run, in seconds; a value that a sample does not
        have is None.
    """
    return [_steps(journals), *(_samples(name, source, journals) for name, source in SAMPLES.items())]


def report_tables(report: Report) -> list[DataTable]:
    """What was concluded: phases, callbacks, ledger, timed lines, findings and their evidence, windows, conditions."""
    findings = report.findings
    evidence = [(finding.rule, item) for finding in findings for item in finding.evidence]
    return [
        _structs("phases", PhaseRow, report.phases),
        _structs("callbacks", CallbackRow, report.callbacks),
        _structs("ledger", LedgerRow, report.ledger),
        *([_line_times(report.line_times)] if report.line_times else []),
        DataTable(
            name="findings",
            columns={
                **_fields(findings, ("rule", "severity", "subject", "summary", "advice", "confidence")),
                "explains": _column(findings, lambda f: str(f.explains) if f.explains else None),
                "saved_ms_per_step": _column(findings, lambda f: f.gain.saved_ms_per_step if f.gain else None),
                "speedup_max": _column(findings, lambda f: f.gain.speedup_max if f.gain else None),
                "expected_step_ms": _column(findings, lambda f: f.expected.step_ms if f.expected else None),
                "expected_lower_ms": _column(findings, lambda f: f.expected.lower_ms if f.expected else None),
                "expected_upper_ms": _column(findings, lambda f: f.expected.upper_ms if f.expected else None),
            },
        ),
        DataTable(
            name="evidence",
            columns={
                "rule": [rule for rule, _ in evidence],
                "name": [item.name for _, item in evidence],
                "value": [None if isinstance(item.value, str) else float(item.value) for _, item in evidence],
                "text": [item.value if isinstance(item.value, str) else None for _, item in evidence],
                "unit": [item.unit for _, item in evidence],
                "limit": [None if item.limit is None else float(item.limit) for _, item in evidence],
                "source": [item.source for _, item in evidence],
            },
        ),
        DataTable(name="windows", columns=_fields(report.windows, _WINDOW_FIELDS)),
        DataTable(
            name="conditions",
            columns={"name": list(report.run), "value": [_text(value) for value in report.run.values()]},
        ),
    ]


def _line_times(functions: Sequence[FunctionTimes]) -> DataTable:
    """One row per line of the functions of ``lines=``."""
    owners = [function for function in functions for _ in function.lines]
    lines = [line for function in functions for line in function.lines]
    columns = {"function": _column(owners, lambda f: f.name), "file": _column(owners, lambda f: f.file)}
    fields = _fields(lines, ("line", "hits", "total_s", "blocked_ratio", "code"))
    return DataTable(name="line_times", columns={**columns, **fields})


def _steps(journals: Sequence[Journal]) -> DataTable:
    """One row per step; the phases of a row sum to its step time."""
    parts = [_steps_of(journal) for journal in journals]
    columns: dict[str, Values] = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns["label"] = [STEP_LABELS[code] for code in columns["label"]]
    return DataTable(name="steps", columns=columns)


def _steps_of(journal: Journal) -> dict[str, np.ndarray]:
    steps = journal.steps
    phases = journal.phases
    chosen = steady.select(steps, phases, compilation.compiled_steps(journal))
    return {
        "rank": np.full(len(steps), journal.header.rank, np.int64),
        "batch": steps.batch,
        "epoch": steps.epoch,
        "global_step": steps.global_step,
        "start_s": (steps.start_ns - journal.header.start_ns) / _NS_PER_S,
        "period_ms": steps.period_ns / _NS_PER_MS,
        "label": chosen.labels,
        **{f"{phase}_ms": phases[phase] / _NS_PER_MS for phase in PHASES},
    }


def _samples(name: str, source: str, journals: Sequence[Journal]) -> DataTable:
    """One row per reading, one column per value that any of them has."""
    found = [(journal.header, sample) for journal in journals for sample in journal.samples if sample.source == source]
    values = sorted({value for _, sample in found for value in sample.values})
    return DataTable(
        name=name,
        columns={
            "rank": _column(found, lambda pair: pair[0].rank),
            "time_s": _column(found, lambda pair: (pair[1].t_ns - pair[0].start_ns) / _NS_PER_S),
            "subject": _column(found, lambda pair: pair[1].subject),
            **{value: [sample.values.get(value) for _, sample in found] for value in values},
        },
    )


def _structs(name: str, kind: type[msgspec.Struct], rows: Sequence[msgspec.Struct]) -> DataTable:
    return DataTable(name=name, columns=_fields(rows, [field.name for field in msgspec.structs.fields(kind)]))


def _fields(rows: Sequence[msgspec.Struct], names: Iterable[str]) -> dict[str, Values]:
    return {name: [getattr(row, name) for row in rows] for name in names}


def _column(rows: Sequence[Item], value: Callable[[Item], object]) -> Values:
    return [value(row) for row in rows]


def _text(value: object) -> str | None:
    """A condition as text, so that a column of them has one type."""
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
