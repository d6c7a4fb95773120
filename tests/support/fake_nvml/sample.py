"""Run as a program: samples through ``pynvml`` beside a working main thread and prints what came out, a line each."""

import ctypes
import os
import sys
import threading
import time
from typing import TypedDict

import msgspec

from lightning_gpuprof.capture.nvml.sampler import NvmlSampler
from lightning_gpuprof.capture.recorder import Reading, Recorder, SourceUnavailableError
from lightning_gpuprof.model.journal import Sample


class Arguments(TypedDict):
    """What to sample, and for how long."""

    samples: int
    uuids: list[str]
    environ: dict[str, str]
    library: str
    until_hang: bool
    fork: bool


def use_in_a_child(sampler: NvmlSampler, library: ctypes.CDLL) -> None:
    """A forked child, as a DataLoader worker is one, that uses what it inherited reaches no driver's function."""
    child = os.fork()
    if not child:
        before, refusals = library.fake_calls(), 0
        try:
            sampler.sample(0)
        except SourceUnavailableError as error:
            refusals = "before this process was forked" in str(error)
        sampler.close()
        os._exit(0 if refusals and library.fake_calls() == before and library.fake_left_open() else 1)
    assert os.waitpid(child, 0)[1] == 0


def main(arguments: Arguments) -> None:
    # Loaded under the driver's soname, it is what the loader gives to whoever asks for that name later.
    library = ctypes.CDLL(arguments["library"], ctypes.RTLD_GLOBAL)
    readings: list[Reading] = []
    enough = threading.Event()

    def sink(reading: Reading) -> None:
        readings.append(reading)
        if sum(isinstance(each, Sample) for each in readings) >= arguments["samples"]:
            enough.set()

    sampler = NvmlSampler(arguments["uuids"], arguments["environ"], 0.01)
    recorder = Recorder([sampler], sink)
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
    if arguments["fork"]:
        use_in_a_child(sampler, library)
    recorder.stop(timeout_s=0.3 if arguments["until_hang"] else 60)
    if not arguments["until_hang"]:
        assert library.fake_left_open() == 0, "NVML or a look at the counters was left open"
    for reading in readings:
        print(msgspec.json.encode(reading).decode())


if __name__ == "__main__":
    main(msgspec.json.decode(sys.argv[1], type=Arguments))
