"""``gpuprof ranks``: the folder of a job in, its worst ranks out."""

import json
import os
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rank_folders import write_rank

from lightning_gpuprof.analyze.journal import read_journal
from lightning_gpuprof.analyze.rank_summary import Unended
from lightning_gpuprof.cli.ranks import EVERY_S, QUIET_S, watch
from lightning_gpuprof.errors import JournalError
from lightning_gpuprof.job_ranks import await_ranks, job_ranks
from lightning_gpuprof.model.job_ranks import JobRanks
from lightning_gpuprof.summary_file import SummaryFile

NOBODY = 2**22 + 1
"""No process has this number."""


def states(job: JobRanks) -> dict[int, str]:
    return {one.rank: one.state for one in job.ranks}


@pytest.fixture(scope="module")
def job_of_64(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    for rank in range(64):
        write_rank(folder, rank, 64, late_ms=21.0 if rank == 21 else 0.0, host=f"node{rank // 8}")
    return folder


def test_the_late_rank_of_64_is_named_first_with_its_cost_on_one_screen(
    job_of_64: Path, printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = printed("ranks", job_of_64)
    assert said.startswith("Rank 21 (host node2) takes 21.0 ms longer than the others in each 60.0 ms step")
    assert "64 ranks on 8 hosts: 64 running" in said
    assert "at most 20.8 ms per step, 1.53x" in said
    lines = said.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 80
    assert lines[next(at for at, line in enumerate(lines) if "beyond others" in line) + 1].split()[0] == "21"
    assert "and 59 more" in said
    assert " ".join(said.split()).count("--rank 21") == 2, "wherever a long path ends the line"
    assert "RUN" not in said
    assert said.count("  0 ms\n") == 4, "what is below the noise"


def test_json_has_all_ranks_and_the_finding_of_the_report(job_of_64: Path, printed: Callable[..., str]) -> None:
    said = json.loads(printed("ranks", job_of_64, "--json"))
    assert len(said["ranks"]) == 64
    assert said["worst"][0] == 21
    assert len(said["worst"]) == 5
    assert [one["rule"] for one in said["findings"]] == ["straggler-rank"]
    assert said["is_over"] is False
    assert said["comparison"]["rows"][21]["excess_ms"] == pytest.approx(21, rel=0.05)


def test_of_large_journals_the_ends_say_the_same(tmp_path: Path) -> None:
    for rank in range(4):
        write_rank(tmp_path, rank, 4, steps=20_000, late_ms=21.0 if rank == 2 else 0.0)
    assert (tmp_path / "rank0.jsonl").stat().st_size > 2 * 2**17
    whole, ends = job_ranks(tmp_path), job_ranks(tmp_path, most_bytes=2**17)
    assert [one.batches for one in ends.ranks] == [20_000] * 4
    assert whole.answer.split(",")[0] == ends.answer.split(",")[0]
    assert ends.findings[0].subject == "rank 2"
    assert ends.findings[0].gain.saved_ms_per_step == pytest.approx(20.9, rel=0.02)


def test_a_job_without_trouble_is_said_to_have_none(tmp_path: Path) -> None:
    for rank in range(4):
        write_rank(tmp_path, rank, 4, steps=200 + rank)
    job = job_ranks(tmp_path)
    assert job.answer == "All 4 ranks are running; each has done 200 to 203 batches; none is late."
    for rank in range(4):
        write_rank(tmp_path, rank, 4, status="finished")
    job = job_ranks(tmp_path)
    assert job.answer == "All 4 ranks finished after 200 batches; none is late."
    assert job.is_over


@pytest.mark.parametrize(
    ("rank_2", "state", "answer"),
    [
        ({"pid": NOBODY}, "killed", "Rank 2 was killed after 200 batches: its process is gone."),
        (
            {"status": "interrupted: ValueError", "place": "train.py:12 training_step"},
            "failed",
            "was interrupted by ValueError at train.py:12 training_step after 200 batches.",
        ),
        (
            {"hangs_at": "train.py:12 training_step"},
            "hanging",
            "No progress for 40.0 s: rank 2 in forward at train.py:12 training_step after 200 batches.",
        ),
    ],
)
def test_a_rank_that_stopped_is_the_answer(tmp_path: Path, rank_2: dict[str, Any], state: str, answer: str) -> None:
    for rank in range(4):
        write_rank(tmp_path, rank, 4, **(rank_2 if rank == 2 else {}))
    job = job_ranks(tmp_path)
    assert states(job) == {0: "running", 1: "running", 2: state, 3: "running"}
    assert job.worst[0] == 2
    assert job.answer.endswith(answer)


def test_ranks_that_wait_for_one_that_hangs_come_after_it(tmp_path: Path) -> None:
    for rank in range(4):
        write_rank(tmp_path, rank, 4, hangs_at="train.py:12 step", waits=rank != 2)
    job = job_ranks(tmp_path)
    assert job.worst[0] == 2
    assert [one.waits for one in job.ranks] == [True, True, False, True]
    assert job.ends[1].startswith("ranks 0, 1 and 3 waiting in sync (all_reduce)")
    assert not job.is_over


def test_of_a_job_that_was_killed_because_it_hung_the_rank_that_hung_is_named(tmp_path: Path) -> None:
    for rank in range(8):
        how = {"hangs_at": "train.py:12 training_step"} if rank == 6 else {"waits": True}
        write_rank(tmp_path, rank, 8, pid=NOBODY, **how)
    job = job_ranks(tmp_path)
    assert job.answer == (
        "No progress for 40.0 s: rank 6 in forward at train.py:12 training_step after 200 batches; "
        "then all were killed."
    )
    assert job.worst[0] == 6
    assert f"no process {NOBODY} on its host; no progress in forward at train.py:12" in job.ranks[6].detail


def test_where_all_failed_the_first_one_is_named(tmp_path: Path) -> None:
    for rank in range(3):
        name = "ValueError" if rank == 1 else "RuntimeError"
        write_rank(tmp_path, rank, 3, steps=200 + 10 * (rank != 1), status=f"interrupted: {name}", place="a.py:1 f")
    job = job_ranks(tmp_path)
    assert job.answer.startswith("Rank 1 on ")
    assert "failed first, with ValueError at a.py:1 f after 200 batches" in job.answer
    assert job.worst[0] == 1
    assert job.is_over


@pytest.mark.parametrize(
    ("process", "state"),
    [
        ({"pid": NOBODY}, "killed"),
        ({"pid": NOBODY, "pids_of": "another boot pid:[1]"}, "running"),
        ({"pid": NOBODY, "pids_of": ""}, "running"),
        ({"epoch_s": 1_000}, "running"),
    ],
)
def test_a_process_is_gone_only_where_its_number_means_it(tmp_path: Path, process: dict[str, Any], state: str) -> None:
    for rank in range(2):
        write_rank(tmp_path, rank, 2, **(process if rank else {}))
    assert states(job_ranks(tmp_path)) == {0: "running", 1: state}


@pytest.mark.parametrize(("silent_s", "is_over"), [(300, False), (72 * 3600, True)])
def test_a_rank_that_lives_but_wrote_nothing_for_long_does_not_go_on(
    tmp_path: Path, silent_s: float, *, is_over: bool
) -> None:
    for rank in range(2):
        write_silent_rank(tmp_path, rank, silent_s, pid=1)
    job = job_ranks(tmp_path)
    assert set(states(job).values()) == {"hanging"}
    assert job.answer == ("Ranks 0 and 1 make no progress after 200 batches: their processes live but write nothing.")
    assert job.is_over == is_over


def write_silent_rank(folder: Path, rank: int, silent_s: float, **process: Any) -> None:
    path = write_rank(folder, rank, 2, **process)
    os.utime(path, (path.stat().st_mtime - silent_s,) * 2)


@pytest.mark.parametrize("lasts_s", [0.0, 4.0])
def test_the_rank_that_failed_comes_before_those_that_its_launcher_killed(tmp_path: Path, lasts_s: float) -> None:
    for rank in range(4):
        fails = {"status": "interrupted: ValueError", "place": "train.py:12 training_step"}
        write_rank(tmp_path, rank, 4, **(fails if rank == 2 else {"pid": NOBODY, "lasts_s": lasts_s}))
    job = job_ranks(tmp_path)
    assert states(job) == {0: "killed", 1: "killed", 2: "failed", 3: "killed"}
    assert job.answer == "Rank 2 failed after 200 batches: ValueError at train.py:12 training_step."
    assert job.worst[0] == 2
    when = "after" if lasts_s else "around"
    assert job.ends[0].startswith(
        f"ranks 0, 1 and 3 recorded no end (still running, or killed {when} the ValueError of"
    )


@pytest.mark.parametrize(
    ("lasts_s", "left_collective", "answer"),
    [
        (0.0, True, "Rank 1 was killed after 200 batches: its process is gone."),
        (4.0, True, "Rank 0 failed after 200 batches: RuntimeError at train.py:12 training_step."),
        (0.0, False, "Rank 0 failed after 200 batches: RuntimeError at train.py:12 training_step."),
    ],
)
def test_a_rank_whose_collective_failed_comes_after_one_that_was_killed_and_did_not_outlive_it(
    tmp_path: Path, lasts_s: float, answer: str, *, left_collective: bool
) -> None:
    fails = {"status": "interrupted: RuntimeError", "place": "train.py:12 training_step"}
    write_rank(tmp_path, 0, 2, **fails, left_collective=left_collective)
    write_rank(tmp_path, 1, 2, pid=NOBODY, lasts_s=lasts_s)
    assert job_ranks(tmp_path).answer == answer


@pytest.mark.parametrize("error", ["KeyboardInterrupt", "SIGTERMException"])
def test_ranks_that_were_stopped_did_not_fail(tmp_path: Path, error: str) -> None:
    for rank in range(3):
        write_rank(tmp_path, rank, 3, status=f"interrupted: {error}", steps=200 + rank)
    job = job_ranks(tmp_path)
    assert set(states(job).values()) == {"stopped"}
    assert job.answer == f"Ranks 0 to 2 were stopped after 200 to 202 batches, by {error}."
    assert job.ends == ()
    assert job.is_over


def test_a_standstill_that_training_left_behind_is_none(tmp_path: Path) -> None:
    for rank in range(2):
        write_rank(tmp_path, rank, 2, hangs_at="train.py:24 validation_step", lasts_s=60)
    assert states(job_ranks(tmp_path)) == {0: "running", 1: "running"}


def test_a_rank_that_wrote_nothing_before_another_failed_is_the_first(tmp_path: Path) -> None:
    write_rank(tmp_path, 0, 2, status="interrupted: RuntimeError", left_collective=True)
    (tmp_path / "rank1.jsonl").write_bytes(b"")
    assert job_ranks(tmp_path).answer.startswith("Rank 1 recorded no end (killed or crashed before the RuntimeError of")


def test_a_rank_of_another_host_that_wrote_nothing_for_long_is_silent(tmp_path: Path) -> None:
    for rank in range(4):
        path = write_rank(tmp_path, rank, 4, host=f"node{rank}")
        if rank == 3:
            os.utime(path, (path.stat().st_mtime - 300,) * 2)
    job = job_ranks(tmp_path)
    assert states(job)[3] == "silent"
    assert job.answer.startswith("Rank 3 has written nothing for 5.00 min after 200 batches")


def test_of_an_address_the_copy_is_removed_and_what_is_said_is_as_of_the_folder(
    tmp_path: Path, printed: Callable[..., str], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, copies = tmp_path / "job" / "gpuprof-1", tmp_path / "copies"
    for rank in range(4):
        path = write_rank(folder, rank, 4, host=f"node{rank}", late_ms=21.0 if rank == 3 else 0.0)
    SummaryFile().renew(folder / "rank2.jsonl")
    for rank in (2, 3):  # a journal that has become large is not sent any more
        os.utime(folder / f"rank{rank}.jsonl", (path.stat().st_mtime - 300,) * 2)
    (folder / "rank3.stacks.txt").write_text("stacks")
    copies.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(copies))
    monkeypatch.setenv("COLUMNS", "500")
    screen, said = (printed("ranks", f"file://{tmp_path}/job", *words) for words in ([], ["--json"]))
    refused("ranks", f"file://{tmp_path}/none")
    assert "Rank 3 has written nothing for 5.0" in screen
    assert f"all: gpuprof report file://{folder} --rank 3" in screen
    assert f"stacks: file://{folder}/rank3.stacks.txt" in screen
    assert json.loads(said)["folder"] == f"file://{folder}"
    assert f"gpuprof report file://{folder} --rank 3" in json.loads(said)["findings"][0]["advice"]
    assert list(copies.iterdir()) == []


def test_missing_damaged_doubled_and_foreign_journals_are_named_and_the_others_judged(
    tmp_path: Path, printed: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # a short name: a long one takes lines
    for rank in range(1, 9):
        write_rank(tmp_path, rank, 9, late_ms=21.0 if rank == 2 else 0.0)
    (tmp_path / "rank0.jsonl").write_bytes(b"\x00 no journal")
    (tmp_path / "rank3.jsonl").write_bytes(b"")
    (tmp_path / "rank4.jsonl").unlink()
    write_rank(tmp_path, 2, 9, file=5)
    write_rank(tmp_path, 6, 9, job="another")
    job = job_ranks(tmp_path)
    bad = {rank: state for rank, state in states(job).items() if state != "running"}
    assert bad == {0: "unreadable", 3: "unreadable", 4: "missing", 5: "unreadable", 6: "unreadable"}
    assert job.findings[0].subject == "rank 2"
    said = printed("ranks", ".")
    assert "rank 4: no journal in the folder" in said
    assert "rank 5: its journal says that it is of rank 2" in said
    assert "and 1 more" in said
    assert len(said.splitlines()) <= 25


def test_a_summary_is_read_in_place_of_its_journal(tmp_path: Path) -> None:
    for rank in range(3):
        write_rank(tmp_path, rank, 3, status="finished")
    SummaryFile().complete(tmp_path / "rank2.jsonl")
    SummaryFile().complete(tmp_path / "rank1.jsonl")
    for name in ("rank0.jsonl", "rank1.jsonl"):
        (tmp_path / name).rename(tmp_path / f"{name}.away")
    (tmp_path / "rank1.jsonl").write_bytes(b"not looked at")
    assert states(job_ranks(tmp_path)) == {0: "missing", 1: "finished", 2: "finished"}


def test_watching_ends_with_the_job(tmp_path: Path) -> None:
    (tmp_path / "rank0.jsonl").write_bytes(b"")
    said: list[str] = []

    def goes_on(seconds: float) -> None:
        for rank in range(2):
            write_rank(tmp_path, rank, 2, status="finished" if said else "")

    watch(tmp_path, lambda job: said.append(job.answer), goes_on)
    assert said == [
        "Both ranks are running; each has done 200 batches; none is late.",
        "Both ranks finished after 200 batches; none is late.",
    ]


def test_watching_goes_on_while_any_rank_writes_however_old_its_clock_makes_it(tmp_path: Path) -> None:
    looks: list[dict[int, str]] = []

    def goes_on(seconds: float) -> None:
        if len(looks) < 20:
            write_silent_rank(tmp_path, 1, 3600 - len(looks), host="node1")

    write_silent_rank(tmp_path, 0, 3600, host="node0")
    write_silent_rank(tmp_path, 1, 3600, host="node1")
    watch(tmp_path, lambda job: looks.append(states(job)), goes_on)
    assert looks[-1] == {0: "silent", 1: "silent"}
    assert len(looks) == 20 + QUIET_S / EVERY_S


def test_who_waits_for_the_first_line_is_said_so_once_and_not_for_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = tmp_path / "rank0.jsonl"
    empty.write_bytes(b"")
    (tmp_path / "rank1.jsonl").symlink_to(tmp_path / "gone")
    waited: list[float] = []

    def grows_old(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            os.utime(empty, (empty.stat().st_mtime - 3600,) * 2)

    with pytest.raises(JournalError, match="empty"):
        watch(tmp_path, lambda job: None, grows_old)
    assert len(waited) == 3
    assert capsys.readouterr().err.count("waiting for the ranks to write") == 1


def test_a_pipe_a_folder_and_a_dangling_link_are_no_journals(tmp_path: Path, printed: Callable[..., str]) -> None:
    write_rank(tmp_path, 3, 4)
    os.mkfifo(tmp_path / "rank0.jsonl")
    (tmp_path / "rank1.jsonl").mkdir()
    (tmp_path / "rank2.jsonl").symlink_to(tmp_path / "gone")
    job = job_ranks(tmp_path)
    assert states(job) == {0: "unreadable", 1: "unreadable", 2: "unreadable", 3: "running"}
    assert job.answer == (
        "1 of 4 ranks is running; it has done 200 batches; who is late is not known; ranks 0 to 2 are not judged."
    )
    assert f"gpuprof report {tmp_path} --rank 3" in " ".join(printed("ranks", tmp_path).split())


@pytest.mark.parametrize(
    ("field", "number"),
    [("world_size", 2_000_000_000), ("world_size", -2), ("world_size", 0), ("pid", -5), ("pid", 2**40), ("rank", -1)],
)
def test_a_journal_with_an_impossible_number_is_damaged(tmp_path: Path, field: str, number: int) -> None:
    for rank in range(2):
        write_rank(tmp_path, rank, 2)
    path = tmp_path / "rank1.jsonl"
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(json.dumps({**json.loads(first), field: number}).encode() + b"\n" + rest)
    job = job_ranks(tmp_path)
    assert states(job) == {0: "running", 1: "unreadable"}
    assert f"$.{field}" in job.problems[0]


def test_a_summary_with_an_impossible_number_is_not_read(tmp_path: Path) -> None:
    for rank in range(2):
        write_rank(tmp_path, rank, 2, status="finished")
    SummaryFile().complete(tmp_path / "rank1.jsonl")
    summary = tmp_path / "rank1.summary.json"
    summary.write_text(json.dumps({**json.loads(summary.read_text()), "batches": -5}))
    assert [one.batches for one in job_ranks(tmp_path).ranks] == [200, 200]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, "there is no folder"),
        (lambda folder: folder.write_text(""), "is not a folder"),
        (lambda folder: folder.mkdir(), "contains neither a journal"),
        (
            lambda folder: [folder.mkdir(), (folder / "rank1.summary.json").write_text("{}")],
            "summaries of ranks, but no",
        ),
        (
            lambda folder: [folder.mkdir(), (folder / "report.json").write_text("{}")],
            "contains a report but no journal",
        ),
        (lambda folder: [folder.mkdir(), (folder / "rank0.jsonl").write_bytes(b"")], "empty"),
        (lambda folder: [folder.mkdir(), (folder / "rank0.jsonl").write_bytes(b"{}\n")], "not a header"),
    ],
)
def test_a_folder_without_a_job_gives_one_line(
    tmp_path: Path, make: Callable[[Path], object], words: str, refused: Callable[..., str]
) -> None:
    make(tmp_path / "job")
    said = refused("ranks", tmp_path / "job")
    assert words in said
    assert said.count("\n") == 1


def test_the_report_waits_for_other_ranks_as_long_as_it_is_told(tmp_path: Path) -> None:
    own = write_rank(tmp_path, 0, 2, status="finished")
    other = write_rank(tmp_path, 1, 2)

    def left(most_s: float) -> list[Path]:
        await_ranks(own, read_journal(own), most_s)
        return Unended([other]).look()

    def end() -> None:
        SummaryFile().complete(write_rank(tmp_path, 1, 2, status="finished"))

    assert left(0) != []
    ending = threading.Timer(0.2, end)
    ending.start()
    assert left(60) == []
    ending.join()
