import msgspec
import pytest
from findings_builder import fired
from memory_builder import GIB, grows, memory, on_gpu
from metrics_builder import replace

from lightning_gpuprof.model.memory import Growth, MemoryHistory, OutOfMemory, SourceHolder
from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.memory.memory_leak import MemoryLeak

RULE = MemoryLeak()
MIB = 2**20
END = OutOfMemory(message="CUDA out of memory.", batch=900, global_step=900, phase="forward", place="")


def test_a_history_names_the_line() -> None:
    history = MemoryHistory(
        reason="window",
        start_step=10,
        stop_step=12,
        device=0,
        events=10,
        peak_bytes=GIB,
        at_peak=(SourceHolder(place="model.py:31 training_step", held_bytes=GIB, count=3),),
    )
    metrics = on_gpu(growth=(grows(4 * MIB),))
    told = replace(metrics, memory=msgspec.structs.replace(metrics.memory, histories=(history,)))
    assert "training_step() (model.py:31) held most (1 GiB)" in fired(RULE, told).advice


def in_epochs(epochs: int | None, across_mib: float | None = None, mib: float = 4) -> Growth:
    across = None if across_mib is None else across_mib * MIB
    return msgspec.structs.replace(grows(mib * MIB), epochs=epochs, bytes_per_step_across_epochs=across)


def test_what_each_epoch_clears_at_its_end_is_no_leak() -> None:
    assert RULE.check(on_gpu(growth=(in_epochs(3, 0.0),))) is None
    assert RULE.check(on_gpu(growth=(in_epochs(3, -0.1),))) is None


def test_only_what_stays_from_epoch_to_epoch_counts() -> None:
    finding = fired(RULE, on_gpu(growth=(in_epochs(3, 2.5),)))
    assert finding.severity == "warning"
    assert "gpu0 grew by 2.5 MiB per step, 2.44 GiB over 1,000 steps (6.1 %)" in finding.summary


@pytest.mark.parametrize(("epochs", "severity"), [(1, "info"), (2, "info"), (3, "warning"), (None, "warning")])
def test_in_the_first_epoch_it_may_be_gathered_on_purpose(epochs: int | None, severity: str) -> None:
    assert fired(RULE, on_gpu(growth=(in_epochs(epochs),))).severity == severity


@pytest.mark.parametrize(("batches", "severity"), [(21_000, "info"), (22_000, "warning")])
def test_a_gpu_that_is_full_before_the_first_epoch_ends_is_a_warning(batches: int, severity: str) -> None:
    """After 1,000 steps there is room for another 20,480."""
    assert (
        fired(RULE, on_gpu(growth=(in_epochs(1),), run={"trainer.num_training_batches": batches})).severity == severity
    )


def test_an_end_without_memory_is_critical_in_the_first_epoch_too() -> None:
    assert fired(RULE, on_gpu(growth=(in_epochs(1, mib=40),), end=END)).severity == "critical"


def test_memory_that_shrinks_is_no_leak() -> None:
    assert RULE.check(on_gpu(growth=(grows(-4 * MIB),))) is None


@pytest.mark.parametrize(
    ("mib", "first_gib", "severity"),
    [
        (31, 1.0, None),
        (33, 1.0, "info"),
        (300, 40.0, None),
        (500, 40.0, "info"),
        (90, 1.0, "info"),
        (101, 1, "warning"),
    ],
)
def test_bytes_and_share_decide(mib: float, first_gib: float, severity: str | None) -> None:
    finding = RULE.check(on_gpu(growth=(grows(mib * MIB / 1000, first_gib=first_gib),)))
    assert (None if finding is None else finding.severity) == severity


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        (on_gpu(), "read 0 times"),
        (on_gpu(growth=(grows(4 * MIB, steps=49),)), "over 49 steps"),
    ],
)
def test_what_is_missing_is_said(metrics: Metrics, why: str) -> None:
    with pytest.raises(MissingSignal, match=why):
        RULE.check(metrics)


def test_the_growth_of_the_process_is_another_rule_s() -> None:
    of_process = msgspec.structs.replace(grows(4 * MIB), what="process rss")
    assert memory(growth=(of_process,)).growth
    with pytest.raises(MissingSignal):
        RULE.check(on_gpu(growth=(of_process,)))
