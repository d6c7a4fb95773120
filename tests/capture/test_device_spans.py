"""Device spans with a device that runs when the test says so, and writes down all that it is asked."""

import random
import threading
import time
from collections.abc import Iterable

import pytest
import torch
from fake_device import US, FakeDevice
from python_process import run_python

from lightning_gpuprof.capture.device_spans import DENSE_STEPS, MAX_EDGES, DeviceSpans, backend_for
from lightning_gpuprof.model.journal import DeviceBlock


class Steps:
    """Training with a clock in hand."""

    def __init__(self, *, max_pending: int = 64, every_ns: int = 0) -> None:
        self.device = FakeDevice()
        self.failures: list[Exception] = []
        self.now_ns = 1
        self.spans = DeviceSpans(
            self.device,
            on_failure=self.failures.append,
            every_ns=every_ns,
            max_pending=max_pending,
            now=lambda: self.now_ns,
        )

    def step(self, batch: int, slots: tuple[int, ...] = (1, 2, 1)) -> None:
        self.spans.begin_step(batch, slots[0])
        for slot in slots[1:]:
            self.spans.edge(slot)
        self.spans.end_step()

    def passed(self, batches: Iterable[int]) -> None:
        """Steps that the device has done before the next begins."""
        for batch in batches:
            self.step(batch)
            self.device.pass_events()

    def collected(self) -> DeviceBlock:
        return self.spans.collect()


@pytest.fixture
def steps() -> Steps:
    return Steps()


def test_spans_go_to_their_slots_and_sum_to_the_time_from_first_to_last_event(steps: Steps) -> None:
    steps.step(7, (1, 2, 3, 2, 1))
    steps.device.pass_events()
    steps.spans.read(1)
    block = steps.collected()
    assert block.batch == [7]
    assert block.charged == {1: [20 * US], 2: [20 * US], 3: [10 * US]}
    assert sum(column[0] for column in block.charged.values()) == 5 * 10 * US


def test_nothing_is_read_before_the_device_has_passed_the_last_event(steps: Steps) -> None:
    steps.step(0)
    steps.device.pass_events(3)  # of four
    steps.spans.read(1)
    assert steps.spans.collect() is None
    assert steps.device.calls["elapsed_ns"] == 0
    steps.device.pass_events()
    steps.spans.read(1)
    assert steps.collected().batch == [0]


def test_an_earlier_event_on_a_slower_stream_is_waited_for_by_leaving_the_step_for_later(steps: Steps) -> None:
    steps.spans.begin_step(0, 1)
    steps.device.stream = 1
    steps.spans.edge(2)
    steps.device.stream = 0
    steps.spans.end_step()
    steps.device.pass_events(stream=0)
    steps.spans.read(1)
    assert steps.spans.collect() is None
    steps.device.pass_events(stream=1)
    steps.spans.read(1)
    block = steps.collected()  # the middle one came last: the times do not follow each other
    assert (block.batch, block.dropped_unusable) == ([], 1)


def test_a_step_that_is_done_is_read_past_one_that_never_is(steps: Steps) -> None:
    steps.device.stream = 1
    steps.step(0)  # on a stream that never gets on
    steps.device.stream = 0
    steps.passed(range(1, 6))
    steps.spans.read(64)
    assert steps.collected().batch == [1, 2, 3, 4, 5]
    steps.device.pass_events(stream=1)
    steps.spans.read(1)
    assert steps.collected().batch == [0]


def test_events_are_reused(steps: Steps) -> None:
    steps.passed(range(200))
    assert steps.device.calls["record"] == 800
    assert steps.device.calls["new_event"] == 4  # a step is read before the next is begun


def test_a_device_that_lags_behind_costs_bounded_memory_and_dropped_steps_are_counted() -> None:
    steps = Steps(max_pending=8)
    for batch in range(100):
        steps.step(batch)
    assert steps.device.calls["new_event"] == 8 * 4
    block = steps.collected()
    assert (block.batch, block.dropped_backlog) == ([], 92)
    steps.device.pass_events()
    steps.passed(range(100, 110))
    after = steps.collected()
    assert after.batch[:8] == list(range(8))
    assert after.dropped_backlog == 0  # what was done is read before the next step needs room


def test_a_backlog_is_caught_up_with_a_few_steps_at_a_time(steps: Steps) -> None:
    for batch in range(20):
        steps.step(batch)
    steps.device.pass_events()
    steps.step(20)
    assert len(steps.collected().batch) == 2


def test_nothing_is_recorded_or_asked_while_a_graph_is_captured(steps: Steps) -> None:
    steps.step(0)
    steps.device.pass_events()
    steps.device.capturing = True
    steps.step(1)
    assert steps.device.captured == 0
    block = steps.collected()
    assert (block.batch, block.dropped_capturing) == ([], 1)
    steps.device.capturing = False
    steps.step(2)
    assert steps.collected().batch == [0]


def test_a_capture_that_begins_within_a_step_drops_the_step_and_gives_its_events_back(steps: Steps) -> None:
    for batch in range(10):
        steps.spans.begin_step(batch, 1)
        steps.spans.edge(2)
        steps.device.capturing = True
        steps.spans.edge(3)
        steps.device.capturing = False
        steps.spans.edge(4)
        steps.spans.end_step()
    assert steps.device.captured == 0
    assert steps.device.calls["new_event"] == 2
    assert steps.collected().dropped_capturing == 10


def test_only_one_step_in_so_much_time_is_measured() -> None:
    steps = Steps(every_ns=100)
    for batch in range(100):
        steps.now_ns += 10
        steps.step(batch)
        steps.device.pass_events()
    steps.spans.close()
    batches = steps.collected().batch
    assert batches == list(range(0, 100, 10))


