"""Counts the user's source lines per slot by sampling the main thread's stack from another thread.

With it, what the program's other Python threads do, and how often one of them would not let go of the interpreter.
"""

from __future__ import annotations

import functools
import itertools
import linecache
import os
import random
import re
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import KW_ONLY, dataclass
from pathlib import Path, PurePath
from types import CodeType, FrameType
from typing import Literal

from lightning_gpuprof.capture.fence import must_propagate
from lightning_gpuprof.capture.frames import current_frames
from lightning_gpuprof.capture.other_threads import OtherThreads
from lightning_gpuprof.capture.source_files import source_files
from lightning_gpuprof.capture.thread_state import KeptFile, ThreadSources, ThreadState, with_one_more
from lightning_gpuprof.model.journal import CALLS, CallSites
from lightning_gpuprof.model.phases import STAGES
from lightning_gpuprof.model.shown_code import shown_code

_MAX_CODE, _MAX_CODE_CHARACTERS = 30, 200
"""Lines of code in a record, and of each of them."""
_PUBLISH_EVERY_NS = 10_000_000_000
_EARLY_NS = 1_000_000_000
"""In the first second the interpreter is asked twice as often, so that a fit of a second has enough answers."""
_LOOKS_EVERY_EARLY = 2
"""Looks are not more, because each stands for the same time."""
_ALWAYS_ASKS_NS, _ASKS_EVERY = 10_000_000_000, 2
"""After ten seconds, when a hundred answers are known, every other time: for each, as for each look, the main thread
has to wait for the interpreter once more."""
_RARER_FROM_NS = (10_000_000_000, 30_000_000_000, 120_000_000_000)
"""From each of these on, intervals between looks are twice as long and each look stands for twice the time: a run of a
minute has 300 looks, one of an hour 4,800."""
MAX_DEPTH = 12
"""Frames of a stack that are kept, the innermost: recursion has no end."""
_SHORT_S = 2.0
"""Shorter runs are not worth the time of reading their source files."""
_MAX_PAUSE_S = 0.02
"""As long as steps of small models: whoever wakes up gets the interpreter at the end of what held it, and a fixed short
pause would always ask where nobody has it."""
_SHORT_PAUSE_S = 0.004
"""Before a look alone: from here on, other threads of the program lose the interpreter every 50 µs, too."""
_LATE_NS = 20_000_000
"""So much later than planned a call mostly comes at most."""
_PROMPT_S = 51e-6
"""Time slice of the interpreter while a look is due; the look itself is hardly interrupted. Who sets 50 µs reads 49."""
_SETTLE_NS = 12_000_000
"""Longer than a usual slice and a call in C: where the main thread let go before says nothing of where it is then."""
_PACKAGE_FOLDERS = frozenset({"site-packages", "dist-packages"})
# Frameworks that are no user's code wherever they are installed, e.g. by ``pip install --target``.
FRAMEWORKS = ("torch", "torchvision", "lightning", "pytorch_lightning", "lightning_fabric", "torchmetrics", "numpy")
# Code without a file that the user nevertheless typed.
_INTERACTIVE = ("<ipython-input", "<stdin>")
# Where collectives are called and waited for (torch 2.4 to 2.13); DDP waits for those of its backward in C++.
_COLLECTIVES = ("torch/distributed/", "torch/nn/parallel/distributed.py")
_AUTOGRAD = "torch/autograd/"
# What torch raises where another rank is gone: gloo's, NCCL's and the store's. No subclass of RuntimeError but these:
# running out of memory is one, and so is an illegal access.
_OF_PEERS = ("RuntimeError", "DistBackendError", "DistNetworkError", "DistStoreError", "DistError")
# Autograd's own errors are RuntimeErrors, too; those of a communication library name it, by its source file at least.
_OF_COMMUNICATION = re.compile("gloo|ccl|c10d|process group|connection|timed out", re.IGNORECASE)
# The operators of tensor-parallel layers are called from here, too (`_tensor` in torch 2.4), and checkpoints written;
# their collectives are waited for elsewhere.
_WORKING = ("torch/distributed/tensor/", "torch/distributed/_tensor/", "torch/distributed/checkpoint/")
_OPERATOR_CALL = "torch/_ops.py"
# As in lightning 2.4 to 2.6, both packages.
_TRAINER_FILE = f"{os.sep}trainer{os.sep}trainer.py"


