"""What one environment's versions of Lightning and torch give; ``versions.py`` runs it there. Prints one line of JSON.

    python benchmarks/versions_probe.py --package lightning

Each part is a program of its own, so that one that fails takes no other with it. Of each thing that is looked for the
answer is an empty string, or why it is not there.
"""

import argparse
import contextlib
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

PACKAGES = {"lightning": "lightning.pytorch", "pytorch-lightning": "pytorch_lightning"}
"""Distribution and module of the two names that Lightning has."""
PARTS = ("fit", "compile", "ranks", "tab")
"""In order: the tab shows the fits before."""
STEPS = 60
WINDOW = (20, 23)
ITEM_S = 0.002
PATIENCE_S = 120
SHOWN = ("torch", "lightning", "pytorch-lightning", "tensorboard", "torch-tb-profiler", "numpy", "setuptools")


def toy(pl: Any, *, compiled: bool = False) -> Any:
    """A small model; its data take a while to load."""
    import torch

    class Toy(pl.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
            self.net = torch.compile(net) if compiled else net

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.net(batch).square().mean()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", self.net(batch).square().mean())

        def configure_optimizers(self) -> Any:
            return torch.optim.Adam(self.parameters())

    return Toy()


def slow_loader(size: int) -> Any:
    """Batches of which each takes ``ITEM_S``."""
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 4 * size

        def __getitem__(self, index: int) -> Any:
            time.sleep(ITEM_S / 4)
            return torch.full((16,), float(index % 7))

    return DataLoader(Rows(), batch_size=4)


def fitted(package: str, folder: Path, name: str, *, steps: int = STEPS, compiled: bool = False, ranks: int = 1) -> Any:
    """The profiler of a fit that is over."""
    import torch

    from lightning_gpuprof import GpuProfiler

    torch.set_num_threads(1)
    pl = import_module(PACKAGES[package])
    loggers = import_module(f"{PACKAGES[package]}.loggers")
    profiler = GpuProfiler(windows=[WINDOW], reports=["json", "html", "tensorboard"])
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        max_epochs=2,
        limit_train_batches=steps // 2,
        limit_val_batches=2,
        log_every_n_steps=5,
        logger=loggers.TensorBoardLogger(str(folder), name=name, version=0),
        default_root_dir=str(folder),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[profiler],
    )
    trainer.fit(toy(pl, compiled=compiled), slow_loader(steps), slow_loader(2))
    return profiler


def of_report(profiler: Any) -> dict[str, Any]:
    """Whether the measurement holds: its validity, and both sums."""
    from lightning_gpuprof.analyze.journal import read_journal

    report = profiler.report
    steps = read_journal(profiler.folder / "rank0.jsonl").steps
    apart_ns = abs(sum(steps.charged.values()) - steps.period_ns).max()
    wall_s = sum(report.wall.parts.values())
    unexplained_s = report.wall.parts["unexplained"]
    ledger_s = sum(row.total_s for row in report.ledger)
    sums = all(math.isclose(s, report.wall.total_s, rel_tol=1e-6) for s in (wall_s, ledger_s))
    (window,) = report.windows or (None,)
    return {
        "valid": "" if report.validity.ok else "; ".join(report.validity.caveats),
        "phases": "" if len(steps) == STEPS and apart_ns == 0 else f"{len(steps)} steps, {apart_ns} ns apart",
        "ledger": "" if sums and abs(unexplained_s) < 0.01 * wall_s else f"{unexplained_s:.3g} of {wall_s:.3g} s",
        "window": "no window" if window is None else _of_window(window),
        "told": [caveat for caveat in report.validity.caveats if "this version" in caveat or "switched off" in caveat],
    }


def _of_window(window: Any) -> str:
    """A trace that a busy machine has not analysed in time is one all the same."""
    if not window.file or (window.problem and not window.problem.startswith("the trace has not been analysed")):
        return str(window.problem or "no trace")
    if window.problem:
        return ""
    if not window.steps_us:
        return "no steps in it"
    return "" if window.analysis.attribution.modules else "no modules in it"


def fit(package: str, folder: Path) -> dict[str, Any]:
    """One fit: measurement, sums, window."""
    return of_report(fitted(package, folder, "fit"))


def compile_(package: str, folder: Path) -> dict[str, Any]:
    """A fit of a compiled module."""
    found = fitted(package, folder, "compile", compiled=True).report
    compiled = found.compile
    if not found.validity.ok:
        return {"compile": "; ".join(found.validity.caveats)}
    if compiled is None or not compiled.frames:
        return {"compile": "nothing is known of the compilation"}
    state = found.run.get("compile.state")
    return {"compile": "" if state == "submodules" else f"compile.state is {state}"}


def ranks(package: str, folder: Path) -> dict[str, Any]:
    """A fit of two ranks with gloo."""
    profiler = fitted(package, folder, "ranks", steps=STEPS, ranks=2)
    if profiler.report is None:  # rank 1
        return {}
    report = profiler.report
    journals = sorted(path.name for path in profiler.folder.glob("rank*.jsonl"))
    if journals != ["rank0.jsonl", "rank1.jsonl"]:
        return {"ranks": f"journals: {', '.join(journals)}"}
    if report.run.get("world_size") != 2 or report.run.get("trainer.backend") != "gloo":
        return {"ranks": f"{report.run.get('world_size')} ranks, {report.run.get('trainer.backend')}"}
    of_rank_0 = of_report(profiler)
    wrong = [f"{name}: {of_rank_0[name]}" for name in _LOOKED_FOR["fit"] if of_rank_0[name]]
    return {"ranks": "; ".join(wrong), "told": of_rank_0["told"]}


