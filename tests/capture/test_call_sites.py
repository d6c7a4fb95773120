import gc
import json
import os
import random
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, TypeVar

import pytest
import torch

from lightning_gpuprof.capture.call_sites import CallSiteSampler, UserCode, is_in_collective, left_collective
from lightning_gpuprof.capture.recorder import Reading, Recorder
from lightning_gpuprof.model.journal import CallSites

HERE = Path(__file__)
SECOND = 1_000_000_000
PATIENCE_S = 30.0
T = TypeVar("T")


class Blocked:
    """A thread that runs a function until it is let go, as training runs and waits."""

    def __init__(self, work: Callable[[Callable[[], None]], object]) -> None:
        self._entered, self._abandon = threading.Event(), threading.Event()
        self.thread = threading.Thread(target=lambda: work(self._wait))
        self.thread.start()
        assert self._entered.wait(PATIENCE_S)

    def _wait(self) -> None:
        self._entered.set()
        assert self._abandon.wait(PATIENCE_S)

    def end(self) -> None:
        self._abandon.set()
        self.thread.join(PATIENCE_S)
        assert not self.thread.is_alive()


@pytest.fixture
def blocked() -> Iterator[Callable[[Callable[[Callable[[], None]], object]], int]]:
    running: list[Blocked] = []

    def start(work: Callable[[Callable[[], None]], object]) -> int:
        running.append(Blocked(work))
        return running[-1].thread.ident

    yield start
    for each in running:
        each.end()


Start = Callable[[Callable[[Callable[[], None]], object]], int]


def program(folder: Path, name: str, function: str = "training_step") -> Callable[[Callable[[], None]], object]:
    """A function in a file of its own that calls what it is given, in its second line."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    source = f"def {function}(wait):\n    return wait()\n"
    path.write_text(source)
    names: dict[str, Callable[[Callable[[], None]], object]] = {}
    exec(compile(source, str(path), "exec"), names)
    return names[function]


def frame_of_code_in(filename: str) -> FrameType:
    """A frame of a function ``f`` in a file of that name, called by nobody but the standard library."""
    names: dict[str, Callable[[], FrameType]] = {"frame": sys._getframe}
    exec(compile("def f(): return frame()", filename, "exec"), names)
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(names["f"]).result(PATIENCE_S)


def user_code(cwd: Path) -> UserCode:
    """As in a real process, with this test's own waiting around the work hidden like a library."""
    return UserCode(cwd=str(cwd), library_roots=[str(Path(threading.__file__).parent), str(HERE.parent)])


def looks(thread: int, code: UserCode, times: int = 1, slot: int = 3) -> dict[int, dict[str, int]]:
    sampler = CallSiteSampler(thread, lambda: slot, user_code=code)
    sampler.open()
    for second in range(times):
        assert list(sampler.sample(second * SECOND)) == []
    records = list(sampler.close())
    return records[0].counts if records else {}


def test_the_users_calls_are_counted_the_innermost_last(blocked: Start, tmp_path: Path) -> None:
    outer, inner = program(tmp_path, "train.py", "main"), program(tmp_path, "models/net.py", "forward")
    thread = blocked(lambda wait: outer(lambda: inner(wait)))
    assert looks(thread, user_code(tmp_path), times=4) == {3: {"train.py:2 main;models/net.py:2 forward": 4}}


def test_libraries_below_the_user_s_line_are_passed_over(blocked: Start, tmp_path: Path) -> None:
    user = program(tmp_path, "train.py")
    library = program(tmp_path, "venv/lib/python3.11/site-packages/torch/nn/modules/module.py", "_call_impl")
    packaged = program(tmp_path, "usr/lib/python3/dist-packages/numpy/core.py", "add")
    thread = blocked(lambda wait: user(lambda: library(lambda: packaged(lambda: wait()))))
    assert looks(thread, user_code(tmp_path)) == {3: {"train.py:2 training_step": 1}}


def test_a_file_outside_of_the_working_folder_is_shown_with_its_folder(blocked: Start, tmp_path: Path) -> None:
    user = program(tmp_path, "elsewhere/pkg/data.py")
    cwd = tmp_path / "project"
    cwd.mkdir()
    thread = blocked(lambda wait: user(wait))
    assert looks(thread, user_code(cwd)) == {3: {"pkg/data.py:2 training_step": 1}}


