from __future__ import annotations

from typing import Any

import pytest
from feeding_builder import starved, worker_row
from findings_builder import fired

from lightning_gpuprof.model.metrics import Metrics
from lightning_gpuprof.rules.base import MissingSignal
from lightning_gpuprof.rules.input.loader_cpu_bound import LoaderCpuBound

RULE = LoaderCpuBound()


def planted(cpu: float = 0.95, delay: float = 0.02, **changes: Any) -> Metrics:
    rows = (worker_row(0, cpu=cpu, delay=delay), worker_row(1, cpu=cpu, delay=delay))
    given = {"rows": rows, "usable_cpus": 2.0, "worker_cpus": 2 * cpu, "process_cpus": 0.1, **changes}
    return starved(**given)


@pytest.mark.parametrize(("cpu", "fires"), [(0.81, False), (0.83, True)])
def test_the_share_of_making_batches_decides(cpu: float, fires: bool) -> None:
    assert (RULE.check(planted(cpu=cpu)) is not None) is fires  # and 2 % without a CPU, of 99 %


def test_workers_that_were_not_sampled_are_not_judged() -> None:
    with pytest.raises(MissingSignal, match="waited for a CPU was not measured"):
        RULE.check(planted(rows=(worker_row(delay=None),)))
    with pytest.raises(MissingSignal, match="CPU time of the DataLoader workers was not measured"):
        RULE.check(planted(rows=(worker_row(cpu=None),)))


@pytest.mark.parametrize(("others_cpus", "saves_ms"), [(0.0, 80.3), (0.8, 65.9)])
def test_no_more_is_promised_than_a_cheaper_batch_gains_on_the_cpus_that_are_free(
    others_cpus: float, saves_ms: float
) -> None:
    """A batch takes 150 ms of CPU time, a quarter of it 20 ms on 1.9 CPUs; of each 100 ms a step waits 90."""
    metrics = planted(cpu=0.75, delay=0.24, others_cpus=others_cpus, items_ms=199.0)
    assert fired(RULE, metrics).gain.saved_ms_per_step == pytest.approx(saves_ms, rel=0.01)