def tab(package: str, folder: Path) -> dict[str, Any]:
    """Both tabs of a started TensorBoard over the fits."""
    with tensorboard(folder) as ask:
        found = {"tab": _own_tab(ask)}
        with contextlib.suppress(metadata.PackageNotFoundError):
            metadata.version("torch-tb-profiler")
            found["data_loader"] = _profiler_tab(ask)
        return found


def _own_tab(ask: Callable[..., Any]) -> str:
    run = ask("gpuprof/runs", lambda found: found.get("rows"))["rows"][0]["name"]
    view = ask("gpuprof/view", lambda found: found.get("html"), run=run, view="overview")["html"]
    return "" if "steady steps" in view else "the overview does not say how many steps its numbers rest on"


def _profiler_tab(ask: Callable[..., Any]) -> str:
    def fits(found: dict[str, Any]) -> list[str]:
        return [run for run in found.get("runs", ()) if run.startswith("fit")]  # runs are found one after the other

    run = fits(ask("pytorch_profiler/runs", fits))[0]
    workers = ask("pytorch_profiler/workers", run=run, view="Overview")
    spans = ask("pytorch_profiler/spans", run=run, worker=workers[0])
    overview = ask("pytorch_profiler/overview", run=run, worker=workers[0], span=spans[0], view="Overview")
    at = [column.get("name") for column in overview["steps"]["columns"]].index("DataLoader")
    return "" if all(row[at] > 0 for row in overview["steps"]["rows"]) else "DataLoader is 0"


@contextlib.contextmanager
def tensorboard(logdir: Path) -> Iterator[Callable[..., Any]]:
    """A started TensorBoard: what asks one of its plugins until the answer is the one that is waited for."""
    log = logdir / "server.log"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logdir), "--port", "0", "--host", "127.0.0.1"]
    with log.open("w") as out:
        process = subprocess.Popen([*command, "--load_fast", "false"], stdout=out, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + PATIENCE_S

    def waited(look: Callable[[], Any]) -> Any:
        while not (found := look()):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"TensorBoard does not answer: {log.read_text()[-1000:]}")
            time.sleep(0.2)
        return found

    try:
        address = waited(lambda: next((w for w in log.read_text().split() if w.startswith("http://127.0.0.1:")), ""))

        def ask(path: str, until: Callable[[Any], object] = bool, **query: object) -> Any:
            url = f"{address.rstrip('/')}/data/plugin/{path}?{urllib.parse.urlencode(query)}"

            def look() -> Any:
                try:
                    with urllib.request.urlopen(url, timeout=30) as response:
                        found = json.load(response)
                except (urllib.error.HTTPError, json.JSONDecodeError):
                    return None
                return found if found and until(found) else None

            return waited(look)

        yield ask
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


_RUN: dict[str, Callable[[str, Path], dict[str, Any]]] = {
    "fit": fit,
    "compile": compile_,
    "ranks": ranks,
    "tab": tab,
}
_LOOKED_FOR = {
    "fit": ("valid", "phases", "ledger", "window"),
    "compile": ("compile",),
    "ranks": ("ranks",),
    "tab": ("tab", "data_loader"),
}
CHECKS = tuple(check for part in PARTS for check in _LOOKED_FOR[part])
"""What is looked for, in order."""


def apart(part: str, package: str, folder: Path) -> dict[str, Any]:
    """A part in a process of its own."""
    answer = folder / f"{part}.json"
    command = [sys.executable, __file__, "--package", package, "--part", part, "--folder", str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=folder)
    except subprocess.TimeoutExpired:
        return dict.fromkeys(_LOOKED_FOR[part], "it took longer than 600 s")
    if done.returncode or not answer.is_file():
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        return dict.fromkeys(_LOOKED_FOR[part], f"exit code {done.returncode}: {' | '.join(lines[-3:])[-600:]}")
    found: dict[str, Any] = json.loads(answer.read_text())
    return found


def probe(package: str, parts: Sequence[str]) -> dict[str, Any]:
    """All parts with the versions that they were looked for in."""
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = {}
        told: list[str] = []
        for part in parts:
            answer = apart(part, package, Path(folder))
            told += answer.pop("told", [])
            found |= answer
    return {"versions": versions(), "told": sorted(set(told)), "checks": found}


def versions() -> dict[str, str]:
    """Of what is installed; for torch what it says itself, which names its build."""
    found = {"python": platform.python_version()}
    for name in SHOWN:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    with contextlib.suppress(ImportError):
        found["torch"] = import_module("torch").__version__
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 if something is not there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--package", choices=PACKAGES, default="lightning")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.part:
        if answer := _RUN[options.part](options.package, options.folder):
            (options.folder / f"{options.part}.json").write_text(json.dumps(answer))
        return 0
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    found = probe(options.package, options.parts)
    print(json.dumps(found))
    return int(any(found["checks"].values()))


if __name__ == "__main__":
    sys.exit(main())