def test_without_a_line_of_the_user_nothing_is_counted(blocked: Start, tmp_path: Path) -> None:
    library = program(tmp_path, "site-packages/lib.py")
    thread = blocked(lambda wait: library(wait))
    assert looks(thread, user_code(tmp_path)) == {}


@pytest.mark.parametrize(
    ("files", "waits"),
    [
        (["torch/distributed/distributed_c10d.py", "train.py"], True),
        (["torch/_ops.py", "torch/distributed/_functional_collectives.py"], True),
        (["torch/nn/parallel/distributed.py", "train.py"], True),
        (["torch/_ops.py", "torch/distributed/tensor/_dispatch.py"], False),
        (["torch/distributed/_tensor/_dispatch.py", "train.py"], False),
        (["torch/distributed/checkpoint/filesystem.py", "train.py"], False),
        (["train.py", "torch/distributed/algorithms/join.py"], False),
    ],
)
def test_a_look_into_a_collective_is_told_by_the_innermost_file(files: list[str], waits: bool) -> None:
    frame: Any = None
    for file in reversed(files):
        frame = SimpleNamespace(
            f_code=SimpleNamespace(co_filename=f"/lib/site-packages/{file}"), f_lineno=1, f_back=frame
        )
    assert is_in_collective(frame) is waits
    assert not is_in_collective(None)


class _RefusesBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("planted")


def out_of_backward(error: str) -> Callable[[], None]:
    """What the backward raises beside other ranks or on a GPU, and from where."""
    code = compile(f"raise {error}", "/lib/site-packages/torch/autograd/graph.py", "exec")
    return lambda: exec(code, {"torch": torch})


def twice_backward() -> None:
    loss = torch.ones(2, requires_grad=True).exp().sum()
    loss.backward()
    loss.backward()


@pytest.mark.parametrize(
    ("fails", "left"),
    [
        (twice_backward, False),
        (out_of_backward("torch.cuda.OutOfMemoryError('planted')"), False),
        (out_of_backward("RuntimeError('[third_party/gloo/gloo/transport/tcp/pair.cc:1] Connection reset')"), True),
        (out_of_backward("torch.distributed.DistBackendError('NCCL communicator was aborted')"), True),
        (lambda: _RefusesBackward.apply(torch.ones(2, requires_grad=True)).sum().backward(), False),
        (lambda: torch.nn.Linear(2, 2)(torch.ones(3)), False),
        (lambda: {}["planted"], False),
    ],
)
def test_an_error_of_the_users_own_did_not_leave_a_collective(fails: Callable[[], object], *, left: bool) -> None:
    with pytest.raises((RuntimeError, KeyError)) as raised:
        fails()
    assert left_collective(raised.value) is left


@pytest.mark.parametrize("entry", ["fit", "validate", "test", "predict"])
def test_the_script_s_call_of_a_stage_is_no_place_in_a_step(blocked: Start, tmp_path: Path, entry: str) -> None:
    script = program(tmp_path, "train.py", "main")
    stage = program(tmp_path, "site-packages/lightning/pytorch/trainer/trainer.py", entry)
    hook = program(tmp_path, "model.py", "training_step")
    save = program(tmp_path, "site-packages/lightning/pytorch/trainer/trainer.py", "save_checkpoint")
    outside = blocked(lambda wait: script(lambda: stage(wait)))
    inside = blocked(lambda wait: script(lambda: stage(lambda: hook(lambda: save(wait)))))
    assert looks(outside, user_code(tmp_path)) == {}
    assert looks(inside, user_code(tmp_path)) == {3: {"model.py:2 training_step": 1}}


@pytest.mark.parametrize(
    ("filename", "shown"),
    [
        ("<frozen importlib._bootstrap>", None),
        ("<string>", None),
        ("<eval_with_key>.3", None),
        ("<ipython-input-3-0123>", "<ipython-input-3-0123>:1 f"),
        ("<stdin>", "<stdin>:1 f"),
        ("/project/a.py", "a.py:1 f"),
        ("/project/../library/a.py", None),
        ("sub/a.py", "sub/a.py:1 f"),
    ],
)
def test_code_without_a_file_is_the_user_s_only_if_typed(filename: str, shown: str | None) -> None:
    frame = frame_of_code_in(filename)
    code = UserCode(cwd="/project", library_roots=["/library", str(Path(threading.__file__).parent)])
    assert code.site_of(frame) == shown


