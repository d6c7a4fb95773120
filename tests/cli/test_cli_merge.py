"""``gpuprof merge``: folders of hosts in, one folder with all ranks out."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from rank_folders import write_rank

from lightning_gpuprof.cli.main import main
from lightning_gpuprof.job_ranks import job_ranks
from lightning_gpuprof.pipeline import load_report
from lightning_gpuprof.summary_file import SummaryFile


@pytest.fixture
def hosts(tmp_path: Path) -> list[Path]:
    """Two hosts of two ranks each; rank 3 is late. Of rank 2 only the summary was kept."""
    for rank in range(4):
        journal = write_rank(
            tmp_path / f"host{rank // 2}", rank, 4, status="finished", late_ms=21.0 if rank == 3 else 0.0
        )
        SummaryFile().complete(journal)
        if rank == 2:
            journal.unlink()
    (tmp_path / "host1" / "rank3.stacks.txt").write_text("stacks")
    return [tmp_path / "host0", tmp_path / "host1"]


def test_ranks_of_two_hosts_are_compared_in_one_folder(
    hosts: list[Path], tmp_path: Path, printed: Callable[..., str]
) -> None:
    job = tmp_path / "job"
    assert printed("merge", *hosts, "--into", job) == f"4 of 4 ranks are in {job}: gpuprof ranks {job}\n"
    assert [one.state for one in job_ranks(job).ranks] == ["finished"] * 4
    late = next(one for one in load_report(job).findings if one.rule == "straggler-rank")
    assert late.subject == "rank 3"
    assert (job / "rank3.stacks.txt").read_text() == "stacks"


def test_merging_again_takes_what_is_new_and_may_be_into_one_of_them(
    hosts: list[Path], printed: Callable[..., str]
) -> None:
    first, second = hosts
    for _ in range(2):
        assert json.loads(printed("merge", *hosts, "--into", first, "--json"))["ranks"] == [0, 1, 2, 3]
        (second / "rank3.stacks.txt").write_text("later")
    assert (first / "rank3.stacks.txt").read_text() == "later"
    assert sorted(path.name for path in second.iterdir()) == [
        "rank2.summary.json",
        "rank3.jsonl",
        "rank3.stacks.txt",
        "rank3.summary.json",
    ]


def test_folders_of_two_jobs_and_one_rank_twice_are_refused(
    hosts: list[Path], tmp_path: Path, refused: Callable[..., str]
) -> None:
    write_rank(tmp_path / "another", 5, 8, job="another")
    write_rank(tmp_path / "twice", 1, 4)
    job = tmp_path / "job"
    assert "belong to different jobs" in refused("merge", hosts[0], tmp_path / "another", "--into", job)
    assert "belong to the same rank" in refused("merge", *hosts, tmp_path / "twice", "--into", job)
    assert not job.exists()
    job.write_text("a file")
    assert f"--into {job} cannot be created" in refused("merge", *hosts, "--into", job)


def test_of_a_host_the_summaries_are_enough(hosts: list[Path], tmp_path: Path, printed: Callable[..., str]) -> None:
    (hosts[1] / "rank3.jsonl").unlink()
    assert printed("merge", *hosts, "--into", tmp_path / "job").startswith("4 of 4 ranks are in")


def test_folders_without_a_rank_that_can_be_read_are_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "rank0.jsonl").write_bytes(b"")
    assert "no rank in" in refused("merge", tmp_path / "host", "--into", tmp_path / "job")


def test_it_says_where_the_ranks_are_to_go(hosts: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["merge", str(hosts[0])])
    assert "--into" in capsys.readouterr().err
