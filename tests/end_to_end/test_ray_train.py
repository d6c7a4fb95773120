"""Two workers of Ray Train, one of which is killed, and those that Ray starts in their place; ``make launchers``."""

from pathlib import Path

import pytest
from python_process import run_python

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.job_ranks import job_ranks

pytest.importorskip("ray", reason="ray is not installed: make launchers")

PROGRAM = """
import os, signal, sys, time
import ray
from planted_runs import Planted, Sleepy, quiet_profiler, trainer_for
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, prepare_trainer
from ray.train.torch import TorchTrainer
from torch.utils.data import DataLoader

def train(store):
    class Killed(Planted):
        def training_step(self, batch, batch_idx):
            if self.global_rank == 1 and batch_idx == 20 and not os.path.exists(f"{store}/killed"):
                open(f"{store}/killed", "w").close()
                while not os.path.exists(f"{store}/run/gpuprof/rank1.summary.json"):
                    time.sleep(0.1)
                os.kill(os.getpid(), signal.SIGKILL)
            return super().training_step(batch, batch_idx)

    trainer = trainer_for(
        None, [quiet_profiler()], devices="auto", strategy=RayDDPStrategy(), plugins=[RayLightningEnvironment()]
    )
    prepare_trainer(trainer).fit(Killed(), DataLoader(Sleepy(60)))

ray.init(num_cpus=2, include_dashboard=False)
run = RunConfig(storage_path=sys.argv[1], name="run", failure_config=FailureConfig(max_failures=1))
TorchTrainer(train, train_loop_config=sys.argv[1], scaling_config=ScalingConfig(num_workers=2), run_config=run).fit()
"""

pytestmark = pytest.mark.slow


def test_ranks_leave_their_files_in_the_storage_of_the_run_also_when_a_worker_is_killed(tmp_path: Path) -> None:
    program, store = tmp_path / "program.py", tmp_path / "store"
    program.write_text(PROGRAM)
    store.mkdir()
    run_python(program, store, timeout_s=800)
    killed, again = (store / "run" / name for name in ("gpuprof", "gpuprof-2"))
    job = job_ranks(killed)
    assert job.answer.startswith("Rank 1 was killed after ")
    assert job.ranks[0].state == "failed"
    assert [(one.rank, one.state) for one in job_ranks(again).ranks] == [(0, "finished"), (1, "finished")]
    for folder in (killed, again):
        headers = [read_journal(folder / f"rank{rank}.jsonl").header for rank in range(2)]
        assert [(one.rank, one.world_size) for one in headers] == [(0, 2), (1, 2)]
        assert len({one.job for one in headers}) == 1
