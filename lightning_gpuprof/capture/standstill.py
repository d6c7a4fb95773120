"""Notices that training does not move on, records it, and writes the stacks of all threads to a file."""

import contextlib
import faulthandler
import json
import statistics
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path, PurePath
from types import FrameType

from lightning_gpuprof.capture.call_sites import UserCode
from lightning_gpuprof.capture.frames import current_frames
from lightning_gpuprof.capture.step_clock import ClosedStep, StepClock
from lightning_gpuprof.model.config import HostConfig
from lightning_gpuprof.model.journal import Standstill

AFTER_STEPS = 20
"""Nothing is said of shorter ones than so many median steps."""
AGAIN_NS = 5_000_000_000
"""Between two records of one that lasts: a reader sees by the last one that it is over."""

_COLLECTIVES = ("torch", "distributed", "distributed_c10d.py")
"""File of the functions that wait for other ranks."""
_COMPILER = {("torch", "_dynamo", "convert_frame.py"), ("torch", "_inductor", "graph.py")}
"""Files whose functions run only while something is compiled."""
COMPILING = "compiling"
_PROMPTS = frozenset({"cmdloop", "do_wait_suspend", "_do_wait_suspend"})
"""Functions in which a debugger waits for a person: pdb and IPython, then those of debugpy and PyCharm."""
_PATIENCE = 10
"""Checkpoints and batches of a validation take so much longer before they count as hanging. Heuristic."""
_FLIGHT_RECORDERS = ("_dump_fr_trace_json", "_dump_nccl_trace_json")
"""In ``torch._C._distributed_c10d``: of this process alone; the first is that of torch 2.9 and later, also of gloo."""

STACKS_NAME = "rank{rank}.stacks.txt"


@dataclass(eq=False, repr=False)
class Watchdog:
    """Looks whether the main thread has passed an edge lately; what it finds, it only writes down.

    A thread that holds the interpreter for good cannot be looked at: the journal then ends with its last edge.
    """

    clock: StepClock
    """Its edges are what moves."""
    stacks: Path
    """File for the stacks of all threads, added to."""
    post: Callable[[Standstill], None]
    _: KW_ONLY
    thread_id: int
    """``threading.get_ident()`` of the main thread."""
    after_s: float = HostConfig.hang_s
    """Nothing is said of shorter ones, either."""
    now: Callable[[], int] = time.perf_counter_ns
    """The clock's time in ns."""

    def __post_init__(self) -> None:
        self._periods: deque[int] = deque(maxlen=AFTER_STEPS)
        self._edge_ns = -1
        self._looked_ns = self.now()
        self._since_ns = self._limit_ns = self._due_ns = self._stacks_due_ns = 0

    def look(self, steps: Sequence[ClosedStep]) -> None:
        """Called now and then with the steps that ended since, from another thread than the training's."""
        self._periods.extend(step.end_ns - step.start_ns for step in steps[-AFTER_STEPS:])
        edge_ns, slot, now_ns = self.clock.charged_since_ns(), self.clock.current_slot(), self.now()
        gap_ns = now_ns - self._looked_ns
        was_stopped = gap_ns > AGAIN_NS  # this thread as well: the process was suspended
        self._looked_ns = now_ns
        if edge_ns != self._edge_ns:
            usual_ns = statistics.median(self._periods) if self._periods else 0
            self._edge_ns = edge_ns
            self._since_ns = now_ns if was_stopped else edge_ns
            self._limit_ns = max(round(self.after_s * 1e9), round(AFTER_STEPS * usual_ns))
            self._due_ns = self._stacks_due_ns = self._since_ns + self._limit_ns
        elif was_stopped:
            self._since_ns += gap_ns
            self._due_ns = self._since_ns + self._limit_ns
        if now_ns < self._due_ns:
            return
        self._due_ns = now_ns + AGAIN_NS
        since_ns = self._since_ns
        # Frames live only within the call: one that is kept would keep the step's tensors alive.
        frames = current_frames()
        place, collective, busy = _place(frames.get(self.thread_id))
        if not busy and _in_backward(frames.get(self.thread_id)):  # autograd's own threads may compile its part
            busy = next((found for frame in frames.values() if (found := _busy(frame)) == COMPILING), "")
        del frames
        if not (busy or collective) and now_ns - since_ns < _PATIENCE * self._limit_ns:
            busy = "busy" if self.clock.slots[slot].step_phase in ("validation", "checkpoint") else ""
        self.post(
            Standstill(
                t_ns=now_ns,
                since_ns=since_ns,
                slot=slot,
                place=place,
                collective=collective,
                pending=_pending(),
                busy=busy,
            )
        )
        if busy or now_ns < self._stacks_due_ns:
            return
        self._stacks_due_ns = 2 * now_ns - since_ns
        # A file system that hangs, perhaps the reason, holds up this thread only.
        threading.Thread(target=self._dump, args=(now_ns - since_ns,), name="gpuprof-stacks", daemon=True).start()

    def _dump(self, lasted_ns: int) -> None:
        with contextlib.suppress(Exception), self.stacks.open("a") as file:  # the journal has the place
            file.write(f"\n{time.strftime('%F %T')}: no progress for {lasted_ns / 1e9:.0f} s\n")
            traceback.print_stack(current_frames().get(self.thread_id), file=file)
            file.flush()
            faulthandler.dump_traceback(file)


def _pending() -> str:
    """The first collective of this process that has not ended, by torch's flight recorder; empty if not known."""
    with contextlib.suppress(Exception):  # another torch, whose recorder says it otherwise
        c10d = sys.modules["torch._C._distributed_c10d"]
        dump = next(getattr(c10d, name) for name in _FLIGHT_RECORDERS if hasattr(c10d, name))
        first = next(one for one in json.loads(dump(onlyActive=True))["entries"] if not one["retired"])
        number = first["p2p_seq_id" if first["is_p2p"] else "collective_seq_id"]
        return f"{first['profiling_name'].split(':')[-1]} #{number}"
    return ""


def _place(frame: FrameType | None) -> tuple[str, str, str]:
    """The innermost line, of the user if there is one, the collective called, and what takes time without hanging."""
    if frame is None:
        return "", "", ""
    code = frame.f_code
    parts = PurePath(code.co_filename).parts[-3:]
    library = f"{'/'.join(parts)}:{frame.f_lineno} {code.co_name}"
    site = UserCode.of_this_process().site_of(frame) or library
    return site, code.co_name if parts == _COLLECTIVES else "", _busy(frame)


def _in_backward(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_name == "_engine_run_backward"


def _busy(frame: FrameType | None) -> str:
    while frame is not None:
        if frame.f_code.co_name in _PROMPTS:
            return "in a debugger"
        if PurePath(frame.f_code.co_filename).parts[-3:] in _COMPILER:
            return COMPILING
        frame = frame.f_back
    return ""