def test_this_interpreter_s_libraries_and_this_package_are_not_the_user_s(tmp_path: Path) -> None:
    code = UserCode.of_this_process()
    for owner in (json.__file__, pytest.__file__, sys.modules[UserCode.__module__].__file__):
        assert code.site_of(frame_of_code_in(str(owner))) is None
    assert code.site_of(frame_of_code_in(str(tmp_path / "train.py"))) is not None


def test_looks_are_counted_per_slot(blocked: Start, tmp_path: Path) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    slots = iter([1, 1, 2, 2, 1, 1])  # each look asks before and after
    sampler = CallSiteSampler(thread, lambda: next(slots), user_code=user_code(tmp_path))
    for second in range(3):
        sampler.sample(second * SECOND)
    (record,) = sampler.close()
    assert record.counts == {1: {"train.py:2 training_step": 2}, 2: {"train.py:2 training_step": 1}}
    assert record.looks == {1: 2, 2: 1}
    assert record.in_collectives == {}


def test_a_look_during_which_the_slot_changed_is_dropped(blocked: Start, tmp_path: Path) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    slots = iter([1, 2])
    sampler = CallSiteSampler(thread, lambda: next(slots), user_code=user_code(tmp_path))
    sampler.sample(0)
    assert list(sampler.close()) == []


def test_outside_of_all_slots_nothing_is_counted(blocked: Start, tmp_path: Path) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    assert looks(thread, user_code(tmp_path), slot=-1) == {}


def test_a_thread_that_has_ended_is_no_error(tmp_path: Path) -> None:
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join(PATIENCE_S)
    sampler = CallSiteSampler(-1, lambda: 1, user_code=user_code(tmp_path))
    assert list(sampler.sample(0)) == []
    assert list(sampler.close()) == []


