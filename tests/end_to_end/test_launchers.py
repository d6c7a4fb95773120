"""Ranks that torchrun, SLURM and Kubernetes start: those of one job share a folder, and no other job gets into it."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lightning_gpuprof.job_ranks import job_ranks

PROGRAM = """
import os, sys
import torch
from lightning.fabric.plugins.environments import KubeflowEnvironment
from torch.utils.data import DataLoader
from planted_runs import Planted, Sleepy, quiet_profiler, trainer_for

def train(folder, **options):
    trainer_for(folder, [quiet_profiler()], strategy="ddp", devices=1, num_nodes=2, **options).fit(
        Planted(), DataLoader(Sleepy(30))
    )

def launched(folder, ranks, **options):
    pids = []
    for environ in ranks:
        if not (pid := os.fork()):
            os.environ |= environ
            train(folder, **options)
            os._exit(0)
        pids.append(pid)
    assert not any([os.waitpid(pid, 0)[1] for pid in pids]), folder

def slurm(port, restart):
    for rank in ("0", "1"):
        yield {
            "SLURM_JOB_ID": "4711", "SLURM_JOB_NAME": "train", "SLURM_NTASKS": "2", "SLURM_NTASKS_PER_NODE": "1",
            "SLURM_NODELIST": "127.0.0.1", "SLURM_PROCID": rank, "SLURM_NODEID": rank, "SLURM_LOCALID": "0",
            "SLURM_RESTART_COUNT": restart, "MASTER_PORT": port,
        }

def kubernetes(port):
    for rank in ("0", "1"):
        yield {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": rank}

if __name__ == "__main__":
    torch.set_num_threads(1)
    if "TORCHELASTIC_RUN_ID" in os.environ:
        train(sys.argv[1])
    else:
        folder, *ports = sys.argv[1:]
        launched(f"{folder}/kubernetes", kubernetes(ports[0]), plugins=[KubeflowEnvironment()])
        for restart in ("0", "1"):  # requeued, with the port of before
            launched(f"{folder}/slurm", slurm(ports[1], restart))
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launchers")
    program = folder / "program.py"
    program.write_text(PROGRAM)
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports = [str(server.getsockname()[1]) for server in servers]
    for server in servers:
        server.close()
    torchrun = [*("-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1")]
    torchrun += ["--master-addr", "127.0.0.1", "--master-port", ports[2]]
    nodes = [
        [sys.executable, *torchrun, "--node-rank", node, str(program), str(folder / "torchrun")] for node in ("0", "1")
    ]
    programs = [subprocess.Popen(words) for words in [*nodes, [sys.executable, str(program), str(folder), *ports[:2]]]]
    assert [one.wait(timeout=240) for one in programs] == [0, 0, 0]
    return folder


@pytest.mark.parametrize(
    ("launcher", "runs"),
    [("torchrun", ["gpuprof"]), ("kubernetes", ["gpuprof"]), ("slurm", ["gpuprof", "gpuprof-2"])],
)
def test_the_ranks_of_a_job_share_a_folder_and_a_requeued_job_gets_its_own(
    folder: Path, launcher: str, runs: list[str]
) -> None:
    found = sorted(path for path in (folder / launcher).iterdir() if path.is_dir())
    assert [path.name for path in found] == runs
    for run in found:
        assert [(one.rank, one.state) for one in job_ranks(run).ranks] == [(0, "finished"), (1, "finished")]
