"""What is left of a measurement where a version of Lightning or torch has renamed a private part that ours asks for.

A program: ``python renamed_parts.py FOLDER`` prints one line of JSON for each part. That ours asks for another name is
the same to it as that they have another: each part is renamed in the source of our adapters while they are imported,
in a forked process, which then trains for a few steps.
"""

import ast
import contextlib
import functools
import importlib.util
import json
import os
import pkgutil
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from msgspec.structs import replace

import lightning_gpuprof

PACKAGE = "lightning_gpuprof"
SOURCE = Path(lightning_gpuprof.__file__).parent
ADAPTERS = SOURCE / "capture"
RENAMED = "_of_tomorrow"
STEPS = 12
USES = {
    "trace": ("background_stop", "foreign_profilers", "torch_tracer"),
    "input": ("input/", "host/"),
    "compile": ("compilation/", "compile_facts"),
}
"""What a training has to have for these of our adapters to do anything."""
STAGES = ("fit", "validate", "predict")
_PRIVATE = re.compile(r"_[A-Za-z]\w*")


@functools.cache
def private_names() -> dict[str, set[str]]:
    """Names with one underscore in our adapters that nothing of ours has, and in which files: the frameworks'."""
    trees = [ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")]
    ours = {name for tree in trees for node in ast.walk(tree) for name in _defined(node)}
    asked: dict[str, set[str]] = {}
    for path in sorted(ADAPTERS.rglob("*.py")):
        for name in (name for node in _nodes(ast.parse(path.read_text())) for name in _asked(node)):
            asked.setdefault(name, set()).add(path.relative_to(ADAPTERS).as_posix())
    return {name: where for name, where in sorted(asked.items()) if name not in ours}


def _defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
        yield node.attr


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All but docstrings."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return (node for node in ast.walk(tree) if not (isinstance(node, ast.Constant) and id(node) in docs))


def _asked(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        found = [node.attr]
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        found = node.value.split(".")
    elif isinstance(node, ast.ImportFrom):
        found = [
            part for path in (node.module or "", *(alias.name for alias in node.names)) for part in path.split(".")
        ]
    else:
        found = []
    return [name for name in found if _PRIVATE.fullmatch(name)]


class _Renaming(ast.NodeTransformer):
    def __init__(self, name: str) -> None:
        self._name = name

    def _new(self, path: str) -> str:
        return ".".join(f"{part}{RENAMED}" if part == self._name else part for part in path.split("."))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        node.attr = self._new(node.attr)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str):
            node.value = self._new(node.value)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        node.module = self._new(node.module) if node.module else None
        for alias in node.names:
            alias.asname, alias.name = alias.asname or alias.name, self._new(alias.name)
        return node


class _Finder(MetaPathFinder, Loader):
    """Imports adapters in which the name occurs, renamed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if not fullname.startswith(f"{PACKAGE}.capture."):
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None or self._name not in Path(spec.origin).read_text():
            return None
        return importlib.util.spec_from_file_location(fullname, spec.origin, loader=self)  # type: ignore[arg-type]

    def exec_module(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        tree = _Renaming(self._name).visit(ast.parse(Path(module.__file__).read_text()))
        exec(compile(ast.fix_missing_locations(tree), module.__file__, "exec"), vars(module))


def rename(name: str) -> None:
    """From now on our adapters ask for another name."""
    for module in [m for m in sys.modules if m.startswith((f"{PACKAGE}.capture", f"{PACKAGE}.callback"))]:
        del sys.modules[module]
    vars(sys.modules[PACKAGE]).pop("GpuProfiler", None)
    sys.meta_path.insert(0, _Finder(name))


def used_by(files: set[str]) -> str:
    """What the training of a name has to have."""
    return " ".join(use for use, places in USES.items() if any(place in file for place in places for file in files))


def edges(stage: str) -> list[str]:
    """Methods of Lightning that ours stand in for in a stage."""
    loop_edges: Any = importlib.import_module(f"{PACKAGE}.capture.lightning_loops").LoopEdges
    one = object.__new__(loop_edges)
    one.stage, one.trainer, one.tap = stage, SimpleNamespace(world_size=1), SimpleNamespace(place=None)
    return [edge.path for edge in one.patch_points()]


def rename_edge(path: str) -> None:
    """From now on one method of Lightning's is asked for by another name."""
    loop_edges: Any = importlib.import_module(f"{PACKAGE}.capture.lightning_loops").LoopEdges
    wanted = loop_edges.patch_points
    loop_edges.patch_points = lambda self: [
        replace(edge, path=f"{edge.path}{RENAMED}") if edge.path == path else edge for edge in wanted(self)
    ]


def train(folder: Path, stage: str, uses: str) -> dict[str, Any]:
    """A fit or another stage; what of it was measured, and what was said."""
    import lightning.pytorch as pl
    import torch
    from lightning.pytorch.demos.boring_classes import RandomDataset
    from lightning.pytorch.loggers import CSVLogger
    from torch.utils.data import DataLoader

    profiler_class = importlib.import_module(f"{PACKAGE}.callback").GpuProfiler
    config = importlib.import_module(f"{PACKAGE}.model.config").TraceConfig

    class Model(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            layer = torch.nn.Linear(32, 2)
            self.layer = torch.compile(layer, backend="eager") if "compile" in uses else layer

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            loss = self.layer(batch).square().mean()
            self.log("loss", loss)
            return loss

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val_loss", self.layer(batch).square().mean())

        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layer(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def loader(size: int, workers: int = 0) -> Any:
        return DataLoader(RandomDataset(32, size), num_workers=workers)

    windows = [(4, 5)] if "trace" in uses else []
    profiler = profiler_class(reports=["tensorboard"], windows=windows, trace=config(warmup=1), nvml=False)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        trainer = pl.Trainer(
            accelerator="cpu",
            max_epochs=2,
            limit_train_batches=STEPS // 2,
            num_sanity_val_steps=1,
            default_root_dir=folder,
            logger=CSVLogger(folder, name="logs"),
            log_every_n_steps=3,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[profiler],
        )
        model = Model()
        if stage == "fit":
            trainer.fit(model, loader(STEPS, workers=int("input" in uses)), loader(3))
            assert trainer.global_step == STEPS
        elif stage == "validate":
            trainer.validate(model, loader(STEPS), verbose=False)
        else:
            assert len(trainer.predict(model, loader(STEPS)) or []) == STEPS
    return {**_measured(profiler.folder), "warned": [str(w.message) for w in told if "gpuprof" in str(w.message)]}


def _measured(folder: Path) -> dict[str, Any]:
    from lightning_gpuprof.analyze.journal import read_journal
    from lightning_gpuprof.pipeline import make_report

    report, journal = make_report(folder), read_journal(folder / "rank0.jsonl")
    steps = journal.steps
    return {
        "steps": len(steps),
        "apart_ns": int(abs(sum(steps.charged.values()) - steps.period_ns).max()) if len(steps) else 0,
        "wall_apart_s": abs(sum(report.wall.parts.values()) - report.wall.total_s),
        "parts": [part for part, seconds in report.wall.parts.items() if seconds > 0],
        "phases": [row.phase for row in report.phases if row.total_s > 0],
        "windows": len(report.windows),
        "conditions": len(report.run.keys() - {"model.gradients_kept"}),  # which is looked at in a step
        "input": report.input is not None,
        "told": sorted(f"{notice.part}: {notice.message}" for notice in journal.notices),
    }


def apart(prepare: Callable[[], object], folder: Path, stage: str, uses: str) -> dict[str, Any]:
    """The training in a forked process; ``error`` is why it did not come to its end."""
    folder.mkdir(parents=True)
    child = os.fork()
    if not child:
        try:
            with (folder / "output.txt").open("w") as out, contextlib.redirect_stdout(out):
                os.dup2(out.fileno(), 2)
                prepare()
                found = train(folder, stage, uses)
        except BaseException:
            found = {"error": traceback.format_exc()[-1500:]}
        (folder / "found.json").write_text(json.dumps(found))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    file = folder / "found.json"
    answer: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {"error": f"ended with {status}"}
    return answer


def main(folder: Path) -> None:
    """All parts, the first one with nothing renamed."""
    import torch

    in_common = ["lightning.pytorch.demos.boring_classes", "torch._dynamo", "torch.utils.tensorboard"]
    rooms = ("model", "analyze", "trace", "rules", "sinks")
    in_common += [m.name for m in pkgutil.walk_packages([str(SOURCE)], f"{PACKAGE}.") if m.name.split(".")[1] in rooms]
    for module in [*in_common, f"{PACKAGE}.end_of_run"]:  # once for all
        importlib.import_module(module)

    torch.set_num_threads(1)
    cases: list[tuple[str, str, str, Callable[[], object]]] = []
    used = {used_by(where) for where in private_names().values()} - {""}
    cases += [("fit", "", uses, lambda: None) for uses in sorted(used)]
    cases += [(stage, "", "", lambda: None) for stage in STAGES]
    for name, where in private_names().items():
        cases.append(("fit", name, used_by(where), lambda name=name: rename(name)))
    cases += [(stage, path, "", lambda path=path: rename_edge(path)) for stage in STAGES for path in edges(stage)]
    only = sys.argv[2:]
    for number, (stage, name, uses, prepare) in enumerate(cases):
        if not only or name in only:
            found = apart(prepare, folder / str(number), stage, uses)
            print(json.dumps({"stage": stage, "name": name, "uses": uses, **found}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
