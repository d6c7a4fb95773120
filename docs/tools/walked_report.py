"""The report of a real run of ``configs/digits.yaml`` that the documentation walks through."""

from pathlib import Path

import msgspec

from lightning_gpuprof.model.report import Report

PATH = Path(__file__).with_name("digits-report.json")


def walked_report() -> Report:
    """The report as it was written at the end of the run."""
    return msgspec.json.decode(PATH.read_bytes(), type=Report)
