"""Beside other profilers, the user's own and a second of ours: theirs go first, ours measures once."""

import textwrap
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from forked_scripts import ForkedScripts
from lightning.pytorch.profilers import PassThroughProfiler, PyTorchProfiler, SimpleProfiler
from planted_runs import Planted, fit, loader, quiet_profiler, trainer_for

pytestmark = pytest.mark.filterwarnings("ignore:You defined a `validation_step`")


def test_a_window_beside_the_users_pytorch_profiler_is_not_opened(tmp_path: Path) -> None:
    own = PyTorchProfiler(dirpath=str(tmp_path / "own"), filename="own")
    profiler = quiet_profiler(windows=(3, 5))
    with pytest.warns(RuntimeWarning, match="PyTorchProfiler is in use"):
        report = fit(tmp_path, loader=loader(), profiler=profiler, before=lambda t: setattr(t, "profiler", own))
    assert report.steps.count == 20
    assert not report.windows
    assert any("PyTorchProfiler" in caveat for caveat in report.validity.caveats)
    assert list((tmp_path / "own").iterdir())


@pytest.mark.slow
def test_code_that_starts_the_torch_profiler_gets_it_whatever_our_window_does(
    forked_scripts: ForkedScripts, tmp_path: Path
) -> None:
    """In a process of its own: two sessions at once have crashed it."""
    script = textwrap.dedent(
        f"""
        import warnings
        warnings.simplefilter("ignore")
        from planted_runs import *
        import patience
        patience.begin()
        for at_batch in (5, 9, 11, 14):  # before the window, in its warm-up, in it, after it
            model = ProfilesItself()
            model.at_batch = at_batch
            profiler = quiet_profiler(windows=[(10, 12), 18])
            trainer_for({str(tmp_path)!r} + f"/{{at_batch}}", [profiler]).fit(model, loader(60))
            assert any("starts torch.profiler itself" in said for said in (
                *profiler.report.validity.caveats, *(w.problem for w in profiler.report.windows))), at_batch
            print("EVENTS", model.events, profiler.report.steps.count)
        """
    )
    printed = forked_scripts.run(tmp_path, script)
    found = [line.split()[1:] for line in printed.splitlines() if line.startswith("EVENTS")]
    assert [int(steps) for _, steps in found] == [30] * 4
    assert all(int(events) > 10 for events, _ in found)


def test_the_users_own_profiler_sees_what_it_sees_without_us(tmp_path: Path) -> None:
    seen = []
    for callbacks in ([], [quiet_profiler()]):
        own = SimpleProfiler()
        trainer = trainer_for(tmp_path, list(callbacks), logger=False)
        trainer.profiler = own  # type: ignore[attr-defined]
        trainer.fit(Planted(), loader())
        seen.append({name: len(times) for name, times in own.recorded_durations.items() if "GpuProfiler" not in name})
    assert seen[0] == seen[1]


class LooksAtProfiler(pl.Callback):
    """Asks what user code may ask."""

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        self.is_pass_through = isinstance(trainer.profiler, PassThroughProfiler)
        self.local_rank = trainer.profiler.local_rank
        with trainer.profiler.profile("my region"):
            pass


def test_user_code_that_uses_the_profiler_goes_on_working(tmp_path: Path) -> None:
    callback = LooksAtProfiler()
    fit(tmp_path, callbacks=[callback])
    assert callback.is_pass_through
    assert callback.local_rank == 0


class Labelled(SimpleProfiler):
    """Takes more than Lightning's, which only the user's own code knows."""

    def profile(self, action_name: str, label: str = "") -> Any:
        return super().profile(action_name + label)


class UsesTheProfilerInEveryWay(Planted):
    """As code may that was written for Lightning's profilers."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        profiler = self.trainer.profiler
        profiler.filename = "mine"
        assert self.trainer.fit_loop.run.__name__ == "run"
        assert self.trainer.fit_loop.epoch_loop.advance.__self__ is self.trainer.fit_loop.epoch_loop
        options = {"label": "mine"} if isinstance(profiler, Labelled) else {}
        with profiler.profile(action_name="named", **options) as name:
            assert name == "named" + options.get("label", "")
            step = profiler.profile("decorated")(super().training_step)
        return step(batch, batch_idx)


@pytest.mark.parametrize("own", [PassThroughProfiler, SimpleProfiler, Labelled])
def test_code_may_use_the_profiler_in_every_way_and_set_its_attributes(tmp_path: Path, own: type[Any]) -> None:
    theirs = own()
    before = lambda trainer: setattr(trainer, "profiler", theirs)  # noqa: E731
    report = fit(tmp_path, model=UsesTheProfilerInEveryWay(), loader=loader(), before=before)
    assert report.steps.count == 20
    assert theirs.filename == "mine"
    if own is not PassThroughProfiler:
        assert len(theirs.recorded_durations["decorated"]) == 20