class UserCode:
    """Separates the user's source files from those of libraries, and names a place in them.

    A file is a library's if it lies in ``site-packages`` or ``dist-packages`` or below one of ``library_roots``, and
    if it is no file at all (``<frozen importlib._bootstrap>``, ``<string>``); what is typed into a notebook is the
    user's.

    Args:
        cwd: Folder to which paths are shown relative; a file elsewhere is shown as ``folder/file.py``.
        library_roots: Folders that hold no code of the user.
    """

    def __init__(self, *, cwd: str, library_roots: Iterable[str]) -> None:
        self._cwd = PurePath(cwd)
        self._roots = tuple(PurePath(root) for root in library_roots)
        self._shown: dict[str, str] = {}
        """File name as in the code object -> path as shown, empty for a library's."""

    @classmethod
    def of_this_process(cls) -> UserCode:
        """With the working folder and the libraries of the running interpreter."""
        try:
            cwd = str(Path.cwd())
        except OSError:  # the folder was deleted
            cwd = ""
        paths = sysconfig.get_paths()
        found = [paths["stdlib"], paths["platstdlib"], str(Path(os.__file__).parent), str(Path(__file__).parents[1])]
        for name in FRAMEWORKS:
            found += [str(folder) for folder in getattr(sys.modules.get(name), "__path__", ())]
        return cls(cwd=cwd, library_roots={*found, *(os.path.realpath(root) for root in found)})

    def site_of(self, frame: FrameType | None) -> str | None:
        """``path:line function`` of the innermost frame of the user's code that ``fit`` or another stage runs.

        None if there is none: the frames that have called it do not count.
        """
        return next(self._sites(frame), None)

    def stack_of(self, frame: FrameType | None) -> str | None:
        """The innermost dozen of them, joined by :data:`CALLS`, the caller first. None: no frame is the user's."""
        found = list(itertools.islice(self._sites(frame), MAX_DEPTH))
        return CALLS.join(reversed(found)) or None

    def _sites(self, frame: FrameType | None) -> Iterator[str]:
        shown = self._shown
        while frame is not None:
            code = frame.f_code
            path = shown.get(code.co_filename)
            if path is None:
                path = shown[code.co_filename] = self.shown_path(code.co_filename)
            if path:
                yield f"{path}:{frame.f_lineno} {code.co_name}"
            if is_stage(code):  # what calls it is no place within a step
                return
            frame = frame.f_back

    def raised_at(self, error: BaseException) -> str:
        """``path:line function`` of the user's innermost frame that an exception came through, or nothing."""
        passed = traceback.walk_tb(error.__traceback__)
        places = [self.place(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in passed]
        return next((place for place in reversed(places) if place), "")

    def place(self, filename: str, line: int, function: str) -> str | None:
        """How people are shown one place.

        Args:
            filename: As the code object has it.
            line: Line number.
            function: Name of the function.

        Returns:
            ``path:line function`` with the path as people are shown it; None if it is in a library.
        """
        path = self._shown.get(filename)
        if path is None:
            path = self._shown[filename] = self.shown_path(filename)
        return f"{path}:{line} {function}" if path else None

    def code_at(self, place: str, since_s: float) -> str:
        """What is written in a line that was named here, without what may be secret.

        Args:
            place: ``path:line function``.
            since_s: A time, as of ``time.time()``.

        Returns:
            At most 200 characters, without indentation; empty if the file was changed since, or cannot be read.
        """
        path, _, rest = place.rpartition(":")
        file = next((name for name, shown in self._shown.items() if shown == path), "")
        try:
            changed = not file.startswith("<") and Path(file).stat().st_mtime > since_s
        except OSError:
            return ""
        line = "" if changed else linecache.getline(file, int(rest.partition(" ")[0]))
        return shown_code(line.strip())[:_MAX_CODE_CHARACTERS]

    def shown_path(self, filename: str) -> str:
        """The path of a code object's file as people are shown it; empty for a library's."""
        if filename.startswith("<"):
            return filename if filename.startswith(_INTERACTIVE) else ""
        path = PurePath(os.path.normpath(self._cwd / filename))
        if not _PACKAGE_FOLDERS.isdisjoint(path.parts) or any(path.is_relative_to(root) for root in self._roots):
            return ""
        if path.is_relative_to(self._cwd):
            return path.relative_to(self._cwd).as_posix()
        return PurePath(*path.parts[-2:]).as_posix()


def is_stage(code: CodeType) -> bool:
    """Whether it is the code of ``Trainer.fit`` or another stage."""
    return code.co_name in STAGES and code.co_filename.endswith(_TRAINER_FILE)


def is_in_collective(frame: FrameType | None) -> bool:
    """Whether the innermost frame, but for the call of an operator, is one that waits for other ranks."""
    while frame is not None and _part_of_torch(frame.f_code.co_filename) == "operator call":
        frame = frame.f_back
    return frame is not None and _part_of_torch(frame.f_code.co_filename) == "collectives"


def left_collective(error: BaseException) -> bool:
    """Whether an exception left what waits for other ranks, as it does when one of them is gone: a backward, too.

    One that the user's own code raises, or an operator that is given the wrong shapes, left neither; a backward that
    ran out of memory, or that autograd refuses, failed by itself.
    """
    parts = [_part_of_torch(frame.f_code.co_filename) for frame, _ in traceback.walk_tb(error.__traceback__)]
    part = next((part for part in reversed(parts) if part != "operator call"), "")
    waits = part == "collectives" or (part == "autograd" and _OF_COMMUNICATION.search(str(error)) is not None)
    return type(error).__name__ in _OF_PEERS and waits


@functools.lru_cache(maxsize=1024)
def _part_of_torch(filename: str) -> Literal["operator call", "collectives", "autograd", ""]:
    file = filename.replace(os.sep, "/")
    if file.endswith(_OPERATOR_CALL):
        return "operator call"
    if any(part in file for part in _COLLECTIVES) and not any(part in file for part in _WORKING):
        return "collectives"
    return "autograd" if _AUTOGRAD in file else ""


def _delay_ns(scheduled: bytes) -> int:
    """Time in which a thread was ready to run but had no CPU, from its ``schedstat``; 0: not known."""
    parts = scheduled.split()
    return int(parts[1]) if len(parts) > 1 else 0


def _sleep_until(moment_ns: int) -> None:
    if (left_ns := moment_ns - time.perf_counter_ns()) > 0:
        time.sleep(left_ns / 1e9)


class _PromptSwitches:
    """A short time slice of the interpreter while at least one sampler is about to look; of runs there may be several.

    What somebody sets meanwhile stays. Who read ours meanwhile and sets it again later gets with the next look the one
    that was usual then.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looking = 0
        self._usual_s = self._ours_s = self._before_s = sys.getswitchinterval()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """The main thread lets go of the interpreter within 50 µs."""
        with self._lock:
            self._looking += 1
            if self._looking == 1:
                self._begin()
        try:
            yield
        finally:
            with self._lock:
                self._looking -= 1
                if not self._looking:
                    self._end()

    def _begin(self) -> None:
        now_s = sys.getswitchinterval()
        if now_s == self._ours_s:
            self._usual_s = self._before_s
        elif now_s != self._usual_s:
            self._before_s, self._usual_s = self._usual_s, now_s
        sys.setswitchinterval(min(self._usual_s, _PROMPT_S))
        self._ours_s = sys.getswitchinterval()

    def _end(self) -> None:
        if sys.getswitchinterval() == self._ours_s:
            sys.setswitchinterval(self._usual_s)
        else:
            self._before_s = self._usual_s

    def forget(self) -> None:
        """A forked DataLoader worker has no sampler that would end them."""
        self._lock, self._looking = threading.Lock(), 0
        self._end()


_prompt_switches = _PromptSwitches()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_prompt_switches.forget)


@dataclass(eq=False, repr=False)
class CallSiteSampler:
    """Looks at where the main thread is, and counts per slot and place in the user's code.

    It can look only when the main thread lets go of the interpreter: in a blocking call, in a tensor operation, or when
    its time slice ends. A slice of 5 ms would hide all Python that is over by then, so before a look it is a hundredth.
    """

    thread_id: int
    """``threading.get_ident()`` of the main thread."""
    current_slot: Callable[[], int]
    """Id of the slot that time is charged to at this moment; negative if there is none, and then nothing is counted."""
    interval_s: float = 0.1
    """Mean seconds between two looks, from the second second to the tenth. Each interval is drawn from half to one
    and a half of it, so that looks do not keep step with the training steps."""
    _: KW_ONLY
    charged_since_ns: Callable[[], int] = lambda: 0
    """When time began to be charged to that slot, ``time.perf_counter_ns()``."""
    user_code: UserCode | None = None
    """Separates the user's files from others; default: those of this interpreter."""
    now_s: Callable[[], float] = time.time
    """As times of files count."""
    on_look: Callable[[FrameType, bool], object] | None = None
    """Called with the main thread's innermost frame and whether it is off the CPU, at each look that knows it."""

    name = "call_sites"

    def __post_init__(self) -> None:
        self._mean_interval_s = self.interval_s
        self._random = random.Random(0)  # of its own: the user's generators are left as found
        self._seen = CallSites(counts={})
        """Since it was handed over the last time."""
        self._own = threading.local()
        """``state`` and ``off_cpu`` of the main thread, and what the kernel counts of this one (``delay``): their files
        end with the thread, whatever fails."""
        self._others: OtherThreads | None = None
        self._first_ns: int | None = None
        self._planned_ns = 0
        """About when the recorder comes next, by the clock."""
        self._calls = -1  # the first one is number 0
        self._is_judged = False
        self._coded: set[str] = set()
        self._since_s = self.now_s()
        self._handed_over_ns = 0
        self._has_sources = False

    def open(self) -> None:
        """Learn which files are the user's; it takes a millisecond, which is not for the main thread."""
        if self.user_code is None:
            self.user_code = UserCode.of_this_process()
        self._own.state = ThreadState(ThreadSources.of(self.thread_id))
        if self.on_look is not None:
            self._own.off_cpu = ThreadState(ThreadSources.of(self.thread_id))
        self._others = OtherThreads(self.thread_id, self.user_code.site_of)
        with suppress(OSError):
            self._own.delay = KeptFile(f"/proc/self/task/{threading.get_native_id()}/schedstat")

    def sample(self, t_ns: int) -> Sequence[CallSites]:
        """Ask or look, or both; every 10 s hand over the counts since then."""
        if self._first_ns is None:
            self._first_ns = self._handed_over_ns = t_ns
        early = t_ns - self._first_ns < _EARLY_NS
        mean_s = self._mean_interval_s * (0.5 if early else self._seen.weight)
        self.interval_s = mean_s * self._random.uniform(0.5, 1.5)
        self._calls += 1
        asks = t_ns - self._first_ns < _ALWAYS_ASKS_NS or self._calls % _ASKS_EVERY == 0
        looks = not early or self._calls % _LOOKS_EVERY_EARLY == 0
        self._ask_and_look(t_ns, asks=asks, looks=looks)
        if t_ns - self._handed_over_ns < _PUBLISH_EVERY_NS:
            return ()
        self._handed_over_ns = t_ns
        taken = self._take()
        if self.on_look is None:  # else the looks are somebody else's as well, who counts them alike
            self._seen.weight = 2 ** sum(t_ns - self._first_ns >= rarer_ns for rarer_ns in _RARER_FROM_NS)
        return taken

    def close(self) -> Sequence[CallSites]:
        """Hand over the rest."""
        with _prompt_switches():
            pass  # somebody may have read ours, and set it again since the last look
        if self._others is not None:
            self._others.look(time.perf_counter_ns(), {}, last=True)
        for kept in vars(self._own).values():
            kept.close()
        vars(self._own).clear()
        return self._take()

    def _ask_and_look(self, t_ns: int, *, asks: bool, looks: bool) -> None:
        """Do so from a moment that is drawn on."""
        begin_ns = time.perf_counter_ns()
        planned_ns, self._planned_ns = self._planned_ns, begin_ns + round(self.interval_s * 1e9)
        # when it was planned, not when the main thread let us have the interpreter: that is at certain lines
        base_ns = planned_ns if begin_ns - _LATE_NS < planned_ns < begin_ns + _LATE_NS else begin_ns
        due_ns = base_ns + round(self._random.uniform(0.0, _MAX_PAUSE_S if asks else _SHORT_PAUSE_S) * 1e9)
        if asks:
            self._ask(due_ns)
        if looks:
            with _prompt_switches():
                _sleep_until(due_ns + _SETTLE_NS)
            self._look(t_ns)

    def _ask(self, due_ns: int) -> None:
        """Let go of the interpreter until then, and see whether it takes as long as from Python to get it back.

        Times at which the main thread went from one slot to the next before we had it are left out.
        """
        before = self._scheduled()
        is_early = time.perf_counter_ns() < due_ns
        _sleep_until(due_ns)
        waited_ns = time.perf_counter_ns() - due_ns
        slot, since_ns = (self.current_slot(), self.charged_since_ns()) if is_early and before else (-1, 0)
        if slot >= 0 and since_ns <= due_ns:
            late_ns = sys.getswitchinterval() / 5 * 1e9
            if waited_ns >= late_ns:
                waited_ns -= max(0, _delay_ns(self._scheduled()) - _delay_ns(before))
            asked, late = self._seen.lock.get(slot, (0, 0))
            self._seen.lock[slot] = asked + 1, late + (waited_ns >= late_ns)

    def _scheduled(self) -> bytes:
        """What the kernel counts of this thread; empty: not known."""
        delay: KeptFile | None = getattr(self._own, "delay", None)
        if delay is None:
            return b""
        delay.note()
        return delay.noted()

    def _look(self, t_ns: int) -> None:
        assert self.user_code is not None
        slot = self.current_slot()
        # Frames live only within the call: one that is kept would keep the step's tensors alive.
        frames = current_frames()
        off_cpu: ThreadState | None = getattr(self._own, "off_cpu", None)
        is_off_cpu = off_cpu.is_off_cpu() if off_cpu is not None else None
        self._is_judged = not self._is_judged  # every other time: it takes as long as the look itself
        own: ThreadState | None = getattr(self._own, "state", None)
        state = own.look() if own is not None and self._is_judged else None
        frame = frames.pop(self.thread_id, None)
        is_alive, waits = frame is not None, is_in_collective(frame)
        place = None if waits else self.user_code.stack_of(frame)
        if self.on_look is not None and frame is not None and is_off_cpu is not None:
            self.on_look(frame, is_off_cpu)
        del frame
        if is_alive and slot >= 0 and self.current_slot() == slot:
            seen = self._seen
            seen.looks[slot] = seen.looks.get(slot, 0) + 1
            if waits:
                seen.in_collectives[slot] = seen.in_collectives.get(slot, 0) + 1
            if place is not None:
                in_slot = seen.counts.setdefault(slot, {})
                in_slot[place] = in_slot.get(place, 0) + 1
                if state is not None:
                    states, line = seen.states.setdefault(slot, {}), place.rpartition(CALLS)[2]
                    states[line] = with_one_more(states.get(line, (0, 0, 0)), state)
        if self._others is not None:
            self._others.look(t_ns, frames)

    def _take(self) -> Sequence[CallSites]:
        seen, self._seen = self._seen, CallSites(counts={})
        if self._others is not None:
            seen.threads, seen.threads_ns = self._others.take()
        if not (seen.looks or seen.lock or seen.threads):
            return ()
        seen.code, seen.sources = self._code(seen.counts), self._sources()
        return (seen,)

    def _code(self, counts: dict[int, dict[str, int]]) -> dict[str, str]:
        """What is written in the places seen most, each of them once."""
        places: dict[str, int] = {}
        for in_slot in counts.values():
            for stack, looks in in_slot.items():
                place = stack.rpartition(CALLS)[2]
                places[place] = places.get(place, 0) + looks
        new = sorted(places.keys() - self._coded, key=lambda place: -places[place])[:_MAX_CODE]
        self._coded.update(new)
        code = self.user_code
        read = {place: code.code_at(place, self._since_s) for place in new} if code is not None else {}
        return {place: line for place, line in read.items() if line}

    def _sources(self) -> dict[str, str]:
        """The user's source files, once."""
        if self._has_sources or self.user_code is None or self.now_s() - self._since_s < _SHORT_S:
            return {}
        self._has_sources = True
        try:
            return source_files(self.user_code.shown_path)
        except Exception as error:  # of what a program puts in the place of a module; the looks count all the same
            if must_propagate(error):
                raise
            return {}
