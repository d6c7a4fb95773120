from __future__ import annotations

import pytest
from feeding_builder import starved
from findings_builder import fired

from lightning_gpuprof.rules.input.loader_io_bound import LoaderIoBound

HOST = {"usable_cpus": 2.0, "worker_cpus": 0.1, "process_cpus": 0.1}


@pytest.mark.parametrize(("cpu", "fires"), [(0.48, False), (0.47, True)])
def test_half_of_the_making_decides(cpu: float, fires: bool) -> None:
    metrics = starved(each_worker={"cpu": cpu, "delay": 0.02}, **HOST)  # of 99 %
    assert (LoaderIoBound().check(metrics) is not None) is fires


@pytest.mark.parametrize(("disk", "blamed"), [(0.19, False), (0.2, True)])
def test_a_fifth_of_the_samples_blames_the_disk(disk: float, blamed: bool) -> None:
    finding = fired(LoaderIoBound(), starved(each_worker={"cpu": 0.05, "disk": disk}, **HOST))
    assert ("waiting for a disk" in finding.summary) is blamed
