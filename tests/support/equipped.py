"""The callback on a machine with other hardware than this one's."""

from typing import Any

from lightning_gpuprof import GpuProfiler


class Equipped(GpuProfiler):
    """``hardware`` is what its session gets in the place of the machine's, by argument."""

    def __init__(self, hardware: dict[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self.hardware = hardware

    def _hardware(self) -> dict[str, Any]:
        return self.hardware
