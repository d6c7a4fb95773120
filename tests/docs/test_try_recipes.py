"""The recipes of ``docs/try.md``, done with a short program that loads slowly."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from doc_blocks import ROOT, blocks_of
from slow_loader import MAIN

PAGE = ROOT / "docs" / "try.md"
SCRIPT = """
Trainer(max_epochs=100, accelerator="cpu").fit(Model(), DataLoader(Slow(), batch_size=4, num_workers=0))
"""
CLI = """
class Data(LightningDataModule):
    def __init__(self, num_workers: int = 0):
        super().__init__()
        self.num_workers = num_workers
    def train_dataloader(self):
        return DataLoader(Slow(), batch_size=4, num_workers=self.num_workers)

if __name__ == "__main__":
    LightningCLI(Model, Data)
"""
YAML = """\
trainer:
  max_epochs: 100
  accelerator: cpu
data:
  num_workers: 0
"""


def recipe(heading: str) -> list[list[str]]:
    """Its commands as words, without Slurm, for a few seconds each."""
    page = PAGE.read_text()
    first = page[: page.index(f"### {heading}\n")].count("\n")
    last = first + re.split(r"\n##", page[page.index(f"### {heading}\n") :], maxsplit=1)[0].count("\n")
    lines = [block.text.strip() for block in blocks_of(PAGE, "sh") if first < block.line < last + 2]
    found = []
    for line in lines:
        words = shlex.split(line)[shlex.split(line).index("gpuprof") + 1 :]
        if "--" in words:
            end = words.index("--")
            words[end : end + 2] = ["--seconds", "8", "--", sys.executable]
        found.append([sys.executable, "-m", "lightning_gpuprof", *words])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("heading", ["A script", "LightningCLI with a YAML", "Loader settings on a cluster node"])
def test_a_recipe_finds_the_slow_loader(heading: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(MAIN + SCRIPT)
    (tmp_path / "main.py").write_text(MAIN + CLI)
    (tmp_path / "my.yaml").write_text(YAML)
    commands = recipe(heading)
    assert commands
    output = ""
    for words in commands:
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        output += done.stdout + done.stderr
    assert re.search(r"num_workers=\d.*worth it", output), output
    if any("--patch" in words for words in commands):
        assert re.search(r"^\+.*num_workers[=:] ?\d", output, re.MULTILINE), output
    left = {path.name for path in tmp_path.iterdir()} - {"train.py", "main.py", "my.yaml", "__pycache__"}
    assert left <= {"gpuprof-try"}
