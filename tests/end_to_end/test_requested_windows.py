"""Windows that real fits are asked for: by a touched file, ``gpuprof trigger`` or a signal, and on which ranks."""

import os
import signal
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from planted_runs import Failing, Planted, fit, quiet_profiler, single_rows, trainer_for

from lightning_gpuprof import TraceConfig
from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.cli.main import main
from lightning_gpuprof.pipeline import load_report

WAITS = """
    import os, signal
    from pathlib import Path
    import lightning.pytorch as pl
    from torch.utils.data import DataLoader
    from planted_runs import Planted, Sleepy, quiet_profiler, single_rows, trainer_for
    import patience

    patience.begin()

    class Waits(pl.Callback):
        \"\"\"Says when training goes on, and goes on until a window was recorded.\"\"\"

        def on_train_batch_end(self, trainer, *args):
            if trainer.global_step == 5:
                print("RUNNING", os.getpid(), flush=True)
            seen = list(Path({folder!r}).rglob("*.plain.json")) + list(Path({folder!r}).rglob("*.trace.json.gz"))
            trainer.should_stop = bool(seen) or trainer.global_step > 4000

    if __name__ == "__main__":
        profiler = quiet_profiler()
        trainer = trainer_for({folder!r}, [profiler, Waits()], max_epochs=-1, {trainer})
        trainer.fit(Planted({{"training_step": 0.03}}), {loaders})
        print("REASONS", [w.reason for w in profiler.report.windows], [w.problem for w in profiler.report.windows])
        print("HANDLER", signal.getsignal(signal.SIGUSR2))
"""


