"""A touched file and a signal, as a running job hears them."""

import copy
import os
import pickle
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from python_process import run_python

from lightning_gpuprof.capture.triggers import RequestSignal, TriggerFile


class Seconds:
    now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def touch(path: Path, at_ns: int) -> None:
    path.touch()
    os.utime(path, ns=(at_ns, at_ns))


def test_a_touch_is_seen_once(tmp_path: Path) -> None:
    trigger = TriggerFile(tmp_path / "trigger", now=Seconds())
    assert not trigger.touched()
    touch(tmp_path / "trigger", 1_000)
    assert trigger.touched()
    assert not trigger.touched()
    touch(tmp_path / "trigger", 2_000)
    assert trigger.touched()


def test_a_file_that_was_there_before_the_run_is_no_request(tmp_path: Path) -> None:
    touch(tmp_path / "trigger", 1_000)
    trigger = TriggerFile(tmp_path / "trigger", now=Seconds())
    assert not trigger.touched()
    touch(tmp_path / "trigger", 2_000)
    assert trigger.touched()


def test_a_file_that_goes_away_is_no_request(tmp_path: Path) -> None:
    trigger = TriggerFile(tmp_path / "trigger", now=Seconds())
    touch(tmp_path / "trigger", 1_000)
    assert trigger.touched()
    (tmp_path / "trigger").unlink()
    assert not trigger.touched()
    touch(tmp_path / "trigger", 3_000)
    assert trigger.touched()


def test_several_ranks_see_the_same_touch(tmp_path: Path) -> None:
    ranks = [TriggerFile(tmp_path / "trigger", now=Seconds()) for _ in range(2)]
    touch(tmp_path / "trigger", 1_000)
    assert [rank.touched() for rank in ranks] == [True, True]


def test_the_file_system_is_asked_at_a_low_rate(tmp_path: Path) -> None:
    seconds = iter([0.0, 0.1, 0.2, 0.6])
    trigger = TriggerFile(tmp_path / "trigger", now=lambda: next(seconds))
    assert not trigger.touched()
    touch(tmp_path / "trigger", 1_000)
    assert [trigger.touched() for _ in range(3)] == [False, False, True]


@pytest.fixture
def no_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.usefixtures("no_handler")
def test_the_signal_is_heard_and_given_back() -> None:
    heard = []
    request = RequestSignal(lambda: heard.append(1))
    assert request.install() == ""
    assert request.install() == ""
    os.kill(os.getpid(), signal.SIGUSR2)
    assert heard == [1]
    request.restore()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    request.restore()


@pytest.mark.usefixtures("no_handler")
def test_somebody_elses_handler_is_left_alone() -> None:
    theirs = []
    signal.signal(signal.SIGUSR2, lambda *_: theirs.append(1))
    own = signal.getsignal(signal.SIGUSR2)
    request = RequestSignal(lambda: pytest.fail("not ours"))
    assert "has a handler already" in request.install()
    os.kill(os.getpid(), signal.SIGUSR2)
    request.restore()
    assert theirs == [1]
    assert signal.getsignal(signal.SIGUSR2) is own


@pytest.mark.usefixtures("no_handler")
def test_a_handler_that_was_set_after_ours_stays_and_may_call_ours() -> None:
    heard, theirs = [], []
    request = RequestSignal(lambda: heard.append(1))
    request.install()
    before = signal.getsignal(signal.SIGUSR2)

    def chained(*args: object) -> None:
        theirs.append(1)
        before(*args)  # type: ignore[operator,arg-type,misc]

    signal.signal(signal.SIGUSR2, chained)
    os.kill(os.getpid(), signal.SIGUSR2)
    request.restore()
    assert signal.getsignal(signal.SIGUSR2) is chained
    os.kill(os.getpid(), signal.SIGUSR2)
    assert (heard, theirs) == ([1], [1, 1])


@pytest.mark.usefixtures("no_handler")
def test_a_copy_of_a_list_of_handlers_holds_what_was_there_before_ours() -> None:
    handlers = {signal.SIGUSR2: RequestSignal(lambda: None)}
    assert copy.deepcopy(handlers) == {signal.SIGUSR2: signal.SIG_DFL}
    assert pickle.loads(pickle.dumps(handlers)) == {signal.SIGUSR2: signal.SIG_DFL}


def test_outside_the_main_thread_nothing_is_installed() -> None:
    request = RequestSignal(lambda: None)
    said: list[str] = []
    thread = threading.Thread(target=lambda: said.append(request.install()))
    thread.start()
    thread.join()
    assert said == [""]
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_a_handler_that_python_does_not_know_of_is_left_alone() -> None:
    """``faulthandler`` sets its handler past Python's own table. In a process of its own: it cannot be undone."""
    script = (
        "import faulthandler, os, signal, sys\n"
        "from lightning_gpuprof.capture.triggers import RequestSignal\n"
        "faulthandler.register(signal.SIGUSR2, file=sys.stdout)\n"
        "print(RequestSignal(lambda: print('OURS')).install(), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGUSR2)\n"
    )
    done = run_python("-c", script)
    assert "has a handler already" in done.stdout
    assert "most recent call first" in done.stdout
    assert "OURS" not in done.stdout


@pytest.mark.usefixtures("no_handler")
def test_a_forked_process_survives_the_signal_and_asks_for_nothing(tmp_path: Path) -> None:
    request = RequestSignal(lambda: (tmp_path / "asked").touch())
    request.install()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.kill(os.getpid(), signal.SIGUSR2)
        os._exit(7)
    _, status = os.waitpid(child, 0)
    request.restore()
    assert os.waitstatus_to_exitcode(status) == 7
    assert not (tmp_path / "asked").exists()
