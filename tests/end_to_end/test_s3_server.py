"""Two ranks that share nothing but a bucket of an S3 server; ``make launchers`` installs what they need."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from python_process import run_python

from lightning_gpuprof.cli.main import main

moto = pytest.importorskip("moto.server", reason="moto[server] is not installed: make launchers")
s3fs = pytest.importorskip("s3fs", reason="s3fs is not installed: make launchers")

PROGRAM = """
import os, sys
import torch
from forked_ranks import forked_ranks
from planted_runs import Planted, Sleepy, quiet_profiler, trainer_for
from torch.utils.data import DataLoader

def train(rank, address):
    os.mkdir(f"node{rank}")
    os.chdir(f"node{rank}")
    trainer = trainer_for(None, [quiet_profiler(dirpath=address)], strategy="ddp", devices=1, num_nodes=2)
    trainer.fit(Planted(), DataLoader(Sleepy(60)))

if __name__ == "__main__":
    torch.set_num_threads(1)
    ranks = forked_ranks(lambda rank: train(rank, sys.argv[1]), nodes=True)
    raise SystemExit(any([os.waitpid(rank, 0)[1] for rank in ranks]))
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """With a job's folder in it."""
    folder = tmp_path_factory.mktemp("s3")
    server = moto.ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            environment.setenv(name, "any")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        s3fs.S3FileSystem().mkdir("bucket")
        (folder / "program.py").write_text(PROGRAM)
        said = run_python("program.py", "s3://bucket/runs/1234", cwd=folder).stderr
        assert "cannot be written" not in said
        yield "s3://bucket"
    server.stop()


def test_the_files_of_both_ranks_are_in_the_bucket_and_both_commands_read_them_there(
    bucket: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder,) = s3fs.S3FileSystem().ls(f"{bucket}/runs/1234")
    kept = {Path(file).name for file in s3fs.S3FileSystem().find(folder)}
    assert {"rank0.jsonl", "rank1.jsonl", "rank0.summary.json", "rank1.summary.json", "report.json"} <= kept
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["ranks", f"{bucket}/runs/1234"]) == 0
    screen = capsys.readouterr().out
    assert "2 ranks on 1 host: 2 finished" in screen
    assert f"gpuprof report s3://{folder} --rank " in screen
    assert main(["report", f"s3://{folder}", "--rank", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["rank"] == 1


def test_an_address_that_the_server_does_not_have_is_named_with_its_reason(
    bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ranks", f"{bucket}/none"]) == 2
    assert "gpuprof: s3://bucket/none holds no run" in capsys.readouterr().err


def test_a_bucket_that_does_not_exist_costs_the_copy_and_not_the_run(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    said = run_python("program.py", "s3://no-bucket/runs", cwd=tmp_path).stderr
    assert "s3://no-bucket/runs/gpuprof-" in said
    assert "cannot be written" in said
    assert len([*tmp_path.glob("node*/gpuprof/rank*.jsonl")]) == 2