def test_records_hold_the_looks_since_the_one_before_and_sum_to_all(blocked: Start, tmp_path: Path) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    sampler = CallSiteSampler(thread, lambda: 1, user_code=user_code(tmp_path))
    sampler.open()
    records: list[CallSites] = []
    for at in (*range(20), *range(20, 500, 2)):  # twentieths of a second, as they come
        records += sampler.sample(at * SECOND // 20)
    records += sampler.close()
    assert len(records) == 3
    # each stands for a tenth of a second, in the first one, too
    assert sum(record.counts[1]["train.py:2 training_step"] for record in records) == 250
    asked = [record.lock.get(1, (0, 0))[0] for record in records]
    # every other time from 10 s on; fewer where this machine gave us no CPU
    assert 100 < sum(asked) <= 20 + 90 + 150 // 2
    assert not any(
        record.looks or record.lock for record in sampler.close()
    )  # CPU time of the test's own thread may be


@pytest.mark.parametrize(("on_look", "expected"), [(None, [1, 2, 2, 4, 4, 8, 8]), (lambda *_: None, [1] * 7)])
def test_later_looks_are_rarer_and_say_for_how_many_they_stand_but_not_if_others_count_them(
    blocked: Start, tmp_path: Path, on_look: Callable[..., object] | None, expected: list[int]
) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    sampler = CallSiteSampler(thread, lambda: 1, 0.1, user_code=user_code(tmp_path), on_look=on_look)
    sampler.open()
    weights, intervals = [], []
    for second in (0, 10, 20, 30, 119, 130, 140, 150):
        weights += [record.weight for record in sampler.sample(second * SECOND)]
        intervals.append(sampler.interval_s)
    sampler.close()
    assert weights == expected
    # of 0.05 s in the first second, then 0.1; the interval of a call was drawn before its record was handed over
    of_weights = [interval / (0.1 * weight) for interval, weight in zip(intervals[1:], [*weights, 8], strict=False)]
    assert all(0.5 <= ratio <= 1.5 for ratio in of_weights)


@pytest.mark.parametrize(("begin_ns", "mean_s"), [(0, 0.05), (SECOND, 0.1)])
def test_intervals_vary_around_the_mean_and_leave_the_user_s_generator_alone(
    blocked: Start, tmp_path: Path, begin_ns: int, mean_s: float
) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    sampler = CallSiteSampler(thread, lambda: 1, 0.1, user_code=user_code(tmp_path))
    before = random.getstate()
    intervals: list[float] = []
    sampler.sample(0)
    for _ in range(100):  # drawn from a seed of its own, so that they are the same ones each time
        sampler.sample(begin_ns)
        intervals.append(sampler.interval_s)
    assert random.getstate() == before
    assert min(intervals) >= mean_s / 2
    assert max(intervals) <= mean_s * 3 / 2
    assert sum(intervals) / len(intervals) == pytest.approx(mean_s, rel=0.05)
    assert len(set(intervals)) > 90


def test_a_look_keeps_nothing_of_the_step_alive(tmp_path: Path) -> None:
    class Tensor:
        pass

    seen: list[weakref.ref[Tensor]] = []

    def step(wait: Callable[[], None]) -> None:
        tensor = Tensor()
        seen.append(weakref.ref(tensor))
        wait()

    training = Blocked(step)
    sampler = CallSiteSampler(training.thread.ident, lambda: 1, user_code=UserCode(cwd="/", library_roots=[]))
    gc.disable()
    try:
        sampler.sample(0)
        assert seen[0]() is not None
        training.end()
        assert seen[0]() is None
    finally:
        gc.enable()


def test_beside_a_working_thread_its_line_is_seen(tmp_path: Path) -> None:
    source = "def training_step(done):\n    while not done():\n        sum(range(1000))\n"
    path = tmp_path / "train.py"
    path.write_text(source)
    names: dict[str, Callable[[Callable[[], bool]], None]] = {}
    exec(compile(source, str(path), "exec"), names)
    readings: list[Reading] = []
    slot_was_asked = 0

    def current_slot() -> int:
        nonlocal slot_was_asked
        slot_was_asked += 1
        return 5

    training = threading.Thread(target=names["training_step"], args=(lambda: slot_was_asked >= 40,))
    training.start()
    sampler = CallSiteSampler(training.ident, current_slot, 0.001, user_code=user_code(tmp_path))
    recorder = Recorder([sampler], readings.append)
    recorder.start()
    training.join(PATIENCE_S)
    recorder.stop(PATIENCE_S)
    (record,) = readings
    assert isinstance(record, CallSites)
    assert record.counts.keys() == {5}
    assert record.counts[5].keys() <= {"train.py:2 training_step", "train.py:3 training_step"}
    assert sum(record.counts[5].values()) >= 10
    assert not [thread for thread in threading.enumerate() if thread.name == "gpuprof-call_sites"]


def looked_at(source: str, tmp_path: Path, looks: int) -> CallSiteSampler:
    """A sampler after so many looks at a ``training_step`` that runs until it is told to end."""
    path = tmp_path / "train.py"
    path.write_text(source)
    names: dict[str, Callable[[Callable[[], bool]], None]] = {}
    exec(compile(source, str(path), "exec"), names)
    over = threading.Event()
    training = threading.Thread(target=names["training_step"], args=(over.is_set,))
    training.start()
    sampler = CallSiteSampler(training.ident, lambda: 5, 0.01, user_code=user_code(tmp_path))
    sampler.open()
    for t_s in [0] + [2] * looks:  # in the first second it looks less often than it asks
        sampler.sample(t_s * SECOND)
    over.set()
    training.join(PATIENCE_S)
    return sampler


def test_python_of_longer_than_a_time_slice_is_seen_in_its_own_line_and_not_in_the_one_after_it(tmp_path: Path) -> None:
    """A machine with nothing else to do shows it: there the main thread has the interpreter back at once."""
    source = (
        "import time\n"
        "def training_step(done):\n"
        "    while not done():\n"
        "        end = time.thread_time() + 0.015\n"
        "        while time.thread_time() < end: sum(range(200))\n"
        "        time.sleep(0.001)\n"
    )
    sampler = looked_at(source, tmp_path, 60)
    counts = Counter(
        {place.split()[0]: looks for record in sampler.close() for place, looks in record.counts[5].items()}
    )
    assert counts["train.py:5"] >= 5


def test_python_that_is_over_before_a_time_slice_ends_is_seen_in_its_own_line(tmp_path: Path) -> None:
    source = (
        "import time\n"
        "def burn(seconds):\n"
        "    end = time.thread_time() + seconds\n"
        "    while time.thread_time() < end: sum(range(200))\n"
        "def training_step(done):\n"
        "    while not done():\n"
        "        burn(0.003)\n"
        "        burn(0.001)\n"
        "        time.sleep(0.001)\n"
    )
    sampler = looked_at(source, tmp_path, 100)
    (record,) = sampler.close()
    first = sum(looks for stack, looks in record.counts[5].items() if "train.py:7 training_step" in stack)
    assert first >= 15  # of 60 expected; with slices of 5 ms it is 1 or none


def looked_while_short(sampler: CallSiteSampler, act: Callable[[float], T]) -> T:
    """Look until another thread came to act while the interpreter's time slice was short, and what it returned."""
    usual_s, over = sys.getswitchinterval(), threading.Event()

    def act_in_time() -> T | None:
        while not over.wait(0.0002):
            if (short_s := sys.getswitchinterval()) < usual_s:
                return act(short_s)
        return None

    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act_in_time)
        try:
            for _ in range(100):
                sampler.sample(2 * SECOND)
                if acting.done():
                    break
        finally:
            over.set()
        found = acting.result()
    assert found is not None
    return found


