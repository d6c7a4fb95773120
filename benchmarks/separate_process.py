"""From variants that must not share a process with others to their runs, each in a fresh process."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from toy_run import Job, Run
from traceml_environment import launcher, python

HERE = Path(__file__).parent
PROGRAM = HERE / "toy_run.py"
TIMEOUT_S = 300


def why_not(place: str) -> str:
    """Why variants of this place cannot run here, or an empty string."""
    if place == "fake-nvml" and shutil.which("cc") is None:
        return "it needs a C compiler (cc) for the scripted NVML"
    if place == "traceml" and not launcher().is_file():
        return "it needs its own environment: python benchmarks/traceml_environment.py"
    return ""


def build_nvml(folder: Path) -> Path:
    """Compile the library that stands for the driver's."""
    library = folder / "libnvidia-ml.so.1"
    command = ["cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*command, str(HERE / "fake_nvml.c"), "-o", str(library)], check=True)
    return library


def with_nvml(variants: Sequence[str], *, steps: int, accelerator: str) -> list[Run]:
    """Run the variants, in this order, in one process that finds a GPU through NVML: a scripted one, or the real one.

    Args:
        variants: Names.
        steps: Training steps of each.
        accelerator: ``gpu`` leaves the driver's own NVML in place.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        folder = Path(name)
        environ = dict(os.environ)
        library = ""
        if accelerator == "cpu":
            library = str(build_nvml(folder))
            environ["CUDA_VISIBLE_DEVICES"] = "0"
        results = str(folder / "results.jsonl")
        job = Job(variants=tuple(variants), steps=steps, accelerator=accelerator, results=results, nvml=library)
        return _runs([sys.executable, str(PROGRAM), json.dumps(asdict(job))], job, environ)


def under_traceml(variant: str, *, launched: bool, steps: int, accelerator: str) -> Run:
    """Run the variant in TraceML's environment.

    Args:
        variant: Name.
        launched: By TraceML's launcher, which attaches it to the fit; otherwise the same program without it.
        steps: Training steps.
        accelerator: Lightning's name.
    """
    with tempfile.TemporaryDirectory(prefix="overhead-") as name:
        folder = Path(name)
        results = str(folder / "results.jsonl")
        job = Job(variants=(variant,), steps=steps, accelerator=accelerator, results=results)
        program = [str(python()), str(PROGRAM)]
        if launched:
            program = [str(launcher()), "run", "--logs-dir", str(folder / "logs"), str(PROGRAM), "--args"]
        environ = {key: value for key, value in os.environ.items() if key != "GPUPROF"}
        (run,) = _runs([*program, json.dumps(asdict(job))], job, environ)
        if launched and not any((folder / "logs").rglob("final_summary.json")):
            raise RuntimeError("TraceML wrote no summary: it measured nothing")
        return run


def _runs(command: Sequence[str], job: Job, environ: dict[str, str]) -> list[Run]:
    finished = subprocess.run(
        command,
        cwd=HERE.parent,
        env={**environ, "PYTHONPATH": os.pathsep.join([str(HERE.parent), environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    results = Path(job.results)
    lines = results.read_text(encoding="utf-8").splitlines() if results.is_file() else []
    if finished.returncode or len(lines) != len(job.variants):
        tail = (finished.stdout + finished.stderr)[-2000:]
        raise RuntimeError(f"the process for {', '.join(job.variants)} failed ({finished.returncode}):\n{tail}")
    return [Run(**json.loads(line)) for line in lines]
