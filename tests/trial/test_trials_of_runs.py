"""Real fits and their trials: advice is taken of a run that was made as the program is now, and of no other."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from slow_loader import MAIN

PROGRAM = f"""{MAIN}
Trainer(max_epochs=1, accelerator="cpu", enable_progress_bar=False).fit(
    Model(), DataLoader(Slow(240, 0.005), batch_size=4, num_workers=WORKERS)
)
"""


@pytest.mark.slow
def test_advice_is_that_of_a_run_made_as_the_program_is_now(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    train = [sys.executable, "train.py"]

    def tried(*words: str) -> str:
        command = [sys.executable, "-m", "lightning_gpuprof", "try", "--seconds", "5", "--", *train, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stderr

    script.write_text(PROGRAM.replace("WORKERS", "0"))
    subprocess.run([*train, "1"], cwd=tmp_path, env={**os.environ, "GPUPROF": "1"}, capture_output=True, check=True)
    [run] = tmp_path.rglob("gpuprof/report.json")

    said = tried("2")
    assert "no run of this command is here: profiling" in said
    assert "advice of gpuprof-try/train-1 (train.py 2, " in said

    script.write_text(PROGRAM.replace("WORKERS", "1"))
    said = tried("1")
    assert f"advice of {run.parent.relative_to(tmp_path)} (train.py 1, " in said
    assert "it was made with other settings: num_workers was 0 and is 1 now" in said
    assert "advice of gpuprof-try/train-2 (train.py 1, " in said
