"""Real fits whose trace is still being written while training goes on, ends, forks, fails or profiles itself."""

import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from forked_scripts import ForkedScripts

from lightning_gpuprof.capture.background_stop import BackgroundStop

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BackgroundStop.for_current_torch() is None, reason=f"not tried with torch {torch.__version__} on {sys.platform}"
    ),
]

SCRIPT = """
    import sys, threading, time, warnings
    warnings.simplefilter("ignore")
    sys.path.insert(0, {here!r})
    from test_traces_written_beside import *
    from planted_runs import *
    from lightning_gpuprof import TraceConfig
    import patience
    patience.begin()
    folder = {folder!r}
    slow_down({seconds})
"""


def slow_down(seconds: float) -> None:
    """From now on every trace takes so much longer to write."""
    save = BackgroundStop._save_to

    def slowly(stop: Any, result: Any, path: Path) -> None:
        time.sleep(seconds)
        save(stop, result, path)

    BackgroundStop._save_to = slowly  # type: ignore[method-assign]


Run = Callable[..., str]
"""A script's body, and how much longer each trace takes to write → what the script printed."""


@pytest.fixture
def run(forked_scripts: ForkedScripts, tmp_path: Path) -> Run:
    """In a process of its own: what goes wrong here ends the process."""

    def run(body: str, seconds: float = 0.5) -> str:
        head = SCRIPT.format(here=str(Path(__file__).parent), folder=str(tmp_path), seconds=seconds)
        return forked_scripts.run(tmp_path, textwrap.dedent(head) + textwrap.dedent(body))

    return run


def traces(folder: Path) -> int:
    """How many there are, compressed or not yet: that is done on CPUs that nobody else wants."""
    return len({path.name.removesuffix(".gz") for path in folder.rglob("*.pt.trace.json*")})


def test_training_does_not_wait_for_the_trace(run: Run, tmp_path: Path) -> None:
    out = run(
        """
        at_last_step, held = threading.Event(), []
        save = BackgroundStop._save_to

        def saving(stop, result, path):
            held.append(at_last_step.wait(60))
            save(stop, result, path)

        class Tells(pl.Callback):
            def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
                if batch_idx == 29:
                    at_last_step.set()

        BackgroundStop._save_to = saving
        profiler = quiet_profiler(windows=[(5, 6)])
        trainer_for(folder, [profiler, Tells()]).fit(Planted(), loader(60))
        print("HELD", held, profiler.report.steps.count, [w.problem for w in profiler.report.windows])
        """,
        seconds=0,
    )
    assert out.split() == ["HELD", "[True]", "30", "['']"]
    assert traces(tmp_path) == 1


def test_the_code_s_own_profiler_waits_for_the_trace_and_sees_its_steps(run: Run, tmp_path: Path) -> None:
    out = run(
        """
        model = ProfilesItself()
        model.at_batch = 9
        profiler = quiet_profiler(windows=[(5, 6)])
        trainer_for(folder, [profiler]).fit(model, loader(60))
        print("EVENTS", model.events, profiler.report.steps.count, [w.problem for w in profiler.report.windows])
        """,
    )
    _, events, steps, problems = out.split()
    assert int(events) > 10
    assert (steps, problems) == ("30", "['']")
    assert traces(tmp_path) == 1


def test_a_profiler_in_another_thread_waits_for_the_trace(run: Run, tmp_path: Path) -> None:
    out = run(
        """
        seen = []

        def profile():
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
                torch.ones(3).sum()
            seen.append(len(own.events()))

        class Elsewhere(Planted):
            def training_step(self, batch, batch_idx):
                if batch_idx == 9:
                    self.thread = threading.Thread(target=profile)
                    self.thread.start()
                return super().training_step(batch, batch_idx)

        model = Elsewhere()
        profiler = quiet_profiler(windows=[(5, 6)])
        trainer_for(folder, [profiler]).fit(model, loader(60))
        model.thread.join()
        print("EVENTS", min(seen), [w.problem for w in profiler.report.windows])
        """,
    )
    _, events, problems = out.split()
    assert int(events) > 1
    assert problems == "['']"
    assert traces(tmp_path) == 1


