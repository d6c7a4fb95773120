"""DeepSpeed's own engine (ZeRO 2) on two ranks without a GPU: phases and the late rank; ``make launchers``."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from python_process import run_python

from lightning_gpuprof.job_ranks import job_ranks
from lightning_gpuprof.pipeline import load_report

PROGRAM = """
import os
import torch
from forked_ranks import forked_ranks
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy
from planted_runs import Planted, Sleepy, quiet_profiler, trainer_for
from torch.utils.data import DataLoader

class WithoutGpu(DeepSpeedStrategy):
    # Lightning asks for a CUDA GPU; DeepSpeed does not.
    def setup_environment(self):
        self.parallel_devices = [torch.device("cpu", number) for number in range(2)]
        DDPStrategy.setup_environment(self)

def train(rank):
    strategy = WithoutGpu(stage=2, process_group_backend="gloo", logging_batch_size_per_gpu=1)
    trainer = trainer_for(None, [quiet_profiler(dirpath="run")], strategy=strategy, devices=2)
    sleeps = {"training_step": 0.034 if rank else 0.004, "backward": 0.006, "step": 0.003}
    trainer.fit(Planted(sleeps), DataLoader(Sleepy(160)))

if __name__ == "__main__":
    torch.set_num_threads(1)
    ranks = forked_ranks(train)
    raise SystemExit(any([os.waitpid(rank, 0)[1] for rank in ranks]))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("deepspeed") is None, reason="deepspeed is not installed: make launchers"),
]


def test_phases_are_told_apart_and_the_late_rank_is_named_with_its_phase(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    run_python("program.py", cwd=tmp_path, timeout_s=800, DS_ACCELERATOR="cpu")  # at first, DeepSpeed compiles
    report = load_report(tmp_path / "run")
    took_ms = {row.phase: row.median_ms for row in report.phases}
    assert took_ms["forward"] >= 4
    assert took_ms["backward"] >= 6
    assert took_ms["optimizer"] >= 3
    late, *_ = job_ranks(tmp_path / "run").findings
    assert (late.rule, late.subject) == ("straggler-rank", "rank 1")
    assert "most of it in forward" in late.summary
