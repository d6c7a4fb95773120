"""What a rank writes is copied to an address that fsspec knows, beside the training."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from lightning_gpuprof.capture import remote_copy
from lightning_gpuprof.capture.remote_copy import RemoteCopy, check_address
from lightning_gpuprof.errors import ArgumentError, ReportError


class Faulty(MemoryFileSystem):
    """Refuses what is sent until it may be written to, or takes it only once it is let go."""

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    refuses = False
    sent: ClassVar[list[str]] = []
    goes_on = threading.Event()

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        if Faulty.refuses:
            raise PermissionError("Access Denied to ftp://me:s%20t@bucket for me with 's t'")
        Faulty.sent.append(rpath)
        Faulty.goes_on.wait()
        super().put_file(lpath, rpath, **kwargs)


@pytest.fixture
def faulty() -> Iterator[type[Faulty]]:
    fsspec.register_implementation("faulty", Faulty, clobber=True)
    Faulty.store.clear()
    Faulty.sent.clear()
    Faulty.refuses = False
    Faulty.goes_on.set()
    yield Faulty
    Faulty.goes_on.set()


def names(address: str) -> set[str]:
    there, path = fsspec.url_to_fs(address)
    return {file.rsplit("/", 1)[1] for file in there.find(path)}


def folder_of_two_ranks(folder: Path) -> Path:
    for name in (".run", "rank0.jsonl", "rank0.7.plain.json", "rank0.summary.json", "rank1.jsonl", "report.json"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize(
    ("rank", "sent"), [(0, {"rank0.jsonl", "rank0.summary.json", "report.json"}), (1, {"rank1.jsonl"})]
)
def test_a_rank_sends_its_files_and_the_first_one_those_of_the_run(tmp_path: Path, rank: int, sent: set[str]) -> None:
    address = f"memory://{tmp_path.name}/{rank}"
    RemoteCopy(folder_of_two_ranks(tmp_path), address, rank, pytest.fail).finish()
    assert names(address) == sent


def test_while_a_run_goes_on_what_has_changed_is_sent_and_large_files_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_copy, "MOST_BYTES_WHILE_RUNNING", 10)
    address, small, large = f"memory://{tmp_path.name}", tmp_path / "rank0.summary.json", tmp_path / "rank0.jsonl"
    there = fsspec.filesystem("memory")
    small.write_text("first")
    large.write_text("a" * 20)
    copy = RemoteCopy(tmp_path, address, 0, pytest.fail, every_s=0.01)
    wait_for(lambda: names(address) == {small.name})
    small.write_text("second")
    wait_for(lambda: there.cat(f"{address}/{small.name}") == b"second")
    copy.finish()
    assert names(address) == {small.name, large.name}


def wait_for(condition: Any) -> None:
    end = time.monotonic() + 30
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_what_is_refused_is_said_and_tried_again(tmp_path: Path, faulty: type[Faulty]) -> None:
    said: list[str] = []
    faulty.refuses = True
    copy = RemoteCopy(folder_of_two_ranks(tmp_path), "faulty://me:s%20t@bucket", 1, said.append, every_s=0.01)
    wait_for(lambda: said)
    faulty.refuses = False
    copy.finish()
    assert names("faulty://me:s%20t@bucket") == {"rank1.jsonl"}
    denied = "PermissionError: Access Denied to ftp://***@bucket for *** with '***'"
    assert f"faulty://***@bucket cannot be written ({denied})" in said[0]
    assert str(tmp_path) in said[0]


def test_no_bucket_is_made(tmp_path: Path, faulty: type[Faulty], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faulty, "_strip_protocol", classmethod(lambda _, path: path.removeprefix("faulty://")))
    for name in ("makedirs", "put_file"):
        monkeypatch.setattr(faulty, name, lambda *args, of=name, **options: faulty.sent.append(of))
    RemoteCopy(folder_of_two_ranks(tmp_path), "faulty://bucket/runs", 1, pytest.fail).finish()
    assert faulty.sent == ["put_file"]


def test_a_run_does_not_wait_for_an_address_that_never_answers(tmp_path: Path, faulty: type[Faulty]) -> None:
    said: list[str] = []
    faulty.goes_on.clear()
    copy = RemoteCopy(folder_of_two_ranks(tmp_path), "faulty://bucket", 1, said.append)
    copy.finish(wait_s=0.1)
    assert said == [f"not all files were copied within 0 s: they are in {tmp_path}"]


def test_a_profiler_that_gives_up_says_nothing_of_files_that_are_still_sent(
    tmp_path: Path, faulty: type[Faulty]
) -> None:
    faulty.goes_on.clear()
    copy = RemoteCopy(folder_of_two_ranks(tmp_path), "faulty://bucket", 1, pytest.fail)
    copy.stop()
    wait_for(lambda: faulty.sent)
    faulty.goes_on.set()
    copy.finish()
    assert names("faulty://bucket") == {"rank1.jsonl"}


def test_what_has_not_changed_is_sent_once(tmp_path: Path, faulty: type[Faulty]) -> None:
    rounds = tmp_path / "rank1.summary.json"
    copy = RemoteCopy(folder_of_two_ranks(tmp_path), "faulty://bucket", 1, pytest.fail, every_s=0.01)
    for done in range(3):
        rounds.write_text("-" * done)
        wait_for(lambda: sum(file.endswith(rounds.name) for file in faulty.sent) > done)  # noqa: B023 - called at once
    copy.finish()
    assert sum(file.endswith("rank1.jsonl") for file in faulty.sent) == 1


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no ftp://me:secret@host/runs", "no ftp://***@host/runs"),
        ("no ftp:/me:secret@host/runs", "no ftp:/***@host/runs"),
        ("s3://key:with/slash@bucket is none", "s3://***@bucket is none"),
        ("az://runs?sv=1&sig=a%2F 'https://token@host'", "az://runs?sv=***&sig=*** 'https://***@host'"),
        ("s3://bucket/me@home and /home/me@home", "s3://bucket/me@home and /home/me@home"),
    ],
)
def test_an_error_hides_what_is_secret_in_addresses(text: str, shown: str) -> None:
    assert str(ReportError(text)) == shown


def test_an_address_without_its_package_is_refused_before_training() -> None:
    check_address("memory://bucket")
    with pytest.raises(ArgumentError, match=r"dirpath must be a folder, or an address .*Protocol not known: s4"):
        check_address("s4://bucket/run")
    with pytest.raises(ArgumentError, match=r"got 's4://\*\*\*@bucket'"):
        check_address("s4://me:secret@bucket")
