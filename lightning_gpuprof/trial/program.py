"""The user's program, run so that its fit is a trial; nothing of it is left when it has ended, however it ends."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from lightning_gpuprof.capture.switches import TRIAL
from lightning_gpuprof.errors import TrialError
from lightning_gpuprof.model.trial import Block, Differs, Event, Over, Plan, Skipped, Started, Trying
from lightning_gpuprof.trial.attach import ALIVE_FILE, ATTACHED_FILE, EVENTS_FILE, PLAN_FILE, STACKS_FILE

START_LIMIT_S = 900.0
"""Longest time until the first step: data that is prepared, a model that is fetched."""
OVER_LIMIT_S = 20.0
"""Longest time from the end of the trial to that of the program."""
_POLL_S = 0.1
_GRACE_S = 10.0
_TAIL_LINES = 8
_UNSEEN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\t -~\u00a0-\U0010ffff]")


class Ended(msgspec.Struct, kw_only=True):
    """What a program left."""

    events: list[Event] = msgspec.field(default_factory=list)
    code: int = 0
    attached: bool = False
    """Whether it made a Trainer."""
    tail: str = ""
    """Last lines of its output."""
    is_late: bool = False
    """Whether it was ended from here, after all its time."""
    stands_at: list[str] = msgspec.field(default_factory=list)
    """Of a late one: the innermost lines of each rank's main thread."""

    @property
    def is_over(self) -> bool:
        """Whether the trial came to its own end."""
        return any(isinstance(event, Over) for event in self.events)

    @property
    def differs(self) -> Differs | None:
        """That it has other settings than the run whose advice was to be tried. None: it has the same."""
        return next((event for event in self.events if isinstance(event, Differs)), None)

    @property
    def trying(self) -> str:
        """The arm that ran last."""
        return next((event.arm for event in reversed(self.events) if isinstance(event, Trying)), "")


def run(
    command: Sequence[str], plan: Plan, folder: Path, *, on_event: Callable[[Event], None], environ: Mapping[str, str]
) -> Ended:
    """Run a program to the end of its trial.

    Args:
        command: Its words.
        plan: What to try.
        folder: An empty one, which is the caller's to remove.
        on_event: Told of each event as it comes.
        environ: The program's environment.

    Returns:
        What it left, also if it failed or hung.

    Raises:
        TrialError: The command cannot be run, or this system has no locks of files (Windows).
        KeyboardInterrupt: Ctrl-C, or a signal to end; the program has ended then.
    """
    try:
        import fcntl
    except ImportError:
        raise TrialError(
            "gpuprof try needs Linux or macOS. On other systems, change one setting, train again, and run "
            "gpuprof compare"
        ) from None
    (folder / PLAN_FILE).write_bytes(msgspec.json.encode(plan))
    log = folder / "output.log"
    ended = Ended()
    with _interruptible(), (folder / ALIVE_FILE).open("wb") as alive, log.open("wb") as output:
        fcntl.flock(alive, fcntl.LOCK_EX)  # however this process ends, the program sees that it is free
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environ, TRIAL: str(folder), "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
            )
        except OSError as error:
            raise TrialError(f"{command[0]} cannot be run ({error.strerror or error})") from error
        family = _Family(process)
        try:
            _follow(process, folder / EVENTS_FILE, plan, ended, on_event, family)
        finally:
            family.end()
    ended.code = process.returncode
    ended.attached = (folder / ATTACHED_FILE).exists()
    ended.tail = _last_lines(log.read_text(errors="replace"))
    if ended.is_late:
        ended.stands_at = [_main_thread(path.read_text()) for path in sorted(folder.glob(STACKS_FILE.format(pid="*")))]
    return ended


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let a signal to end, and a terminal that closes, be what Ctrl-C is: the program is a session of its own."""
    numbers = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        numbers = []
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _last_lines(text: str) -> str:
    """Without colours and what else moves a terminal's cursor."""
    lines = [_UNSEEN.sub("", line).rstrip() for line in text.replace("\r", "\n").splitlines()]
    return "\n".join([line for line in lines if line][-_TAIL_LINES:])


def _main_thread(stacks: str) -> str:
    """The innermost lines of the last thread that faulthandler wrote, which is the main one."""
    return "\n".join(stacks.rpartition("\n\n")[2].splitlines()[1 : 1 + _TAIL_LINES])


def _follow(
    process: subprocess.Popen[bytes],
    path: Path,
    plan: Plan,
    ended: Ended,
    on_event: Callable[[Event], None],
    family: _Family,
) -> None:
    """Read events until the program has ended or had its time."""
    limit = time.monotonic() + START_LIMIT_S
    read = 0
    while True:
        over = process.poll() is not None
        if path.exists():
            with path.open("rb") as file:
                file.seek(read)
                lines = file.read()
            whole = lines[: lines.rfind(b"\n") + 1]
            read += len(whole)
            for line in whole.splitlines():
                event = msgspec.json.decode(line, type=Event)
                ended.events.append(event)
                on_event(event)
                if isinstance(event, Started):
                    limit = time.monotonic() + plan.seconds + plan.patience_s
                elif isinstance(event, Over):
                    limit = time.monotonic() + OVER_LIMIT_S
        if over or time.monotonic() > limit:
            ended.is_late = not over and not ended.is_over
            return
        family.look()
        time.sleep(_POLL_S)


