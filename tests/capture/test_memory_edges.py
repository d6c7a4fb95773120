"""The allocator is read at the ends of phases in sampled steps, and nothing is touched in others."""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fake_allocator import MIB, FakeAllocator

from lightning_gpuprof.capture.memory.backend import allocator_for, sample_values
from lightning_gpuprof.capture.memory.edges import FULL_STEPS, MemoryEdges, ending_actions
from lightning_gpuprof.capture.memory.sampler import MemorySampler
from lightning_gpuprof.capture.step_clock import NULL_CONTEXT, Context, StepClock
from lightning_gpuprof.model.journal import Conditions, Sample
from lightning_gpuprof.model.memory import MEMORY_PHASES

ENDINGS = ending_actions("Strategy", "Model", manual=False)


class Loop:
    """Lightning's actions of a step, and what is wrapped around them."""

    def __init__(self, allocator: FakeAllocator) -> None:
        self.allocator = allocator
        self.failures: list[Exception] = []
        clock = StepClock()
        self.plain = {action: clock.context(clock.slot(action, "forward", "main")) for action in ENDINGS.values()}
        self.actions: dict[str, Context] = dict(self.plain)
        self.wrapped = 0
        self.edges = MemoryEdges(
            allocator,
            endings=ENDINGS,
            wrap_action=self.wrap,
            on_failure=self.failures.append,
            now=iter(range(10**6)).__next__,
        )

    def wrap(self, action: str, wrap: Callable[[Context], Context]) -> Callable[[], None]:
        self.wrapped += 1
        before = self.actions[action]
        self.actions[action] = wrap(before)
        return lambda: self.actions.__setitem__(action, before)

    def step(self, batch: int, *, repeat: int = 1) -> None:
        self.edges.end_step()
        self.edges.begin_step(batch)
        with self.actions[ENDINGS["h2d"]]:
            pass
        with self.actions[ENDINGS["optimizer"]]:
            for _ in range(repeat):
                for phase in ("forward", "zero_grad", "backward"):
                    with self.actions[ENDINGS[phase]]:
                        pass
        self.edges.end_step()

    def read(self) -> list[tuple[int, str]]:
        return [(r.batch, r.phase) for r in self.edges.readings]


@pytest.fixture
def loop() -> Loop:
    return Loop(FakeAllocator())


def test_first_steps_are_read_at_each_end_and_then_one_end_in_each_step_that_is_asked_for(loop: Loop) -> None:
    for batch in range(FULL_STEPS):
        assert loop.edges.is_waiting
        loop.step(batch)
    order = ["step", "h2d", "forward", "zero_grad", "backward", "optimizer"]
    assert loop.read() == [(batch, phase) for batch in range(FULL_STEPS) for phase in order]
    loop.edges.readings.clear()
    for batch in range(10, 16):
        loop.edges.ask()
        loop.step(batch, repeat=3)  # LBFGS calls its closure again and again
    assert sorted(phase for _, phase in loop.read()) == sorted(MEMORY_PHASES)
    assert loop.actions == loop.plain


def test_steps_that_nobody_asked_for_are_not_touched(loop: Loop) -> None:
    for batch in range(FULL_STEPS):
        loop.step(batch)
    calls, wrapped = loop.allocator.calls["read"], loop.wrapped
    for batch in range(FULL_STEPS, 50):
        assert not loop.edges.is_waiting
        loop.step(batch)
    assert (loop.allocator.calls["read"], loop.wrapped) == (calls, wrapped)


def test_an_allocator_that_fails_is_not_asked_again_and_training_goes_on() -> None:
    allocator = FakeAllocator()
    loop = Loop(allocator)
    loop.step(0)
    allocator.broken = "read"
    for batch in range(1, 6):
        loop.edges.ask()
        loop.step(batch)
    assert [str(error) for error in loop.failures] == ["allocator lost in read"]
    assert loop.actions == loop.plain
    assert allocator.calls["read"] == 7


def test_a_phase_that_raises_is_not_read_and_the_error_passes(loop: Loop) -> None:
    loop.edges.begin_step(0)
    with pytest.raises(ValueError, match="theirs"), loop.actions[ENDINGS["forward"]]:
        raise ValueError("theirs")
    assert loop.read() == [(0, "step")]


def test_an_action_that_is_not_timed_stays_as_it_is(loop: Loop) -> None:
    loop.actions = dict.fromkeys(loop.actions, NULL_CONTEXT)
    loop.edges.begin_step(0)
    assert set(map(id, loop.actions.values())) == {id(NULL_CONTEXT)}


def test_marks_are_times_of_ends_without_a_reading(loop: Loop) -> None:
    loop.edges.mark_step()
    with loop.actions[ENDINGS["forward"]]:
        pass
    loop.edges.end_step()
    assert [mark.phase for mark in loop.edges.take_marks()] == ["step", "forward"]
    assert loop.edges.take_marks() == []
    assert not loop.allocator.calls


def test_whether_gradients_live_is_seen_at_the_edge(loop: Loop) -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    loop.edges.witness = weakref.ref(parameter)
    loop.edges.begin_step(0)
    parameter.grad = torch.ones(1)
    with loop.actions[ENDINGS["forward"]]:
        pass
    assert [r.gradients_live for r in loop.edges.readings] == [False, True]


def test_manual_optimization_has_other_ends() -> None:
    assert ending_actions("S", "M", manual=True)["backward"] == "[LightningModule]M.on_after_backward"
    assert "zero_grad" not in ending_actions("S", "M", manual=True)


