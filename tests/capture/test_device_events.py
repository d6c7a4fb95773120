"""Torch's events as device spans need them; what only a GPU can show is marked."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
import torch

from lightning_gpuprof.capture.device_spans import DeviceSpans, backend_for

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.mark.parametrize("device", ["cpu", "meta", "mps"])
def test_devices_without_events_that_can_be_read_late_have_no_backend(device: str) -> None:
    assert backend_for(torch.device(device)) is None


def test_asking_does_not_initialise_cuda() -> None:
    program = (
        "import torch\n"
        "from lightning_gpuprof.capture.device_spans import backend_for\n"
        "assert backend_for(torch.device('cuda', 0)) is None\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@needs_gpu
def test_spans_of_real_work_are_found_in_their_slots_without_waiting() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    matrix = torch.randn(4096, 4096, device=device)
    for _ in range(3):
        matrix @ matrix
    torch.cuda.synchronize()
    backend = backend_for(device)
    assert backend is not None
    failures: list[Exception] = []
    spans = DeviceSpans(backend, on_failure=failures.append, every_ns=0)
    begin = time.perf_counter()
    spans.begin_step(0, 0)
    spans.edge(1)
    for _ in range(50):
        matrix @ matrix
    spans.edge(0)
    spans.end_step()
    spans.read(1)
    host_s = time.perf_counter() - begin
    assert spans.collect() is None  # the device is still at it
    torch.cuda.synchronize()
    device_s = time.perf_counter() - begin
    spans.read(1)
    block = spans.collect()
    assert failures == []
    assert block is not None
    work_s = block.charged[1][0] / 1e9
    assert block.charged[1][0] > 20 * block.charged.get(0, [0])[0]
    assert host_s < work_s <= device_s * 1.05


@pytest.mark.gpu
@needs_gpu
def test_a_graph_that_is_captured_stays_whole_and_its_step_is_dropped() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    values = torch.ones(1024, device=device)
    backend = backend_for(device)
    assert backend is not None
    failures: list[Exception] = []
    spans = DeviceSpans(backend, on_failure=failures.append, every_ns=0)
    spans.begin_step(0, 0)
    spans.end_step()
    spans.begin_step(1, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        spans.edge(1)
        values.mul_(2.0)
        spans.read(1)
        spans.edge(0)
    spans.end_step()
    graph.replay()
    torch.cuda.synchronize()
    spans.close()
    block = spans.collect()
    assert failures == []
    assert block is not None
    assert (block.batch, block.dropped_capturing) == ([0], 1)
    assert float(values[0]) == 2.0
