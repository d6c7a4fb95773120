"""Two ranks that are the stages of a pipeline of torch.distributed.pipelining, the first one slow."""

from pathlib import Path

import pytest
from python_process import run_python

from lightning_gpuprof.analyze.rank_summary import left_by
from lightning_gpuprof.job_ranks import job_ranks

PROGRAM = """
import os, time
import torch
from forked_ranks import forked_ranks
from lightning.pytorch.strategies import ModelParallelStrategy
from planted_runs import Planted, Sleepy, quiet_profiler, trainer_for
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.utils.data import DataLoader

class Pipelined(ModelParallelStrategy):
    def setup_environment(self):
        super().setup_environment()
        names = ("pp", "data_parallel", "tensor_parallel")
        self._device_mesh = init_device_mesh("cpu", (2, 1, 1), mesh_dim_names=names)

class Stage(torch.nn.Linear):
    def forward(self, x):
        time.sleep(self.seconds)
        return super().forward(x)

class Net(Planted):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.layer = Stage(8, 8)
    def configure_model(self):
        self.layer.seconds = 0.003 if self.global_rank else 0.013
        group = self.trainer.strategy.device_mesh["pp"].get_group()
        stage = PipelineStage(self.layer, self.global_rank, 2, torch.device("cpu"), group=group)
        self.schedule = ScheduleGPipe(stage, 4, loss_fn=torch.nn.functional.mse_loss)
    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        if self.global_rank:
            self.schedule.step(target=batch)
        else:
            self.schedule.step(batch)
        optimizer.step()

def train(rank):
    strategy = Pipelined(2, 1, process_group_backend="gloo")
    profiler = quiet_profiler(dirpath="run", host=True)
    trainer_for(None, [profiler], strategy=strategy, devices=2).fit(Net(), DataLoader(Sleepy(320), batch_size=4))

if __name__ == "__main__":
    torch.set_num_threads(1)
    ranks = forked_ranks(train)
    raise SystemExit(any([os.waitpid(rank, 0)[1] for rank in ranks]))
"""

pytestmark = pytest.mark.slow


def test_each_rank_knows_its_stage_and_the_slow_stage_is_the_late_rank(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    run_python("program.py", cwd=tmp_path)
    left = [left_by(tmp_path / "run" / f"rank{rank}.jsonl") for rank in range(2)]
    assert [one and one.pipeline_stage for one in left] == [0, 1]
    late, *_ = job_ranks(tmp_path / "run").findings
    assert (late.rule, late.subject) == ("straggler-rank", "rank 0")
    assert "most of it in forward" in late.summary
