"""The fit that is tried: its loop gets its batches from here, and between two batches the arm is changed."""

from __future__ import annotations

import functools
import math
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import torch

from lightning_gpuprof.errors import TrialError, TrialOver
from lightning_gpuprof.model.trial import BASE, Arm, Block, Event, Over, Plan, Skipped, Started, Trying
from lightning_gpuprof.trial import room
from lightning_gpuprof.trial.at_start import needs_process, runtime_part
from lightning_gpuprof.trial.harmless import LeftOut, do_nothing, keep_learning_rates
from lightning_gpuprof.trial.schedule import BLOCK_STEPS, Schedule
from lightning_gpuprof.trial.sources import (
    LoaderSource,
    ReplaySource,
    Source,
    changed,
    has_already,
    mean_samples,
    worker_count,
)
from lightning_gpuprof.trial.switches import Switched, switched

WARM_UP_STEPS = 5
WARM_UP_S = 1.0
MOST_WARM_UP_STEPS = 50
SETTLING_STEPS = 2
"""Steps after a change that are left out at least: what was begun with the arm before is in them."""
FIRST_SETTLING_STEPS = 4
"""The first time an arm runs: caches, cuDNN's choice, compilation."""
MOST_SETTLING_STEPS = 200
LONGEST_SETTLING_S = 1.0
"""Up to which a block is as long as what was left out before it."""
LONGEST_BLOCK = 2.5
"""Times what was wanted, at which the block of a slow arm ends."""
MOST_ANEW = 3
"""Times that a block in which torch compiled is measured again."""
_DEAD_WORKER = re.compile(r"DataLoader worker \(pid\D* (\d+)")


class Fetcher:
    """In the place of Lightning's data fetcher: the start of a step is when it is asked for a batch."""

    done = False
    length: int | None = None
    fetched = 0

    def __init__(self, trial: InterleavedTrial) -> None:
        self._trial = trial
        self._start_profiler = self._stop_profiler = do_nothing

    def __iter__(self) -> Fetcher:
        return self

    def __next__(self) -> tuple[Any, int, int]:
        batch = self._trial.next_batch()
        self.fetched += 1
        return batch

    def reset(self) -> None:
        """Lightning calls it at the end."""

    def teardown(self) -> None:
        """Likewise; workers of all arms end."""
        self._trial.close()


