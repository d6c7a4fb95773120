"""The final numbers for loggers."""

import math

import msgspec
import sample_report

from lightning_gpuprof.sinks.loggers import final_scalars

UNITS = ("_s", "_ms", "_us", "_ns", "_ratio", "_bytes", "_count", "_w", "_c", "_mhz", "_cpus")


def has_unit(name: str) -> bool:
    for statistic in ("_mean", "_peak"):
        name = name.removesuffix(statistic)
    return name.endswith((*UNITS, "_per_s"))


def test_every_scalar_is_finite_and_names_its_unit() -> None:
    scalars = final_scalars(sample_report.full_report())
    assert all(type(value) is float and math.isfinite(value) for value in scalars.values())
    assert all(name.startswith("gpuprof/final/") for name in scalars)
    assert [name for name in scalars if not has_unit(name)] == []


def test_a_run_takes_at_most_a_dozen_names() -> None:
    assert 6 <= len(final_scalars(sample_report.full_report())) <= 12


def test_what_was_not_measured_has_no_scalar() -> None:
    minimal = final_scalars(sample_report.minimal_report())
    assert "gpuprof/final/step_time_median_ms" not in minimal
    assert "gpuprof/final/samples_per_s" not in minimal
    assert "gpuprof/final/speedup_max_ratio" not in minimal
    assert "gpuprof/final/profiler_share_of_step_ratio" not in minimal


def test_nan_is_left_out() -> None:
    report = msgspec.structs.replace(sample_report.full_report(), overhead={"share_of_step_ratio": math.nan})
    assert "gpuprof/final/profiler_share_of_step_ratio" not in final_scalars(report)


def test_numbers_are_those_of_the_report() -> None:
    report = sample_report.full_report()
    scalars = final_scalars(report)
    assert scalars["gpuprof/final/step_time_median_ms"] == report.steps.period_ms.median
    assert scalars["gpuprof/final/wall_s"] == report.wall.total_s
    assert scalars["gpuprof/final/findings_count"] == len(report.findings)
