"""All ranks of a job know the same of it, and no other job does."""

import os
import pickle
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from python_process import run_python

from lightning_gpuprof import GpuProfiler
from lightning_gpuprof.capture.output_folder import Origin, launch_key


def rank(number: int = 0, *, ranks: int = 2, nodes: int = 1) -> Any:
    return SimpleNamespace(world_size=ranks, num_nodes=nodes, local_rank=number)


def test_what_the_launcher_told_all_ranks_counts_and_what_it_told_one_does_not() -> None:
    launched = {"MASTER_ADDR": "node1", "MASTER_PORT": "12910", "LOCAL_RANK": "0"}
    job = launch_key(rank(nodes=2), Origin(), launched)
    assert launch_key(rank(nodes=2), Origin(), {**launched, "LOCAL_RANK": "1"}) == job
    assert launch_key(rank(nodes=2, ranks=3), Origin(), launched) != job
    for name in ("MASTER_PORT", "SLURM_JOB_ID", "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"):
        assert launch_key(rank(nodes=2), Origin(), {**launched, name: "1"}) != job


def test_ranks_that_were_spawned_share_what_was_handed_to_them() -> None:
    here, elsewhere = Origin(), Origin(pid=os.getpid() + 1)
    assert here.shared_token == ""
    handed = pickle.loads(pickle.dumps(elsewhere))
    assert launch_key(rank(0), handed, {}) == launch_key(rank(1), elsewhere, {})
    assert launch_key(rank(0), Origin(pid=os.getpid() + 1), {}) != launch_key(rank(0), elsewhere, {})
    profiler = GpuProfiler()
    assert pickle.loads(pickle.dumps(profiler))._origin == profiler._origin
    # Each node has its own: nothing that only one of them knows may be asked of all.
    assert launch_key(rank(0, nodes=2), elsewhere, {}) == launch_key(rank(0, nodes=2), here, {})


def test_two_starts_of_torchrun_differ_though_their_run_id_is_none(tmp_path: Path) -> None:
    def launched(start: str, number: int, nodes: int = 1) -> dict[str, str]:
        file = tmp_path / start / "attempt_0" / str(number) / "error.json"
        return {
            "TORCHELASTIC_RUN_ID": "none",
            "MASTER_PORT": "29500",
            "TORCHELASTIC_ERROR_FILE": str(file),
            "GROUP_WORLD_SIZE": str(nodes),
        }

    first = launch_key(rank(0), Origin(), launched("none_a", 0))
    assert launch_key(rank(1), Origin(), launched("none_a", 1)) == first
    assert launch_key(rank(0), Origin(), launched("none_b", 0)) != first
    assert launch_key(rank(0), Origin(), launched("a", 0, nodes=2)) == launch_key(
        rank(2), Origin(), launched("b", 0, nodes=2)
    )


@pytest.mark.slow
def test_runs_of_two_and_of_three_forked_ranks_are_kept_apart(tmp_path: Path) -> None:
    program = (
        "from planted_runs import *\n"
        "for ranks in (2, 3):\n"
        f"    trainer = trainer_for({str(tmp_path)!r}, [quiet_profiler()], strategy='ddp_fork', devices=ranks)\n"
        "    trainer.fit(Planted(), DataLoader(Sleepy(6)))\n"
    )
    run_python("-c", program)
    journals = {folder.name: sorted(file.name for file in folder.glob("rank*.jsonl")) for folder in tmp_path.iterdir()}
    both = ["rank0.jsonl", "rank1.jsonl"]
    assert journals == {"gpuprof": both, "gpuprof-2": [*both, "rank2.jsonl"]}


@pytest.mark.slow
def test_ranks_that_somebody_starts_by_hand_share_a_folder(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from planted_runs import *\n"
        f"trainer = trainer_for({str(tmp_path / 'run')!r}, [quiet_profiler()], strategy='ddp', devices=2)\n"
        "trainer.fit(Planted(), DataLoader(Sleepy(6)))\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        launched = {
            **os.environ,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free.getsockname()[1]),
            "WORLD_SIZE": "2",
        }
    ranks = [
        subprocess.Popen(
            [sys.executable, str(program)], env={**launched, "LOCAL_RANK": str(number), "RANK": str(number)}
        )
        for number in range(2)
    ]
    assert [one.wait(timeout=240) for one in ranks] == [0, 0]
    assert [folder.name for folder in (tmp_path / "run").iterdir()] == ["gpuprof"]
    assert sorted(file.name for file in (tmp_path / "run").rglob("rank*.jsonl")) == ["rank0.jsonl", "rank1.jsonl"]