def start(
    tmp_path: Path, *, script: str = WAITS, trainer: str = "", loaders: str = "single_rows(5000)"
) -> subprocess.Popen[str]:
    """A fit in a process group of its own."""
    file = tmp_path / "script.py"
    file.write_text(textwrap.dedent(script.format(folder=str(tmp_path), trainer=trainer, loaders=loaders)))
    return subprocess.Popen(
        [sys.executable, str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until_running(process: subprocess.Popen[str]) -> int:
    """Wait until it trains; gives its process id."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("RUNNING"):
            return int(line.split()[1])
    raise AssertionError(process.stderr.read() if process.stderr else "")


def ended(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-3000:]
    return out


class Triggers(pl.Callback):
    """Runs ``gpuprof trigger`` while training goes on, and goes on until a window was recorded."""

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        folder = Path(trainer.default_root_dir)
        if trainer.global_step == 5:
            assert main(["trigger", str(folder)]) == 0
        trainer.should_stop = bool([*folder.rglob("*.plain.json"), *folder.rglob("*.trace.json.gz")])


def test_gpuprof_trigger_opens_a_window_in_a_run_that_goes_on(tmp_path: Path) -> None:
    report = fit(tmp_path, Planted({"training_step": 0.03}), single_rows(5000), callbacks=[Triggers()], max_epochs=-1)
    assert [(w.reason, w.problem) for w in report.windows] == [("requested by file", "")]
    assert main(["trigger", str(tmp_path)]) == 2  # it has ended
    assert len(list(tmp_path.rglob("rank0.*.pt.trace.json.gz"))) == 1


@pytest.mark.slow
def test_a_signal_to_the_whole_group_opens_a_window_and_spares_the_workers(tmp_path: Path) -> None:
    """Workers of both loaders, also those that the sanity check leaves running."""
    workers = "DataLoader(Sleepy(5000), num_workers=1, persistent_workers=True)"
    process = start(
        tmp_path,
        trainer="num_sanity_val_steps=1, limit_val_batches=1, reload_dataloaders_every_n_epochs=0",
        loaders=f"{workers}, {workers}",
    )
    until_running(process)
    os.killpg(process.pid, signal.SIGUSR2)
    out = ended(process)
    assert "REASONS ['requested by SIGUSR2'] ['']" in out
    assert f"HANDLER {signal.SIG_DFL}" in out


@pytest.fixture
def own_handler() -> Iterator[list[int]]:
    """A handler as a training script may have one."""
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR2, lambda number, frame: heard.append(number))
    yield heard
    signal.signal(signal.SIGUSR2, before)


class Signals(pl.Callback):
    """Sends the signal to its own process in a step, and looks at the handler."""

    seen: object = None

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step == 5:
            self.seen = signal.getsignal(signal.SIGUSR2)
            os.kill(os.getpid(), signal.SIGUSR2)


def test_a_handler_of_the_users_own_is_untouched(tmp_path: Path, own_handler: list[int]) -> None:
    own = signal.getsignal(signal.SIGUSR2)
    callback = Signals()
    profiler = quiet_profiler()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        report = fit(tmp_path, loader=single_rows(), profiler=profiler, callbacks=[callback])
    assert callback.seen is own
    assert signal.getsignal(signal.SIGUSR2) is own
    assert own_handler == [signal.SIGUSR2]
    assert report.windows == ()
    assert profiler.folder is not None
    told = [n.message for n in read_journal(profiler.folder / "rank0.jsonl").notices if "SIGUSR2" in n.message]
    assert len(told) == 1


def test_the_signal_is_answered_at_once_and_given_back(tmp_path: Path) -> None:
    callback = Signals()
    report = fit(tmp_path, loader=single_rows(), callbacks=[callback])
    assert callable(callback.seen)
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    assert [(w.start_step, w.stop_step, w.reason, w.problem) for w in report.windows] == [
        (7, 9, "requested by SIGUSR2", "")
    ]


class SignalsLate(pl.Callback):
    """Sends the signal where training is over already and others still work."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def send(self, hook: str) -> None:
        if signal.getsignal(signal.SIGUSR2) is not signal.SIG_DFL:  # which would be the end of the tests
            os.kill(os.getpid(), signal.SIGUSR2)
            self.sent.append(hook)

    def on_train_end(self, *args: Any) -> None:
        self.send("on_train_end")

    def on_fit_end(self, *args: Any) -> None:
        self.send("on_fit_end")

    def teardown(self, *args: Any, **kwargs: Any) -> None:
        self.send("teardown")


def test_a_signal_after_the_last_step_does_not_end_the_process(tmp_path: Path) -> None:
    late = SignalsLate()
    report = fit(tmp_path, loader=single_rows(4), callbacks=[late])
    assert late.sent == ["on_train_end", "on_fit_end", "teardown"]
    assert report.windows == ()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_the_signal_is_given_back_when_training_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="planted"):
        trainer_for(tmp_path, [quiet_profiler()]).fit(Failing(3, ValueError("planted")), single_rows())
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_lightning_finds_its_signals_as_without_us(tmp_path: Path) -> None:
    """A learning rate finder runs the training loop before Lightning sets handlers; it leaves out what is taken."""

    class Looks(pl.Callback):
        seen: object = None

        def on_train_batch_start(self, *args: Any) -> None:
            self.seen = self.seen or signal.getsignal(signal.SIGUSR2)

    looks = Looks()
    finder = pl.callbacks.LearningRateFinder(num_training_steps=12)
    profiler = quiet_profiler()
    before: list[object] = []

    def look_at_registration(trainer: Any) -> None:
        register = trainer._signal_connector.register_signal_handlers
        trainer._signal_connector.register_signal_handlers = lambda: (
            before.append(signal.getsignal(signal.SIGUSR2)),
            register(),
        )

    fit(tmp_path, Planted(), single_rows(), profiler=profiler, callbacks=[finder, looks], before=look_at_registration)
    assert before == [signal.SIG_DFL]
    assert callable(looks.seen)
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_without_tracing_no_signal_is_touched(tmp_path: Path, own_handler: list[int]) -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    callback = Signals()
    report = fit(tmp_path, loader=single_rows(), profiler=quiet_profiler(trace=False), callbacks=[callback])
    assert callback.seen is signal.SIG_IGN
    assert (report.windows, own_handler) == ((), [])


def test_a_rank_outside_of_the_run_is_told(tmp_path: Path) -> None:
    profiler = quiet_profiler(windows=[(5, 6)], trace=TraceConfig(ranks=[0, 3]))
    with pytest.warns(RuntimeWarning, match=r"trace.ranks: rank 3 is not in this run, which has rank 0 only"):
        report = fit(tmp_path, loader=single_rows(), profiler=profiler)
    assert [w.problem for w in report.windows] == [""]


def test_a_request_beside_another_profiler_is_told_why_not(tmp_path: Path) -> None:
    profiler = quiet_profiler()
    own = pl.profilers.PyTorchProfiler(dirpath=str(tmp_path / "own"), filename="own")
    with pytest.warns(RuntimeWarning, match="requested by SIGUSR2, but the trainer's PyTorchProfiler is in use"):
        report = fit(
            tmp_path,
            Planted({"training_step": 0.03}),
            single_rows(),
            profiler=profiler,
            callbacks=[Signals()],
            before=lambda t: setattr(t, "profiler", own),
        )
    assert report.windows == ()


def test_a_killed_runs_trigger_file_does_not_trigger_the_next(tmp_path: Path) -> None:
    (tmp_path / "gpuprof").mkdir()
    (tmp_path / "gpuprof" / "trigger").touch()
    report = fit(tmp_path, Planted({"training_step": 0.03}), single_rows())
    assert report.windows == ()
    assert load_report(tmp_path / "gpuprof").windows == ()


RANKS = """
    import os
    import lightning.pytorch as pl
    from lightning_gpuprof import TraceConfig
    from lightning_gpuprof.capture import triggers
    from planted_runs import Planted, quiet_profiler, single_rows, trainer_for

    triggers.LEAD_S = 5.0

    class Says(pl.Callback):
        def on_train_batch_end(self, trainer, *args):
            if trainer.global_step == 20 and trainer.is_global_zero:
                print("RUNNING", os.getpid(), flush=True)

    if __name__ == "__main__":
        profiler = quiet_profiler(trace=TraceConfig(ranks=[0, 1]))
        trainer = trainer_for({folder!r}, [profiler, Says()], max_steps=700, strategy="ddp", devices=2, max_epochs=-1)
        trainer.fit(Planted({{"training_step": 0.02}}), single_rows())
"""


@pytest.mark.slow
def test_all_traced_ranks_answer_one_touch_at_the_same_step(tmp_path: Path) -> None:
    process = start(tmp_path, script=RANKS)
    until_running(process)
    assert main(["trigger", str(tmp_path)]) == 0
    ended(process)
    starts: set[int] = set()
    for rank in (0, 1):
        windows = read_journal(tmp_path / "gpuprof" / f"rank{rank}.jsonl").windows
        starts.add(windows[0].start_step)
        assert [w.reason for w in windows] == ["requested by file"]
        assert windows[0].problem in ("", "closed: the epoch ended")  # where the touch falls is a matter of chance
        assert windows[0].file.startswith(f"rank{rank}.")
    assert len(starts) == 1
