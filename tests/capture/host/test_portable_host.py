import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from python_process import run_python

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.capture.host.portable import PortableHostSampler
from lightning_gpuprof.capture.recorder import Reading
from lightning_gpuprof.model.journal import Conditions, Notice, Sample

SECOND = 1_000_000_000


def values(readings: list[Reading]) -> dict[str, dict[str, float | None]]:
    return {each.subject: each.values for each in readings if isinstance(each, Sample)}


@contextmanager
def worker_and_child() -> Iterator[tuple[int, int]]:
    """A daemon of ``multiprocessing``, as a DataLoader worker is, and a program."""
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    worker.start()
    child = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    assert worker.pid is not None
    child.stdout.readline()
    try:
        yield worker.pid, child.pid
    finally:
        for process in (worker, child):
            process.kill()
        worker.join()
        child.communicate()


def test_a_machine_is_read_without_its_files() -> None:
    sampler = PortableHostSampler(environ={"OMP_NUM_THREADS": "3"})
    with worker_and_child():
        first = list(sampler.sample(0))
        begin = time.process_time()
        while time.process_time() < begin + 0.1:
            pass
        second = values(list(sampler.sample(SECOND)))
    assert values(first)["process"].keys() == {"rss_bytes", "threads_count"}
    (facts,) = [each.values for each in first if isinstance(each, Conditions)]
    assert facts["host.omp_num_threads"] == 3
    (notice,) = [each for each in first if isinstance(each, Notice)]
    assert "without /proc" in notice.message
    process, host = second["process"], second["host"]
    assert 0.05 < (process["cpu_cpus"] or 0) < 10
    assert process["cpu_cpus"] == round((process["cpu_user_cpus"] or 0) + (process["cpu_system_cpus"] or 0), 4)
    assert 0 <= (host["cpu_busy_ratio"] or 0) <= 1
    assert (second["workers"]["count"], second["workers"]["threads_count"]) == (1, 1)
    assert (second["workers"]["rss_bytes"] or 0) > 1e6
    assert (second["children"]["count"] or 0) >= 1
    assert not [each for each in sampler.sample(2 * SECOND) if not isinstance(each, Sample)]


def test_other_ranks_are_no_children_of_this_one() -> None:
    with worker_and_child() as (worker, child):
        both = values(list(PortableHostSampler().sample(0)))["children"]["count"] or 0
        left = values(list(PortableHostSampler(other_ranks=lambda: [worker, child]).sample(0)))
    assert (left["workers"]["count"], left["children"]["count"]) == (0, both - 1)


def test_a_process_that_ended_is_not_counted_on() -> None:
    sampler = PortableHostSampler()
    with worker_and_child():
        sampler.sample(0)
    found = values(list(sampler.sample(SECOND)))
    assert found["workers"] == {"count": 0}


def test_a_long_run_is_sampled_more_rarely() -> None:
    sampler = PortableHostSampler()
    sampler.sample(0)
    assert sampler.interval_s < 1.0, "rates of a run of a second are known"
    sampler.sample(SECOND)
    assert sampler.interval_s == 1.0
    sampler.sample(72_000 * SECOND)
    assert sampler.interval_s == 10.0


PROGRAM = """
import os, sys, time
import lightning.pytorch as pl, psutil, torch.utils.tensorboard
from lightning.pytorch.demos.boring_classes import BoringModel
for name in ("sysconf", "O_CLOEXEC", "pread", "sched_getaffinity", "statvfs", "getuid", "getloadavg", "mkfifo"):
    delattr(os, name)
for name in ("clock_gettime", "clock_gettime_ns", "CLOCK_BOOTTIME", "pthread_getcpuclockid"):
    delattr(time, name)
for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[name] = None
assert not [name for name in sys.modules if name.startswith("lightning_gpuprof")]
exists, open_file = os.path.exists, os.open
def without_proc(path, *arguments, **options):
    if os.fspath(path).startswith(("/proc", "/sys")):
        raise FileNotFoundError(path)
    return open_file(path, *arguments, **options)
os.open, os.path.exists = without_proc, lambda path: not str(path).startswith("/proc") and exists(path)

def trainer(*callbacks):  # made where this package is installed, whose entry point is asked
    return pl.Trainer(max_epochs=1, limit_val_batches=0, callbacks=list(callbacks), accelerator="cpu", logger=False,
                      enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)

trainer().fit(BoringModel())
from lightning_gpuprof import GpuProfiler
profiler = GpuProfiler(dirpath="run")
trainer(profiler).fit(BoringModel())
from lightning_gpuprof.cli.main import main
assert main(["try", "--arm", "num_workers=2", "--", sys.executable, "train.py"]) == 2
print(profiler.report.steps.count)
"""


def test_a_fit_where_python_has_none_of_the_parts_for_unix(tmp_path: Path) -> None:
    """As on Windows: the package may be installed there, so it must not break a Trainer, nor a fit with it."""
    done = run_python("-c", PROGRAM, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "64", done.stderr
    assert "Traceback" not in done.stderr
    assert "gpuprof try needs Linux or macOS. On other systems, change one setting" in done.stderr
    journal = read_journal(tmp_path / "run" / "rank0.jsonl")
    host = [sample for sample in journal.samples if sample.source == "host"]
    assert {"process", "host"} <= {sample.subject for sample in host}
    assert [notice.message for notice in journal.notices if "without /proc" in notice.message]