def test_workers_are_forked_while_a_trace_is_written(run: Run, tmp_path: Path) -> None:
    """Collecting and writing some 60,000 events, and a little longer, takes more than the next epoch takes to begin."""
    out = run(
        """
        from torch.utils.data import DataLoader

        writing = []

        class Wide(Planted):
            def training_step(self, batch, batch_idx):
                loss = super().training_step(batch, batch_idx)
                if self.current_epoch % 2 == 0 and batch_idx == 7:
                    for _ in range(10_000):
                        batch = batch + 1
                return loss

            def on_train_epoch_start(self):
                writing.append(any(t.name == "gpuprof-trace-writer" for t in threading.enumerate()))

        profiler = quiet_profiler(windows=[7, 23, 39], trace=TraceConfig(active=1))
        batches = DataLoader(Sleepy(16), batch_size=2, num_workers=2)
        trainer_for(folder, [profiler], max_epochs=6).fit(Wide(), batches)
        print("STEPS", profiler.report.steps.count, sum(writing), [w.problem for w in profiler.report.windows])
        """,
        seconds=0.3,
    )
    _, steps, writing, problems = out.split(maxsplit=3)
    assert int(steps) == 48
    assert int(writing) >= 1
    assert problems == "['', '', '']\n"
    assert traces(tmp_path) == 3


def test_ctrl_c_while_the_end_waits_for_the_trace_loses_nothing(run: Run, tmp_path: Path) -> None:
    out = run(
        """
        import os, signal

        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

        def press():
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGINT)

        class Impatient(pl.Callback):
            def on_train_epoch_end(self, trainer, module):
                threading.Thread(target=press).start()

        profiler = quiet_profiler(windows=[(5, 6)])
        try:
            trainer_for(folder, [profiler, Impatient()], max_epochs=1).fit(Planted(), loader(20))
        except BaseException as error:
            print("RAISED", type(error).__name__)
        print([w.problem for w in profiler.report.windows], [t.name for t in threading.enumerate()])
        """,
        seconds=3.0,
    )
    raised, ended = out.strip().splitlines()
    assert raised in ("RAISED KeyboardInterrupt", "RAISED SystemExit")
    assert ended == "[''] ['MainThread']"
    assert traces(tmp_path) == 1


@pytest.mark.parametrize("error", ["RuntimeError", "KeyboardInterrupt", "SystemExit"])
def test_a_run_that_fails_meanwhile_fails_as_it_would_and_keeps_the_trace(run: Run, tmp_path: Path, error: str) -> None:
    out = run(
        f"""
        class Failing(Planted):
            def training_step(self, batch, batch_idx):
                if batch_idx == 8:
                    raise {error}("on purpose")
                return super().training_step(batch, batch_idx)

        profiler = quiet_profiler(windows=[(5, 6)])
        try:
            trainer_for(folder, [profiler]).fit(Failing(), loader(60))
        except BaseException as failure:
            print("RAISED", type(failure).__name__, profiler.report.steps.count)
        """,
    )
    assert out.split()[0::2] == ["RAISED", "8"]
    assert traces(tmp_path) == 1


def test_windows_that_follow_each_other_at_once_are_all_recorded(run: Run, tmp_path: Path) -> None:
    out = run(
        """
        profiler = quiet_profiler(windows=[(4, 4), (7, 7), (10, 10)], trace=TraceConfig(warmup=1))
        trainer_for(folder, [profiler]).fit(Planted(), loader(60))
        print([(w.start_step, w.problem) for w in profiler.report.windows])
        """,
        seconds=0.2,
    )
    assert out.strip() == "[(4, ''), (7, ''), (10, '')]"
    assert traces(tmp_path) == 3
