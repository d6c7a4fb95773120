"""Run as a program: samples through ``pynvml`` beside a working main thread and prints what came out, a line each."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
from typing import TypedDict

import msgspec

from lightning_gpuprof.capture.nvml import NvmlSampler
from lightning_gpuprof.capture.recorder import Reading, Recorder
from lightning_gpuprof.model.journal import Sample


class Arguments(TypedDict):
    samples: int
    uuids: list[str]
    environ: dict[str, str]
    library: str
    until_hang: bool


def main(arguments: Arguments) -> None:
    # Loaded under the driver's soname, it is what the loader gives to whoever asks for that name later.
    library = ctypes.CDLL(arguments["library"], ctypes.RTLD_GLOBAL)
    readings: list[Reading] = []
    enough = threading.Event()

    def sink(reading: Reading) -> None:
        readings.append(reading)
        if sum(isinstance(each, Sample) for each in readings) >= arguments["samples"]:
            enough.set()

    recorder = Recorder([NvmlSampler(arguments["uuids"], arguments["environ"], 0.01)], sink)
    recorder.start()
    steps = 0
    while any(thread.name == "gpuprof-nvml" for thread in threading.enumerate()):
        steps += 1
        if library.fake_is_hanging() if arguments["until_hang"] else enough.is_set():
            break
        time.sleep(0.001)
    while steps < 50:  # the work that must go on beside whatever the sampler does
        steps += 1
        time.sleep(0.001)
    recorder.stop(timeout_s=0.3 if arguments["until_hang"] else 60)
    for reading in readings:
        print(msgspec.json.encode(reading).decode())


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Arguments))
