"""What the ranks of a job keep of one window, computed: one of them comes late to each collective."""

from pathlib import Path

import numpy as np

from lightning_gpuprof.model.trace.rank_window import CollectiveClass, Collectives, RankWindow
from lightning_gpuprof.trace.analyses.communication.rank_window import write_beside

STEP_NS = 2_000_000
TRANSFER_NS = 100_000
LATE_NS = 300_000
CLASSES = (
    CollectiveClass(kind="all_reduce", group="default", message_bytes=25 << 20),
    CollectiveClass(kind="all_gather", group="default", message_bytes=1 << 20),
)


def write_windows(folder: Path, ranks: int, *, late: int, steps: int = 4, collectives: int = 100) -> list[Path]:
    """Write the windows and, in place of the traces, files that hold none.

    Args:
        folder: Where they go.
        ranks: Ranks of the job.
        late: Which comes late.
        steps: Of the window.
        collectives: Of a step.
    """
    random = np.random.default_rng(0)
    due_ns = np.arange(steps * collectives) * (STEP_NS // collectives + TRANSFER_NS + LATE_NS)
    files = []
    for rank in range(ranks):
        start_ns = due_ns + random.integers(0, LATE_NS // 10, len(due_ns)) + (LATE_NS if rank == late else 0)
        end_ns = due_ns + LATE_NS + LATE_NS // 10 + TRANSFER_NS
        computed_ns = np.cumsum(np.diff(start_ns, prepend=0) // 2)
        window = RankWindow(
            rank=rank,
            world_size=ranks,
            device="0",
            base_time_ns=1_700_000_000_000_000_000,
            work_ns=(0, int(end_ns[-1])),
            window_ns=int(end_ns[-1]),
            busy_ns=int(end_ns[-1]) * 9 // 10,
            computation_ns=int(computed_ns[-1]),
            communication_ns=int((end_ns - start_ns).sum()),
            steps=tuple(f"ProfilerStep#{number}" for number in range(steps)),
            class_us={"gemm": 1e3, "communication": 1e3},
            collectives=Collectives(
                classes=CLASSES,
                of_class=(np.arange(len(due_ns)) % len(CLASSES)).tolist(),
                step=(np.arange(len(due_ns)) // collectives).tolist(),
                start_ns=start_ns.tolist(),
                end_ns=end_ns.tolist(),
                computed_at_start_ns=computed_ns.tolist(),
                computed_at_end_ns=computed_ns.tolist(),
            ),
        )
        file = folder / f"rank{rank}.1.pt.trace.json.gz"
        file.write_bytes(b"no trace")
        write_beside(window, file)
        files.append(file)
    return files