class _Family:
    """A program and all that it started, as far as it was seen."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._seen: dict[int, psutil.Process] = {}
        self._looked = 0.0

    def look(self) -> None:
        """See who is there; twice a second at most."""
        if time.monotonic() - self._looked < 0.5:
            return
        self._looked = time.monotonic()
        with suppress(psutil.Error):
            for child in psutil.Process(self._process.pid).children(recursive=True):
                self._seen.setdefault(child.pid, child)

    def end(self) -> None:
        """Ask all to end, as Ctrl-C does, then make them; a second Ctrl-C makes them at once."""
        self._looked = 0.0
        self.look()
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                if self._process.poll() is not None:
                    break
                self._signal(number)
                with suppress(subprocess.TimeoutExpired):
                    self._process.wait(_GRACE_S)
        finally:
            self._signal(signal.SIGKILL)
            for child in self._seen.values():
                with suppress(psutil.Error):
                    child.kill()  # psutil asks whether the number was given to another process
            self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def renumber_rounds(events: Sequence[Event], before: Sequence[Event]) -> list[Event]:
    """Events of a program's second run, whose rounds are counted on: arms of two runs are no pair.

    Args:
        events: Of that run.
        before: Of the first.

    Returns:
        In the same order; events without a round are as they were.
    """
    first = 1 + max((event.round for event in before if isinstance(event, (Trying, Block))), default=-1)
    return [
        msgspec.structs.replace(event, round=event.round + first) if isinstance(event, (Trying, Block)) else event
        for event in events
    ]


def death_notice(ended: Ended, command: Sequence[str]) -> str:
    """That a program ended before its trial did, in words.

    Args:
        ended: What it left.
        command: Its words.

    Returns:
        A sentence without its full stop; in new lines, where it hung or the last lines of its output.
    """
    if ended.is_late:
        how = "hung"
    elif ended.code < 0:
        how = _ended_by(-ended.code)
    else:
        how = f"ended with exit code {ended.code}" if ended.code else "ended by itself"
    trying = repr(ended.trying) if ended.trying else "its warm-up: nothing could be measured"
    return f"{' '.join(command)!r} {how} in {trying}{_output(ended)}"


def missing_block_reason(ended: Ended) -> str:
    """Why a process that had one block to measure gave none, in one line."""
    if refusal := _refusal(ended):
        return refusal.why
    last = ended.tail.rpartition("\n")[2]
    if ended.is_late:
        return "the program hung"
    how = _ended_by(-ended.code) if ended.code < 0 else f"ended with exit code {ended.code}"
    return f"the program {how}" + (f": {last}" if last and ended.code > 0 else "")


def _ended_by(number: int) -> str:
    name = signal.Signals(number).name
    return f"was ended by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"


def _output(ended: Ended) -> str:
    """Where a program hung, or the last lines of one that failed."""
    if stands_at := "\n".join(ended.stands_at):
        return f"; its main thread was at (innermost frame first):\n{stands_at}"
    return f"; its last lines:\n{ended.tail}" if ended.code and ended.tail else ""


def _refusal(ended: Ended) -> Skipped | None:
    return next((event for event in ended.events if isinstance(event, Skipped) and not event.arm), None)


def _other_python(command: Sequence[str]) -> str:
    """Which Python ran, if it is not the one that this package is installed in; else empty."""
    found = shutil.which(command[0])
    if found is None or not Path(found).name.startswith("python") or Path(found).parent == Path(sys.executable).parent:
        return ""
    return f"\n{command[0]} is {found}; gpuprof is installed for {sys.executable}"


def failure_reason(ended: Ended, command: Sequence[str]) -> str:
    """Why a program gave nothing that could be judged, and the way out.

    Args:
        ended: What it left.
        command: Its words.

    Returns:
        One line or several; empty if its trial started.
    """
    what = " ".join(command)
    if refusal := _refusal(ended):
        return f"{what!r} failed: {refusal.why}" if refusal.failed else refusal.why
    if any(isinstance(event, Started) for event in ended.events):
        return ""
    output = _output(ended)
    if not ended.attached and ended.code:
        return f"{what!r} ended with exit code {ended.code} before it made a Trainer{output}{_other_python(command)}"
    if not ended.attached:
        last = ended.tail.rpartition("\n")[2]
        said = f" (its last line: {last})" if last else ""
        return (
            f"{what!r} made no Trainer. Name the command that trains, with the "
            f"Python in which this package is installed{said}"
        )
    if ended.code:
        return f"{what!r} ended with exit code {ended.code} before its first training step{output}"
    return f"{what!r} trained nothing: Trainer.fit was not called, or had no batch"
