"""Reading and writing gzip, with the fast writer and without it."""

import errno
import gzip
import sys
import threading
from pathlib import Path

import pytest

from lightning_gpuprof.trace.compression import GZIP_ERRORS, compress, fastest_gzip, open_json, replacing


@pytest.mark.parametrize("reader", [gzip.GzipFile, fastest_gzip()])
@pytest.mark.parametrize("writer", [gzip.GzipFile, fastest_gzip()])
def test_what_is_compressed_reads_back(tmp_path: Path, writer: type, reader: type) -> None:
    source, target = tmp_path / "a.json", tmp_path / "a.json.gz"
    source.write_bytes(b'{"traceEvents": []}' * 100_000)
    compress(source, target, gzip_file=writer)
    with open_json(target, gzip_file=reader) as stream:
        assert stream.read() == source.read_bytes()
    assert target.stat().st_size < source.stat().st_size / 10
    assert gzip.decompress(target.read_bytes()) == source.read_bytes()


def test_the_fast_writer_is_used_where_it_is_installed() -> None:
    isal = pytest.importorskip("isal.igzip")
    assert fastest_gzip() is isal.IGzipFile


class FullDisk(gzip.GzipFile):
    def write(self, data: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_source_and_nothing_else(tmp_path: Path) -> None:
    source, target = tmp_path / "a.json", tmp_path / "a.json.gz"
    source.write_text("{}")
    with pytest.raises(OSError, match="No space left"):
        compress(source, target, gzip_file=FullDisk)
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "facts.json"
    target.write_text("old")

    def interrupted() -> None:
        with replacing(target) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert target.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_replacement_has_the_rights_of_any_new_file(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    with replacing(tmp_path / "made") as file:
        file.write(b"x")
    assert sys.platform == "win32" or (tmp_path / "made").stat().st_mode == plain.stat().st_mode


def test_a_thread_reads_ahead_and_is_gone_with_the_file(tmp_path: Path) -> None:
    packed = tmp_path / "t.json.gz"
    text = bytes(range(256)) * 1000
    packed.write_bytes(gzip.compress(text))
    before = threading.active_count()
    with open_json(packed) as stream:
        found = [stream.read(1000), stream.read(1000)]
        assert threading.active_count() == before + 1
        while block := stream.read(7000):
            found.append(block)
    assert b"".join(found) == text
    assert threading.active_count() == before


@pytest.mark.parametrize("damage", ["cut", "flipped"])
def test_what_the_thread_meets_is_raised_to_the_one_who_reads(tmp_path: Path, damage: str) -> None:
    packed = tmp_path / "t.json.gz"
    data = bytearray(gzip.compress(bytes(range(256)) * 1000, 1))
    if damage == "cut":
        del data[len(data) // 2 :]
    else:
        data[-6] ^= 0xFF  # of the checksum
    packed.write_bytes(data)
    before = threading.active_count()
    with pytest.raises(GZIP_ERRORS), open_json(packed) as stream:
        all(iter(lambda: stream.read(5000), b""))
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "sizes",
    [(1000, 10, 7000, -1), (-1,), (5000, -1), (5000, 0, 20_000, 1, 1, -1), (300_000, 10), (255_999, 1, 1)],
    ids=str,
)
def test_blocks_of_any_sizes_are_the_whole_text(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    packed = tmp_path / "t.json.gz"
    text = bytes(range(256)) * 1000
    packed.write_bytes(gzip.compress(text))
    found = b""
    with open_json(packed) as stream:
        for size in sizes:
            block = stream.read(size)
            found += block
            assert len(block) >= size or len(found) == len(text)  # less only at the end
        found += b"".join(iter(lambda: stream.read(4096), b""))
        assert stream.read(10) == stream.read() == b""
    assert found == text
