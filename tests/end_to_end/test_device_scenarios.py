"""``device_scenarios.md`` has what the report says in each scenario: from the driver to the terminal's line."""

import os
import re
from pathlib import Path

import pytest
from built_journals import sampled
from fake_nvml import builder
from fake_nvml.scenarios import CASES, Case

from lightning_gpuprof.capture.recorder import Reading
from lightning_gpuprof.sinks.device_tables import device_line

PAGE = Path(__file__).with_name("device_scenarios.md")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(builder.compiler() is None, reason="no C compiler (cc) to build the fake NVML"),
]


def said(readings: list[Reading]) -> str:
    """The line of each GPU and the caveats, of a run that had a sample in each half second."""
    found = sampled(readings, least_steps=2)
    caveats = [text for text in found.validity.caveats if text.startswith("nvml: ")]
    lines = [device_line(device) for device in found.devices] + [f"*{text}*" for text in caveats]
    # How many samples there are, and the energy of them all, depends on when the sampler is stopped.
    counted = re.sub(r"\d+ samples \(\d+ distinct\)|\d+ samples", "N samples", "<br>".join(lines))
    return re.sub(r"[\d.]+ kJ", "N kJ", counted)


def row(name: str, case: Case, folder: Path) -> str:
    library = builder.build(case.scenario, folder)
    environ = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", **case.environ}
    readings = builder.run_sampler(library, samples=case.samples, until_hang=case.hangs, environ=environ)
    return f"| {name} | {re.sub(r'no answer for [0-9.]+ s', 'no answer for 0.3 s', said(readings))} |"


@pytest.mark.parametrize("name", CASES)
def test_the_page_says_what_the_report_says(name: str, tmp_path: Path) -> None:
    """Made anew with ``GPUPROF_WRITE_DOCS=1``."""
    made = row(name, CASES[name], tmp_path)
    text = PAGE.read_text()
    if os.environ.get("GPUPROF_WRITE_DOCS"):
        found = re.search(rf"^\| {re.escape(name)} \|.*$", text, re.M)
        assert found is not None, f"write a row for {name!r} first"
        PAGE.write_text(text.replace(found.group(), made))
        return
    assert made in text.splitlines()
