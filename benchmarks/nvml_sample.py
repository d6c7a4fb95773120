"""What one sample of a GPU costs its thread, with a scripted driver library behind the real binding.

The driver's own work is not in it: a real driver adds what its calls take.
"""

import argparse
import ctypes
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))  # cases that the tests run, too
from fake_nvml import builder
from fake_nvml.builder import FakeGpu, Scenario

from lightning_gpuprof.capture.nvml.sampler import NvmlSampler
from lightning_gpuprof.model.config import NvmlConfig

RESULTS = Path(__file__).parent / "results" / "nvml_sample.json"
LIMIT_RATIO = 0.003
"""Of one core, at the default interval."""


def cpu_s_per_sample(folder: Path, gpus: tuple[FakeGpu, ...], samples: int) -> float:
    """CPU time of this thread for one sample of all GPUs, slow queries in their turn included."""
    ctypes.CDLL(str(builder.build(Scenario(gpus=gpus), folder)), ctypes.RTLD_GLOBAL)
    sampler = NvmlSampler(None, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    sampler.open()
    for t_ns in range(20):
        sampler.sample(t_ns)
    begin = time.thread_time()
    for t_ns in range(samples):
        sampler.sample(t_ns)
    used = time.thread_time() - begin
    sampler.close()
    return used / samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--gpus", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        gpus = tuple(FakeGpu(uuid=f"GPU-{n}", links=4) for n in range(options.gpus))
        used_s = cpu_s_per_sample(Path(folder), gpus, options.samples)
    share = used_s / NvmlConfig().interval_s
    print(f"{options.gpus} GPU: {used_s * 1e6:.0f} us a sample, {share:.4%} of one core (limit {LIMIT_RATIO:.1%})")
    if options.gpus == 1:
        found = {"us_per_sample": round(used_s * 1e6, 1), "share_of_core_ratio": share, "limit_ratio": LIMIT_RATIO}
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
