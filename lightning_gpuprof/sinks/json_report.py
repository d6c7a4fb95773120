"""Writes and reads ``report.json``; writes a comparison as JSON."""

from pathlib import Path

import msgspec

from lightning_gpuprof.errors import ReportError
from lightning_gpuprof.model.comparison import Comparison
from lightning_gpuprof.model.report import SCHEMA_VERSION, Report
from lightning_gpuprof.model.run_folders import REPORT_FILE
from lightning_gpuprof.sinks.files import write_whole

FILE_NAME = REPORT_FILE
_BEGIN = b'{\n "schema_version":'


class _Version(msgspec.Struct):
    schema_version: int


def encode(shown: Report | Comparison) -> bytes:
    """Indented JSON with a newline at its end; the fields are those of the model."""
    return msgspec.json.format(msgspec.json.encode(shown), indent=1) + b"\n"


def write(report: Report, target: Path) -> None:
    """Write ``report.json`` whole or not at all.

    Args:
        report: The report.
        target: The file.

    Raises:
        ReportError: The file cannot be written.
    """
    write_whole(target, encode(report))


def read(path: Path) -> Report:
    """Read a ``report.json``.

    Raises:
        ReportError: The file is missing, is no report, or comes from a newer version.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ReportError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        version = msgspec.json.decode(data, type=_Version).schema_version
        if version <= SCHEMA_VERSION:
            return msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ReportError(
            f"{path} is not a report: {error}. Make it again from the run's journal: gpuprof report {path.parent}"
        ) from error
    raise ReportError(
        f"{path} was written by a newer version (schema {version}, this one reads up to {SCHEMA_VERSION}): "
        "upgrade with pip install -U lightning-gpuprof"
    )


def is_own(path: Path) -> bool:
    """Whether a file begins as a ``report.json`` does; others may give theirs the same name."""
    try:
        with path.open("rb") as file:
            return path.is_file() and file.read(len(_BEGIN)) == _BEGIN
    except OSError:
        return False
