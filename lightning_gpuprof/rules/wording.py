"""Numbers for people; being moved to :mod:`lightning_gpuprof.model.numbers`."""

from lightning_gpuprof.model.numbers import (
    amount as amount,
)
from lightning_gpuprof.model.numbers import (
    counted as counted,
)
from lightning_gpuprof.model.numbers import (
    cpus as cpus,
)
from lightning_gpuprof.model.numbers import (
    factor as factor,
)
from lightning_gpuprof.model.numbers import (
    listed as listed,
)
from lightning_gpuprof.model.numbers import (
    millis as millis,
)
from lightning_gpuprof.model.numbers import round_percent as percent
from lightning_gpuprof.model.numbers import (
    seconds as seconds,
)

__all__ = ["percent"]