def test_counters_become_values_and_what_is_not_there_is_left_out() -> None:
    allocator = FakeAllocator(held=30 * MIB)
    allocator.free(allocator.alloc(MIB))
    values = sample_values(allocator.read())
    assert values["allocated_bytes"] == 30 * MIB
    assert (values["reserved_bytes"], values["inactive_split_bytes"], values["segments_count"]) == (
        40 * MIB,
        10 * MIB,
        2,
    )
    assert (values["allocations_count"], values["allocations_total_count"]) == (1, 2)
    assert sample_values({"allocated_bytes": {"all": {"current": 3}}}) == {"allocated_bytes": 3.0}
    assert sample_values({}) == {}


class Woken:
    count = 0

    def __call__(self) -> None:
        self.count += 1


def sampler_of(loop: Loop | None, module: Any, optimizers: list[Any], ready: list[bool]) -> MemorySampler:
    return MemorySampler(
        None if loop is None else loop.edges,
        device="gpu0",
        total_bytes=None if loop is None else 1 << 30,
        module=module,
        optimizers=lambda: optimizers,
        is_ready=lambda: ready[0],
        wake=Woken(),
    )


def test_the_sampler_hands_over_readings_the_total_and_once_what_is_held() -> None:
    loop = Loop(FakeAllocator(held=MIB))
    module = torch.nn.Linear(4, 4, bias=False)
    ready = [False]
    sampler = sampler_of(loop, module, [], ready)
    loop.step(0)
    first = sampler.sample(1)
    assert [r.subject for r in first if isinstance(r, Sample)] == [
        "gpu0 step", "gpu0 h2d", "gpu0 forward", "gpu0 zero_grad", "gpu0 backward", "gpu0 optimizer"
    ]  # fmt: skip
    assert [r.values for r in first if isinstance(r, Conditions)] == [{"memory.gpu0.total_bytes": 1 << 30}]
    assert sampler.sample(2) == []
    ready[0] = True
    later = []
    for t in range(3, 10):
        later += sampler.sample(t)
        assert later == [] or t > 6  # the gradients are waited for, however long the step
        if t > 5:
            sampler.between_steps()
    assert [(r.subject, r.values["parameters_bytes"]) for r in later if isinstance(r, Sample)] == [
        ("held cpu float32", 64.0)
    ]
    assert sampler.close() == []


def test_a_run_that_is_too_short_for_the_sampler_is_counted_at_its_end() -> None:
    sampler = sampler_of(None, torch.nn.Linear(4, 4, bias=False), [], [True])
    sampler.end()
    (held,) = sampler.close()
    assert isinstance(held, Sample)
    assert held.values["parameters_bytes"] == 64.0


class Watched(torch.nn.Parameter):
    """Notes which threads ask for its gradient."""

    asked: set[int]

    @property
    def grad(self) -> Any:
        self.asked.add(threading.get_ident())
        return torch.zeros(5)


def test_gradients_are_read_by_the_training_thread_only_and_only_when_they_are_asked_for() -> None:
    """Autograd replaces them without the interpreter's lock: a reader on another thread is a crash now and then."""
    module = torch.nn.Module()
    module.weight = Watched(torch.zeros(4))
    module.weight.asked = set()
    sampler = sampler_of(None, module, [], [True])
    sampler.between_steps()
    assert module.weight.asked == set()
    found = []
    beside = threading.Thread(target=lambda: [found.extend(sampler.sample(t)) for t in range(2)])
    beside.start()
    beside.join()
    assert module.weight.asked == set()
    sampler.between_steps()
    sampler.between_steps()
    assert module.weight.asked == {threading.get_ident()}
    found += [*sampler.sample(2), *sampler.close()]
    values = {name: value for one in found if isinstance(one, Sample) for name, value in one.values.items()}
    assert (values["parameters_bytes"], values["gradients_bytes"]) == (16.0, 20.0)


def test_a_state_that_changes_while_it_is_read_is_tried_again() -> None:
    class Changing:
        tries = 0

        @property
        def state(self) -> Any:
            self.tries += 1
            if self.tries < 3:
                raise RuntimeError("dictionary changed size during iteration")
            return {}

    sampler = sampler_of(None, torch.nn.Linear(4, 4, bias=False), [Changing()], [True])
    found: list[Any] = []
    for t in range(10):
        found += sampler.sample(t)
        sampler.between_steps()
    assert len(found) == 1


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_no_other_allocator_than_cudas_is_read(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert allocator_for(torch.device(device)) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_s_allocator_is_read_without_changing_its_statistics(tmp_path: Any) -> None:
    import pickle

    kept = torch.ones(1 << 20, device="cuda")
    backend = allocator_for(torch.device("cuda"))
    before = torch.cuda.memory_stats()
    values = sample_values(backend.read())
    assert torch.cuda.memory_stats() == before
    assert values["allocated_bytes"] == torch.cuda.memory_allocated() >= kept.numel() * 4
    assert values["retries_count"] == 0
    assert not backend.records_history()
    backend.start_history()
    assert backend.records_history()
    more = torch.ones(1 << 20, device="cuda")
    snapshot = backend.snapshot()
    backend.stop_history()
    assert not backend.records_history()
    assert [e["size"] for e in snapshot["device_traces"][backend.index] if e["action"] == "alloc"] == [more.numel() * 4]
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
