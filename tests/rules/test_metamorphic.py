"""Changes that must not matter: what happens outside of what is measured, and the order in which things are given."""

import random

import msgspec
import pytest
from faulty_runs import FAULTS, everything_is_wrong_on_a_gpu
from metrics_builder import replace, scaled
from traced_builder import gpu, window

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.model.report import Wall
from lightning_gpuprof.rules.discovery import discover
from lightning_gpuprof.rules.engine import Diagnosis, diagnose

RUNS: dict[str, Metrics] = {**FAULTS, "on a GPU": everything_is_wrong_on_a_gpu()}


def told(diagnosis: Diagnosis) -> tuple[object, ...]:
    """What a reader sees of findings and verdict."""
    return diagnosis.verdict, [(f.rule, f.severity, f.gain, f.summary) for f in diagnosis.findings], diagnosis.combined


@pytest.mark.parametrize("run", RUNS)
def test_set_up_and_tear_down_change_nothing(run: str) -> None:
    metrics = RUNS[run]
    parts = {**metrics.wall.parts, "setup": 500.0, "teardown": 300.0}
    longer = replace(metrics, wall=Wall(total_s=sum(parts.values()), parts=parts))
    before, after = diagnose(metrics), diagnose(longer)
    assert [f.rule for f in after.findings] == [f.rule for f in before.findings]
    assert after.verdict.kind == before.verdict.kind
    for one, other in zip(before.findings, after.findings, strict=True):
        if one.gain is None:
            assert other.gain is None
        else:
            assert other.gain.saved_ms_per_step == pytest.approx(one.gain.saved_ms_per_step)


@pytest.mark.parametrize("run", RUNS)
def test_the_order_of_the_rules_changes_nothing(run: str) -> None:
    rules = list(discover(entry_points=()).rules)
    before = told(diagnose(RUNS[run], rules))
    for seed in range(3):
        random.Random(seed).shuffle(rules)
        assert told(diagnose(RUNS[run], rules)) == before


def test_the_order_of_devices_and_windows_changes_nothing() -> None:
    base = everything_is_wrong_on_a_gpu()
    quiet = gpu(utilization=0.2, sm=0.3, dram=0.2, tensor=0.1)
    windows = (*base.windows, window(period_ms=200.0, causes={"launch": 0.8}))
    one = replace(base, devices=(*base.devices, quiet), windows=windows)
    two = replace(base, devices=(quiet, *base.devices), windows=windows[::-1])
    assert diagnose(one).verdict.kind == diagnose(two).verdict.kind


def test_the_names_of_devices_and_the_rank_change_nothing() -> None:
    base = everything_is_wrong_on_a_gpu()
    renamed = tuple(
        msgspec.structs.replace(
            facts,
            devices=tuple(msgspec.structs.replace(d, device="7") for d in facts.devices),
            analysis=_renamed(facts.analysis),
        )
        for facts in base.windows
    )
    other = replace(base, windows=renamed, run={**base.run, "rank": 5})
    assert told(diagnose(other)) == told(diagnose(base))


def _renamed(analysis: object) -> object:
    """The same analysis of device 7."""
    if isinstance(analysis, tuple):
        return tuple(map(_renamed, analysis))
    if not isinstance(analysis, msgspec.Struct):
        return analysis
    values = {name: _renamed(getattr(analysis, name)) for name in analysis.__struct_fields__}
    return type(analysis)(**{name: "7" if name == "device" and value else value for name, value in values.items()})


@pytest.mark.parametrize("factor", [0.25, 5.0])
def test_a_gpu_run_in_which_all_takes_longer_has_the_same_verdict_and_findings(factor: float) -> None:
    base = everything_is_wrong_on_a_gpu()
    before, after = diagnose(base), diagnose(scaled(base, factor))
    assert after.verdict.kind == before.verdict.kind
    assert after.findings[0].rule == before.findings[0].rule