def test_the_time_slice_of_the_interpreter_is_short_only_until_a_look(blocked: Start, tmp_path: Path) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    usual_s, seen = sys.getswitchinterval(), []

    def current_slot() -> int:
        seen.append(sys.getswitchinterval())
        return 1

    sampler = CallSiteSampler(thread, current_slot, user_code=user_code(tmp_path))
    assert looked_while_short(sampler, lambda short_s: short_s) == pytest.approx(51e-6)
    assert set(seen) == {usual_s}
    assert sys.getswitchinterval() == usual_s
    try:
        looked_while_short(sampler, lambda _: sys.setswitchinterval(0.004) or True)
        assert sys.getswitchinterval() == pytest.approx(0.004)
    finally:
        sys.setswitchinterval(usual_s)


def test_a_time_slice_that_was_read_before_a_look_and_is_set_again_later_becomes_the_usual_one(
    blocked: Start, tmp_path: Path
) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    usual_s = sys.getswitchinterval()
    sampler = CallSiteSampler(thread, lambda: 1, user_code=user_code(tmp_path))
    sampler.open()

    def set_another(short_s: float) -> float:
        sys.setswitchinterval(0.004)
        return short_s

    try:
        for end in (lambda: sampler.sample(9 * SECOND), sampler.close):
            sys.setswitchinterval(looked_while_short(sampler, set_another))
            assert sys.getswitchinterval() < usual_s
            end()
            assert sys.getswitchinterval() == usual_s
    finally:
        sys.setswitchinterval(usual_s)


def test_samplers_of_two_runs_that_look_at_the_same_time_leave_the_usual_time_slice(
    blocked: Start, tmp_path: Path
) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    usual_s = sys.getswitchinterval()
    one, other = (CallSiteSampler(thread, lambda: 1, user_code=user_code(tmp_path)) for _ in range(2))
    with ThreadPoolExecutor(1) as pool:
        looked_while_short(one, lambda _: pool.submit(other.sample, 2 * SECOND))
    assert sys.getswitchinterval() == usual_s


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system without fork")
def test_a_process_forked_before_a_look_has_the_usual_time_slice(blocked: Start, tmp_path: Path) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    usual_s = sys.getswitchinterval()

    def code_of_fork(_: float) -> int:
        child = os.fork()
        if not child:
            os._exit(0 if sys.getswitchinterval() == usual_s else 1)
        return os.waitpid(child, 0)[1]

    sampler = CallSiteSampler(thread, lambda: 1, user_code=user_code(tmp_path))
    assert looked_while_short(sampler, code_of_fork) == 0


def test_what_is_written_in_a_line_is_noted_once_and_not_of_a_file_that_changed(blocked: Start, tmp_path: Path) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    sampler = CallSiteSampler(thread, lambda: 1, user_code=user_code(tmp_path))
    file, place = tmp_path / "train.py", "train.py:2 training_step"
    file.write_text("def training_step(wait):\n    return wait(), 'password=hunter2'  # hunter2\n")
    os.utime(file, (1, 1))
    sampler.sample(0)
    (record,) = sampler.close()
    assert record.code == {place: "return wait(), '***'"}
    sampler.sample(SECOND)
    (again,) = sampler.close()
    assert again.code == {}
    os.utime(file)
    assert sampler.user_code.code_at(place, since_s=1000.0) == ""


def test_the_user_s_modules_are_kept_once_and_not_of_a_short_run(blocked: Start, tmp_path: Path) -> None:
    thread = blocked(lambda wait: program(tmp_path, "train.py")(wait))
    now_s = [10.0]
    sampler = CallSiteSampler(thread, lambda: 1, user_code=user_code(tmp_path), now_s=lambda: now_s[0])
    sampler.sample(0)
    assert [record.sources for record in sampler.close()] == [{}]
    now_s[0] += 2.0
    sampler.sample(SECOND)
    (record,) = sampler.close()
    assert record.sources  # the modules of the tests
    sampler.sample(2 * SECOND)
    assert [record.sources for record in sampler.close()] == [{}]