class InterleavedTrial:
    """Arms in turn, in blocks of steps.

    Args:
        trainer: In a fit, whose loaders are there.
        plan: What to try.
        write: Takes events; called on global rank 0 only.
    """

    def __init__(self, trainer: Any, plan: Plan, write: Callable[[Event], None]) -> None:
        self._trainer = trainer
        self._write = write if trainer.is_global_zero else do_nothing
        fetcher = trainer.fit_loop._data_fetcher
        if type(fetcher).__name__ == "_DataLoaderIterDataFetcher":
            raise TrialError("training_step takes the loader's iterator itself: its batches cannot be exchanged")
        self._combined = fetcher.combined_loader
        if trainer.fast_dev_run:
            self._combined.limits = None  # epochs of one batch are not what the user will train
        iterator, settings = fetcher.iterator, Switched()
        if plan.alone is not None:
            settings = switched(runtime_part(plan.alone), trainer)
        if settings.loader:
            original, iterator = self._combined, None
            self._combined = changed(original, settings.loader)
            original.reset()
        on_gpu = trainer.strategy.root_device.type != "cpu"
        self._schedule = Schedule(
            plan=plan,
            report=self._write,
            can_prefetch=bool(worker_count(self._combined)),
            can_pin=on_gpu and not has_already(self._combined, {"pin_memory": True}),
        )
        self._sources: dict[str, Source] = {BASE: LoaderSource(self._combined, iterator)}
        self._settings: dict[str, Switched] = {BASE: settings}
        self._first: tuple[Any, int, int] | None = None
        self._begin = self._start = self._ended = time.perf_counter()
        self._arm = Arm(name=BASE)
        self._undo = ExitStack()
        """Takes back what that arm has changed."""
        self._used: set[str] = set()
        self._step = 0
        self._left_out = 0
        self._to_measure = 0
        self._measured = -1
        """Steps of the block; -1: steps are left out."""
        self._compiled = self._measured_anew = 0
        self._step_s = self._worker_bytes = 0.0
        self._warm = False
        self._deciding = False
        """An error is ours, not the arm's."""

    def started(self, left_out: LeftOut) -> Started:
        """What is known when the first step begins, with what of the user's program was left out."""
        strategy = self._trainer.strategy
        device = strategy.root_device
        ranks = (getattr(strategy, "distributed_sampler_kwargs", None) or {}).get("num_replicas", 1)
        samples = mean_samples(self._combined)
        return Started(
            pid=os.getpid(),
            world_size=self._trainer.world_size,
            device=torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            left_out=left_out.others,
            loggers=left_out.loggers,
            samples_per_step=None if samples is None else samples * ranks,
            sources=_user_sources(Path.cwd()),
        )

    def run(self) -> None:
        """All blocks; ends with :class:`TrialOver`."""
        loop = self._trainer.fit_loop
        keep_learning_rates(self._trainer)
        loop.max_batches = math.inf
        loop._data_fetcher = Fetcher(self)
        loop.epoch_loop.advance = functools.partial(self._advance, loop.epoch_loop, loop.epoch_loop.advance)
        loop.epoch_loop.run(loop._data_fetcher)

    def close(self) -> None:
        """End the workers of all arms."""
        for source in self._sources.values():
            source.close()

    def next_batch(self) -> tuple[Any, int, int]:
        """A step begins: perhaps with another arm."""
        self._deciding = True
        self._begin_step()
        self._deciding = False
        batch = self._sources[self._arm.name].take()
        if self._first is None:
            self._first = batch
        return batch

    def _begin_step(self) -> None:
        if not self._warm:
            self._warm_up()
        elif self._measured < 0:
            self._settle()
        else:
            self._measured += 1
            if self._measured >= self._to_measure or self._is_long():
                self._end_block()
        self._step += 1

    def _advance(self, loop: Any, advance: Callable[[Any], None], fetcher: Fetcher) -> None:
        """All steps, in one call of Lightning's loop over them: no limit of the user's ends the trial."""
        while True:
            try:
                advance(fetcher)
                loop.on_advance_end(fetcher)
            except StopIteration:
                pass  # on_train_batch_start said that the epoch is over
            except Exception as error:
                self._end_arm(error)

    def _end_arm(self, error: Exception) -> None:
        """What an arm breaks ends that arm alone; any other error is raised again."""
        failed = self._failed(error)
        if failed is None or self._trainer.world_size > 1:
            raise error
        self._deciding = False
        self._skip(failed, _words(error), failed=True)
        source = self._sources.get(failed.name, self._sources[BASE])
        if source is not self._sources[BASE]:
            with suppress(Exception):  # torch says wherever the main thread is that a worker has died
                source.close()
        for optimizer in self._trainer.optimizers:
            optimizer.zero_grad()
        self._undo.close()
        self._switch()

    def _failed(self, error: Exception) -> Arm | None:
        """The arm whose error it is; None: the program's own, or ours."""
        if died := _DEAD_WORKER.search(str(error)):  # torch raises that wherever the main thread is
            for name, source in self._sources.items():
                if int(died[1]) in source.worker_pids():
                    return None if source is self._sources[BASE] else self._schedule.arms[name]
        return None if self._deciding or self._arm.name == BASE else self._arm

    def _warm_up(self) -> None:
        now = time.perf_counter()
        if self._step == WARM_UP_STEPS // 2:
            self._start = now
        steps = self._step - WARM_UP_STEPS // 2
        if self._step >= WARM_UP_STEPS and self._agreed(
            now - self._begin >= WARM_UP_S or self._step >= MOST_WARM_UP_STEPS
        ):
            self._synchronize()
            self._step_s = (time.perf_counter() - self._start) / steps
            self._warm = True
            for arm in [arm for arm in self._schedule.arms.values() if arm.name != BASE]:
                self._prepare(arm)
            self._begin = time.perf_counter()
            self._switch()

    def _settle(self) -> None:
        self._left_out += 1
        least = SETTLING_STEPS if self._arm.name in self._used else FIRST_SETTLING_STEPS
        if self._left_out < least or self._step % self._trainer.accumulate_grad_batches:
            return
        source = self._sources[self._arm.name]
        if self._trainer.world_size == 1 and self._left_out < MOST_SETTLING_STEPS and not source.is_steady():
            return
        self._synchronize()
        if self._arm.name in self._used:  # a change that takes long to settle has longer blocks
            unmeasured_s = min(LONGEST_SETTLING_S, time.perf_counter() - self._ended)
            self._to_measure = max(self._to_measure, self._whole_steps(unmeasured_s))
        self._used.add(self._arm.name)
        source.begin_block()
        self._compiled = _compiled()
        self._measured, self._start = 0, time.perf_counter()

    def _is_long(self) -> bool:
        """Whether a slow arm has had its time; several ranks count steps only, to be in the same one."""
        if self._trainer.world_size > 1 or self._measured < BLOCK_STEPS[0]:
            return False
        whole = math.lcm(self._trainer.accumulate_grad_batches, self._sources[self._arm.name].burst)
        return (
            self._measured % whole == 0
            and time.perf_counter() - self._start > LONGEST_BLOCK * self._to_measure * self._step_s
        )

    def _end_block(self) -> None:
        self._synchronize()
        if _compiled() != self._compiled and self._measured_anew < MOST_ANEW and self._trainer.world_size == 1:
            self._measured_anew += 1
            self._left_out, self._measured = 0, -1  # torch.compile met another shape: its work is no step
            return
        seconds = time.perf_counter() - self._start
        source = self._sources[self._arm.name]
        block = Block(
            arm=self._arm.name,
            round=self._schedule.round,
            steps=self._measured,
            seconds=seconds + source.spread_s(self._measured),
        )
        self._schedule.ended(block)
        self._write(block)
        if self._arm.name == BASE:
            self._step_s = seconds / self._measured
        if self._schedule.plan.loader:
            self._worker_bytes = max(self._worker_bytes, room.own_bytes(source.worker_pids()))
        source.rest()
        self._ended = time.perf_counter()
        self._undo.close()
        self._switch()

    def _switch(self) -> None:
        """The next arm that can be had begins."""
        while True:
            elapsed = time.perf_counter() - self._begin
            arm = self._agreed(self._schedule.next(elapsed))
            self._close_finished()
            if arm is None:
                self._write(Over(steps=self._step, seconds=elapsed))
                self.close()
                raise TrialOver(0)
            self._write(Trying(arm=arm.name, round=self._schedule.round, elapsed_s=elapsed))
            if not (self._prepare(arm) and self._has_room(arm)):
                continue
            try:
                self._switch_on(arm)
            except Exception as error:  # whatever a setting of the user's program does
                self._skip(arm, _words(error), failed=True)
                continue
            return

    def _close_finished(self) -> None:
        """Workers of arms that are decided hold memory that the others may need."""
        for name in self._sources.keys() - self._schedule.running:
            if self._sources[name] is not self._sources[BASE]:
                self._sources[name].close()

    def _prepare(self, arm: Arm) -> bool:
        """See how an arm is switched on; False: it cannot be."""
        if arm.name in self._settings:
            return True
        try:
            if needs_process(arm):
                raise TrialError("is read at the start: it needs a process of its own")
            settings = switched(arm, self._trainer)
            self._sources[arm.name] = self._source(arm, settings)
        except Exception as error:  # settings of the user's program can be of any kind
            self._skip(arm, _words(error))
            return False
        self._settings[arm.name] = settings
        return True

    def _has_room(self, arm: Arm) -> bool:
        """Whether a search finds CPUs and memory for the workers that an arm is about to start."""
        source = self._sources[arm.name]
        if not self._schedule.plan.loader or source is self._sources[BASE]:
            return True
        workers = source.unstarted_workers()
        ranks = max(1, self._trainer.world_size // self._trainer.num_nodes)
        why = ""
        try:
            room.check_cpus(workers, ranks=ranks)
            room.check_memory(workers * ranks, worker_bytes=self._worker_bytes)
        except TrialError as error:
            why = str(error)
        if why := self._agreed(why):
            self._skip(arm, why)
        return not why

    def _switch_on(self, arm: Arm) -> None:
        self._arm = arm
        try:
            for switch in self._settings[arm.name].switches:
                self._undo.callback(switch())
        except Exception:
            self._undo.close()
            raise
        self._left_out, self._measured, self._measured_anew = -1, -1, 0  # the step that begins is left out as well
        self._to_measure = self._whole_steps(self._schedule.block_s(self._step_s))

    def _whole_steps(self, seconds: float) -> int:
        """Steps of a block of so many seconds: as many logged ones in each, and whole turns of the arm's workers."""
        wanted: int = self._agreed(max(BLOCK_STEPS[0], math.ceil(seconds / max(self._step_s, 1e-6))))
        every, accumulated = self._trainer.log_every_n_steps, self._trainer.accumulate_grad_batches
        if every and wanted >= every / 2:
            wanted = math.ceil(wanted / every) * every
        whole = math.lcm(accumulated, self._sources[self._arm.name].burst)
        return math.ceil(wanted / whole) * whole

    def _source(self, arm: Arm, settings: Switched) -> Source:
        if arm.ceiling == "input":
            assert self._first is not None
            return ReplaySource(self._first)
        if settings.loader:
            if not settings.switches and has_already(self._combined, settings.loader):
                raise TrialError("it is set already")
            return LoaderSource(changed(self._combined, settings.loader))
        return self._sources[BASE]

    def _skip(self, arm: Arm, why: str, *, failed: bool = False) -> None:
        skipped = Skipped(arm=arm.name, why=why, failed=failed)
        self._schedule.skip(skipped)
        self._write(skipped)

    def _agreed(self, value: Any) -> Any:
        """What global rank 0 says, on all ranks."""
        return self._trainer.strategy.broadcast(value) if self._trainer.world_size > 1 else value

    def _synchronize(self) -> None:
        if self._trainer.strategy.root_device.type != "cpu":
            torch.cuda.synchronize(self._trainer.strategy.root_device)


def _user_sources(folder: Path) -> tuple[str, ...]:
    """Files of imported modules below a folder, without packages that are installed there."""
    files = {Path(path) for module in list(sys.modules.values()) if (path := getattr(module, "__file__", None))}
    own = (path.relative_to(folder) for path in files if path.suffix == ".py" and path.is_relative_to(folder))
    return tuple(sorted(str(path) for path in own if not {"site-packages", "lightning_gpuprof"} & set(path.parts)))


def _compiled() -> int:
    """Frames that torch.compile has taken up until now."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else dynamo.counters["frames"]["total"]


def _words(error: Exception) -> str:
    """In one line."""
    text = str(error).strip().partition("\n")[0]
    return text if isinstance(error, TrialError) else f"{type(error).__name__}: {text}"