def test_long_runs_are_measured_less_often() -> None:
    steps = Steps(every_ns=100)
    for batch in range(DENSE_STEPS + 100):
        steps.now_ns += 100
        steps.step(batch)
        steps.device.pass_events()
    assert steps.spans.interval_ns == 1_000
    assert steps.device.calls["record"] == (DENSE_STEPS + 10) * 4


def test_steps_that_are_not_measured_ask_nothing_of_the_device() -> None:
    steps = Steps(every_ns=1_000)
    steps.step(0)
    before = steps.device.calls.copy()
    for batch in range(1, 50):
        steps.step(batch)
    assert steps.device.calls == before


def test_neighbouring_edges_of_one_slot_need_no_event(steps: Steps) -> None:
    steps.step(0, (1, 2, 2, 2, 1))
    assert steps.device.calls["record"] == 4


def test_a_step_with_a_validation_in_it_is_given_up(steps: Steps) -> None:
    steps.step(0, tuple(range(MAX_EDGES + 50)))
    assert steps.device.calls["record"] == MAX_EDGES
    assert steps.collected().dropped_unusable == 1


def test_what_was_begun_and_is_no_step_leaves_nothing(steps: Steps) -> None:
    steps.spans.begin_step(0, 1)
    steps.spans.edge(2)
    steps.spans.cancel_step()
    steps.spans.edge(3)
    steps.spans.end_step()
    steps.device.pass_events()
    steps.spans.read(1)
    assert steps.spans.collect() is None
    steps.step(1)
    assert steps.device.calls["new_event"] == 4  # two of them again


def test_a_step_that_begins_ends_the_one_before(steps: Steps) -> None:
    steps.spans.begin_step(0, 1)
    steps.spans.begin_step(1, 1)
    steps.spans.end_step()
    steps.device.pass_events()
    steps.spans.close()
    assert steps.collected().batch == [0, 1]


@pytest.mark.parametrize("call", ["new_event", "record", "is_done", "elapsed_ns"])
def test_a_failing_device_is_reported_once_and_left_alone_from_then_on(steps: Steps, call: str) -> None:
    steps.device.broken = call
    steps.passed(range(5))
    assert [str(error) for error in steps.failures] == [f"device lost in {call}"]
    before = steps.device.calls.copy()
    steps.step(5)
    steps.spans.close()
    assert steps.device.calls == before


def test_closing_reads_what_is_done_and_counts_what_is_not(steps: Steps) -> None:
    for batch in range(6):
        steps.step(batch)
    steps.device.pass_events(12)
    steps.spans.close()
    block = steps.collected()
    assert (block.batch, block.dropped_backlog) == ([0, 1, 2], 3)
    before = steps.device.calls.copy()
    steps.step(6)
    assert steps.device.calls == before


def test_slots_that_only_some_steps_use_are_zero_in_the_others(steps: Steps) -> None:
    steps.step(0, (1, 2))
    steps.step(1, (1, 3))
    steps.device.pass_events()
    steps.spans.read(2)
    assert steps.collected().charged == {1: [10 * US, 10 * US], 2: [10 * US, 0], 3: [0, 10 * US]}


def test_another_thread_fetches_without_touching_the_device_and_nothing_gets_lost() -> None:
    steps = Steps(max_pending=4)
    stop = threading.Event()
    found: list[DeviceBlock] = []

    def fetch() -> None:
        while not stop.is_set():
            if (block := steps.spans.collect()) is not None:
                found.append(block)

    thread = threading.Thread(target=fetch)
    thread.start()
    chance = random.Random(0)
    for batch in range(3_000):
        steps.step(batch, (1, *(chance.randrange(6) for _ in range(8)), 1))
        if chance.random() < 0.7:
            steps.device.pass_events(chance.randrange(40))
    steps.device.pass_events()
    steps.spans.close()
    stop.set()
    thread.join()
    if (last := steps.spans.collect()) is not None:
        found.append(last)
    batches = [batch for block in found for batch in block.batch]
    assert len(batches) == len(set(batches)) > 1_000
    assert len(batches) + sum(block.dropped_backlog for block in found) == 3_000
    assert all(len(column) == len(block.batch) for block in found for column in block.charged.values())
    assert steps.device.threads == {threading.get_ident()}


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")


@pytest.mark.parametrize("device", ["cpu", "meta", "mps"])
def test_devices_without_events_that_can_be_read_late_have_no_backend(device: str) -> None:
    assert backend_for(torch.device(device)) is None


@pytest.mark.slow
def test_asking_does_not_initialise_cuda() -> None:
    program = (
        "import torch\n"
        "from lightning_gpuprof.capture.device_spans import backend_for\n"
        "assert backend_for(torch.device('cuda', 0)) is None\n"
        "assert not torch.cuda.is_initialized()\n"
    )
    run_python("-c", program)


@pytest.mark.gpu
@needs_gpu
def test_spans_of_real_work_are_found_in_their_slots_without_waiting() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    matrix = torch.randn(4096, 4096, device=device)
    for _ in range(3):
        matrix @ matrix
    torch.cuda.synchronize()
    backend = backend_for(device)
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
    assert failures == []
    block = spans.collect()
    work_s = block.charged[1][0] / 1e9
    assert block.charged[1][0] > 20 * block.charged.get(0, [0])[0]
    assert host_s < work_s <= device_s * 1.05


@pytest.mark.gpu
@needs_gpu
def test_a_graph_that_is_captured_stays_whole_and_its_step_is_dropped() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    values = torch.ones(1024, device=device)
    backend = backend_for(device)
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
    assert failures == []
    block = spans.collect()
    assert (block.batch, block.dropped_capturing) == ([0], 1)
    assert float(values[0]) == 2.0
