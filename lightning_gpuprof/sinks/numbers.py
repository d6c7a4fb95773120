"""Numbers for people; being moved to :mod:`lightning_gpuprof.model.numbers`."""

from lightning_gpuprof.model.numbers import (
    ABSENT as ABSENT,
)
from lightning_gpuprof.model.numbers import (
    count as count,
)
from lightning_gpuprof.model.numbers import (
    fixed as fixed,
)
from lightning_gpuprof.model.numbers import (
    interval as interval,
)
from lightning_gpuprof.model.numbers import (
    label as label,
)
from lightning_gpuprof.model.numbers import (
    percent as percent,
)
from lightning_gpuprof.model.numbers import (
    quantity as quantity,
)
from lightning_gpuprof.model.numbers import (
    seconds as seconds,
)
from lightning_gpuprof.model.numbers import (
    significant as significant,
)
from lightning_gpuprof.model.numbers import (
    size as size,
)
from lightning_gpuprof.model.numbers import (
    unit_of as unit_of,
)
from lightning_gpuprof.model.numbers import (
    with_unit as with_unit,
)
