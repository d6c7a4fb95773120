"""What the documentation shows, done: Python blocks run, configurations parse, commands of ours are understood."""

import functools
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_traces
import yaml
from doc_blocks import ROOT, Block, all_blocks, blocks_of, commands_of, pages

from lightning_gpuprof.cli.main import main, make_parser, split_program
from lightning_gpuprof.pipeline import make_report
from lightning_gpuprof.sinks import json_report

PYTHON_PAGES = [page for page in pages() if any(block.runs for block in blocks_of(page, "python"))]


def readers_names() -> dict[str, Any]:
    """What examples take from their reader's script: a model, data, functions, a trainer that suits any machine."""
    import torch
    from lightning.pytorch import Trainer
    from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel, RandomDataset

    from lightning_gpuprof import GpuProfiler, annotate

    def anything(value: object = None) -> object:
        return value

    class Script:
        augment = staticmethod(anything)

    quiet = functools.partial(
        Trainer,
        accelerator="cpu",
        max_steps=12,
        limit_val_batches=0,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    functions = dict.fromkeys(("read", "draw", "upload"), anything)
    functions["decode"] = lambda index: torch.zeros(32, 32)  # type: ignore[assignment,misc]
    return {
        "GpuProfiler": GpuProfiler,
        "annotate": annotate,
        "Trainer": quiet,
        "model": BoringModel(),
        "data": BoringDataModule(),
        "dataset": RandomDataset(32, 64),
        "batch": torch.zeros(4, 32),
        "self": Script(),
        **functions,
    }


@pytest.fixture
def readers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the runs and the trace that examples name."""
    from sample_journals import write_journal

    for run in ("runs/before", "runs/after", "runs/candidate", "lightning_logs/version_0", "lightning_logs/version_1"):
        folder = tmp_path / run / "gpuprof"
        folder.mkdir(parents=True)
        write_journal(folder / "rank0.jsonl", 300, tick_ns=1_000_000)
    trace = gzip.compress(tiny_traces.kineto_text(tiny_traces.training_step()).encode())
    for file in ("trace.json.gz", "lightning_logs/version_0/gpuprof/rank0.1.pt.trace.json.gz"):
        (tmp_path / file).write_bytes(trace)
    (tmp_path / "baseline").mkdir()
    json_report.write(make_report(tmp_path / "runs" / "before"), tmp_path / "baseline" / "report.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_of_a_page_run_one_after_the_other(page: Path, readers_folder: Path) -> None:
    names = {"__name__": "__main__", **readers_names()}
    for block in blocks_of(page, "python"):
        if block.runs:
            # Blank lines before it: a traceback names the line of the page.
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
            exec(code, names)


def test_blocks_that_do_not_run_are_python_all_the_same() -> None:
    for block in all_blocks("python"):
        if not block.runs and "reference" not in block.page.parts:
            compile(block.text, block.where, "exec", dont_inherit=True)


CONFIGURATIONS = [block for block in all_blocks("yaml") if block.runs and "trainer" in yaml.safe_load(block.text)]


@pytest.mark.parametrize("block", CONFIGURATIONS, ids=lambda block: block.where)
def test_a_configuration_parses(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lightning.pytorch.cli import LightningCLI
    from lightning.pytorch.demos.boring_classes import BoringDataModule, BoringModel

    from lightning_gpuprof import GpuProfiler

    loaded = yaml.safe_load(block.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    for variable in ("PL_GLOBAL_SEED", "PL_SEED_WORKERS"):  # Lightning sets them for the whole process
        monkeypatch.setenv(variable, "0")
    config = tmp_path / "config.yaml"
    config.write_text(block.text)
    cli = LightningCLI(
        BoringModel, BoringDataModule, run=False, save_config_callback=None, args=["--config", str(config)]
    )
    named = [callback["class_path"] for callback in loaded["trainer"]["callbacks"]]
    ours = [callback for callback in cli.trainer.callbacks if isinstance(callback, GpuProfiler)]
    assert len(ours) == sum(name.endswith(".GpuProfiler") for name in named)


def texts_of(value: object) -> list[str]:
    """All strings of a document."""
    if isinstance(value, dict):
        return [text for one in value.values() for text in texts_of(one)]
    if isinstance(value, list):
        return [text for one in value for text in texts_of(one)]
    return [value] if isinstance(value, str) else []


def test_commands_in_yaml_of_others_are_understood() -> None:
    """Such as the pipelines of a continuous integration."""
    for block in all_blocks("yaml"):
        for text in texts_of(yaml.safe_load(block.text)):
            if "gpuprof " in text:
                check_commands(Block(page=block.page, line=block.line, language="sh", runs=True, text=text))


@pytest.mark.parametrize("block", all_blocks("sh", "bash", "console"), ids=lambda block: block.where)
def test_commands_are_understood(block: Block) -> None:
    """The grammar by the shell, commands of ours by our own parser, targets of make by the Makefile."""
    if block.language != "console":
        checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
    check_commands(block)


def check_commands(block: Block) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    for words in commands_of(block):
        if words[0] == "gpuprof":
            make_parser().parse_args(split_program(words[1:])[0])
        elif words[0] == "make":
            assert set(words[1:]) <= set(targets), f"{block.where}: {words}"


def found_files(pattern: str) -> list[str]:
    """What the shell would put in place of a pattern here; nothing if nothing is there."""
    return [] if pattern.startswith("/") else sorted(map(str, Path().glob(pattern)))


def test_commands_that_find_their_files_do_what_they_say(
    readers_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = set()
    commands = {tuple(words): block for block in all_blocks("sh", "console") for words in commands_of(block)}
    for words, block in commands.items():
        if words[0] != "gpuprof" or words[1] not in ("report", "compare", "explain", "trace", "nsys-cmd"):
            continue
        given = [found_files(word) if "/" in word or ".json" in word else [word] for word in words[1:]]
        if not all(given):
            continue
        assert main([name for names in given for name in names]) == 0, f"{block.where}: {' '.join(words)}"
        assert capsys.readouterr().out
        ran.add(words[1])
    assert ran == {"report", "compare", "explain", "trace", "nsys-cmd"}


def test_a_wrong_option_or_target_would_be_seen() -> None:
    def block(text: str) -> Block:
        return Block(page=ROOT / "README.md", line=1, language="sh", runs=True, text=text)

    assert commands_of(block("A=1 gpuprof trace a.json \\\n  --html b | head  # why\nmake docs > log && ls")) == [
        ["gpuprof", "trace", "a.json", "--html", "b"],
        ["head"],
        ["make", "docs"],
        ["ls"],
    ]
    for wrong in ("gpuprof comparee a b", "gpuprof trace a.json --page b", "gpuprof compare a"):
        with pytest.raises(SystemExit):
            check_commands(block(wrong))
    with pytest.raises(AssertionError):
        check_commands(block("make nothing"))


def test_every_json_block_is_json() -> None:
    for block in all_blocks("json"):
        json.loads(block.text)
