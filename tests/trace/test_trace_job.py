"""The job that compresses a window's trace and computes its facts, in-process and as the process it is."""

import gzip
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from tiny_traces import kineto_text, training_step

from lightning_gpuprof.model.window import WindowFacts
from lightning_gpuprof.trace.analyses.communication.rank_window import file_beside, read_beside
from lightning_gpuprof.trace.job import run

FINAL = "rank0.123.pt.trace.json.gz"


@dataclass
class Paths:
    plain: Path
    final: Path
    facts: Path

    @property
    def argv(self) -> list[str]:
        return [str(self.plain), str(self.final), str(self.facts), "20", "22"]

    def read(self) -> WindowFacts:
        return msgspec.json.decode(self.facts.read_bytes(), type=WindowFacts)

    def left(self) -> set[str]:
        return {path.name for path in self.plain.parent.iterdir()}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    plain = tmp_path / "window.json"
    plain.write_text(kineto_text(training_step()))
    return Paths(plain, tmp_path / FINAL, tmp_path / "facts.json")


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if key != "GPUPROF_DEBUG"} | environment
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=120, env=env)


def job(paths: Paths, **environment: str) -> subprocess.CompletedProcess[str]:
    return python("-m", "lightning_gpuprof.trace.job", *paths.argv, **environment)


def test_job_leaves_the_compressed_trace_and_the_facts(paths: Paths) -> None:
    text = paths.plain.read_bytes()
    done = job(paths)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert paths.left() == {FINAL, "facts.json"}
    assert gzip.decompress(paths.final.read_bytes()) == text
    facts = paths.read()
    assert (facts.start_step, facts.stop_step, facts.file, facts.problem) == (20, 22, FINAL, "")
    assert (facts.events, facts.bytes_json, facts.kernels) == (14, len(text), 3)
    assert facts.steps_us == (100.0,)


def test_job_in_process_gives_the_same(paths: Paths) -> None:
    assert run(paths.argv) == 0
    assert paths.left() == {FINAL, "facts.json"}
    assert paths.read().devices[0].busy_us == 40.0


def test_a_trace_that_is_cut_off_is_kept_compressed_and_told(paths: Paths) -> None:
    text = paths.plain.read_bytes()[:-200]
    paths.plain.write_bytes(text)
    done = job(paths)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "truncated" in done.stderr
    facts = paths.read()
    assert "truncated" in facts.problem
    assert (facts.file, facts.start_step, facts.kernels) == (FINAL, 20, 0)
    assert paths.left() == {FINAL, "facts.json"}
    assert gzip.decompress(paths.final.read_bytes()) == text


def test_a_missing_trace_is_told(paths: Paths) -> None:
    paths.plain.unlink()
    done = job(paths)
    assert done.returncode == 1
    assert paths.read().problem == "compressing window.json failed: No such file or directory"
    assert paths.read().file == ""
    assert paths.left() == {"facts.json"}


def test_of_several_ranks_it_also_leaves_what_comparing_them_needs(paths: Paths) -> None:
    paths.plain.write_text(kineto_text(training_step(), distributedInfo={"rank": 3, "world_size": 4}))
    assert job(paths).returncode == 0
    window = read_beside(paths.final)
    assert window is not None
    assert (window.rank, window.world_size) == (3, 4)
    assert paths.left() == {FINAL, "facts.json", file_beside(paths.final).name}


def test_the_plain_trace_is_kept_if_it_cannot_be_compressed(paths: Paths) -> None:
    paths.final.mkdir()  # nothing can be renamed to this
    done = job(paths)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    facts = paths.read()
    assert "compressing window.json failed" in facts.problem
    assert str(paths.plain) in facts.problem
    assert facts.file == ""
    assert facts.kernels == 3, "the facts are computed all the same"
    assert paths.left() == {"window.json", FINAL, "facts.json"}


def test_facts_that_cannot_be_written_are_a_failure(paths: Paths) -> None:
    paths.facts = paths.facts.parent / "absent" / "facts.json"
    done = job(paths)
    assert done.returncode == 1
    assert "writing facts.json failed" in done.stderr
    assert paths.left() == {FINAL}


def test_traceback_only_for_who_asks(paths: Paths) -> None:
    paths.plain.write_text("no trace")
    assert "Traceback" not in job(paths).stderr
    paths.plain.write_text("no trace")
    assert "Traceback" in job(paths, GPUPROF_DEBUG="1").stderr


@pytest.mark.parametrize("change", [[], ["1"], ["a", "b"], ["1", "2", "3"]])
def test_wrong_arguments_touch_nothing(paths: Paths, change: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*paths.argv[:3], *change]) == 2
    assert "usage" in capsys.readouterr().err
    assert paths.left() == {"window.json"}


def test_the_plain_trace_cannot_be_its_own_target(paths: Paths) -> None:
    paths.final = paths.plain
    assert run(paths.argv) == 2
    assert paths.plain.read_text() == kineto_text(training_step())


def test_job_imports_no_framework(paths: Paths) -> None:
    program = (
        "import sys; from lightning_gpuprof.trace.job import run; code = run(sys.argv[1:])\n"
        "heavy = ('torch', 'lightning', 'pytorch_lightning', 'tensorboard', 'pynvml', 'pandas')\n"
        "print(code, [name for name in heavy if name in sys.modules])"
    )
    assert python("-c", program, *paths.argv).stdout.split(maxsplit=1) == ["0", "[]\n"]


def test_job_works_without_isal(paths: Paths) -> None:
    text = paths.plain.read_bytes()
    program = (
        "import sys; sys.modules['isal'] = None\n"
        "from lightning_gpuprof.trace.job import run; raise SystemExit(run(sys.argv[1:]))"
    )
    assert python("-c", program, *paths.argv).returncode == 0
    assert gzip.decompress(paths.final.read_bytes()) == text
    assert paths.read().kernels == 3


@pytest.mark.skipif(not hasattr(os, "nice"), reason="the system has no niceness")
def test_job_lowers_its_own_priority(paths: Paths) -> None:
    program = (
        "import os, runpy, sys\n"
        "before = os.nice(0)\n"
        "try: runpy.run_module('lightning_gpuprof.trace.job', run_name='__main__')\n"
        "except SystemExit as end: print(end.code, os.nice(0) == min(19, before + 10))"
    )
    assert python("-c", program, *paths.argv).stdout.split() == ["0", "True"]


def test_job_in_process_leaves_the_priority(paths: Paths) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    run(paths.argv)
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
