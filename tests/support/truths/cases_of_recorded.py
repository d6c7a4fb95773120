"""Cases: traces that others recorded on GPUs, as far as their authors or plain facts say what is wrong with them.

Each case names its source: the page of the recordings (README), or numbers that a slow, independent program found in
them (FACTS). What only this project's own analysis says of a trace is no truth here, and such traces are no case.
"""

from lightning_gpuprof.model.finding import VerdictKind
from lightning_gpuprof.model.journal import Value
from truths.case import Case, Group
from truths.recorded import Recorded

_LAUNCHES = ("launch-bound", "small-kernels", "python-overhead", "gpu-gaps")
_INPUT = ("input-bound", "single-process-loading")
_FP32 = ("tc-unused", "fp32-matmul-tf32-off")
"""True of trainings whose kernels are named as products in fp32."""


def _recorded(
    name: str,
    what: str,
    *expected: tuple[str, ...],
    verdicts: tuple[VerdictKind, ...] = (),
    allowed: tuple[str, ...] = (),
    group: Group = "fault",
    ranks: int = 1,
    device: str = "cuda",
    **conditions: Value,
) -> Case:
    known: dict[str, Value] = {"device.type": device, "trainer.world_size": ranks, **conditions}
    return Case(
        name=f"recorded: {what} ({name})",
        source=Recorded(name=name, conditions=known),
        group=group,
        expected=expected,
        verdicts=verdicts,
        allowed=allowed,
    )


_ALL: tuple[Case, ...] = (
    # README: "num_workers=0: DATA LOADER BOUND". FACTS: 42 % of the device's window in the fetch.
    _recorded(
        "v100_resnet50_dl0_2021",
        "ResNet without workers",
        _INPUT,
        verdicts=("input-bound",),
        allowed=_FP32,
        **{"loader.kind": "DataLoader", "loader.num_workers": 0, "loader.batch_size": 32},
    ),
    # README: the oldest of the same samples. FACTS: 24 % in the fetch, idle for 50 %, so more beside it than in it.
    _recorded(
        "v100_resnet50_dl0_preschema",
        "ResNet without workers, older",
        _LAUNCHES,
        _INPUT,
        group="pair",
        verdicts=("input-bound", "host-bound", "mixed"),
        allowed=(*_FP32, *_LAUNCHES),
        **{"loader.kind": "DataLoader", "loader.num_workers": 0, "loader.batch_size": 32},
    ),
    # FACTS: 57 % of the device's window in the fetch, idle for 47 %; the longest kernel is a softmax (24 %).
    _recorded(
        "h100_owlv2",
        "a detector waits for images",
        _INPUT,
        ("attention-unfused",),
        group="pair",
        verdicts=("input-bound",),
    ),
    # README: "H100, tiny launch bound". FACTS: idle for 92 %, kernels of 5 us.
    _recorded(
        "h100_bert_small",
        "a tiny BERT",
        _LAUNCHES,
        verdicts=("host-bound",),
        allowed=_LAUNCHES,
    ),
    # FACTS: idle for 84 %, no fetch, the host waits for 0.2 %.
    _recorded("h100_nsfw_vit", "one image", _LAUNCHES, verdicts=("host-bound",), allowed=_LAUNCHES),
    # FACTS: idle for 76 %, 6 % exposed communication, no fetch, the host waits for nothing.
    _recorded(
        "a100_2rank_nccl_metadata",
        "two ranks whose hosts are slow",
        _LAUNCHES,
        verdicts=("host-bound",),
        allowed=_LAUNCHES,
        ranks=2,
    ),
    # README: "comm heavy". FACTS: idle for 42 %, 21 % exposed communication, 404 all-reduces a step.
    _recorded(
        "v100_2rank_rank1_comm_heavy",
        "many small reductions",
        _LAUNCHES,
        ("exposed-comm", "ddp-bucket-size"),
        group="pair",
        verdicts=("host-bound",),
        allowed=(*_FP32, *_LAUNCHES, "ddp-bucket-size", "comm-slow-link"),
        ranks=2,
    ),
    # FACTS: 19 % exposed communication, idle for 16 %.
    _recorded(
        "a100_8rank_rank3_callstack",
        "embeddings of 8 ranks",
        ("exposed-comm",),
        allowed=("comm-slow-link",),
        ranks=8,
    ),
    # FACTS of three ranks of DLRM, exposed communication and idle time in percent: 28 and 62, 29 and 62, 14 and 76.
    *(
        _recorded(
            f"v100_dlrm_8rank_{rank}",
            f"DLRM, rank {rank}",
            _LAUNCHES,
            ("exposed-comm",),
            group="pair",
            verdicts=("host-bound",),
            allowed=_LAUNCHES,
            ranks=8,
        )
        for rank in (2, 6)
    ),
    _recorded(
        "v100_dlrm_8rank_7",
        "DLRM, rank 7",
        _LAUNCHES,
        verdicts=("host-bound",),
        allowed=(*_LAUNCHES, "exposed-comm"),
        ranks=8,
    ),
    # The model computes its attention in pieces. FACTS: idle for 1 %; the longest kernel is a softmax (18 %).
    _recorded(
        "h100_timesformer",
        "attention over 3,137 tokens",
        ("attention-unfused",),
        verdicts=("compute-bound", "memory-bound"),
    ),
    # FACTS: idle for 1.6 %, no communication, no fetch. In fp32 on tensor cores that stay unused.
    _recorded(
        "v100_ns_resolution",
        "a busy V100",
        group="healthy",
        verdicts=("compute-bound", "memory-bound"),
        allowed=_FP32,
    ),
    # FACTS: no device at all. It waits for all-reduces, which this source calls forward: no verdict is right of it.
    _recorded("cpu_only_gloo300", "no device", group="healthy", device="cpu", ranks=300),
)

RECORDED: tuple[Case, ...] = tuple(
    case for case in _ALL if isinstance(case.source, Recorded) and case.source.file.is_file()
)
"""Those whose trace lies beside the project."""
