"""Everything that a finding can claim, by name; a rule takes one of these for ``Finding.explains``."""

from lightning_gpuprof.model.claim import Claim
from lightning_gpuprof.model.phases import PHASES, Phase

WAIT_FOR_BATCHES = Claim(resource="batches", name="data_wait", phase="data_wait")

NO_CPU = Claim(resource="CPUs", name="no CPU to run on")
SWAPPING = Claim(resource="CPUs", name="swap")

SAMPLER = Claim(resource="training thread", name="sampler", phase="data_wait")
BATCH_TRANSFER = Claim(resource="training thread", name="h2d", phase="h2d")
OPTIMIZER = Claim(resource="training thread", name="optimizer", phase="optimizer")
LR_SCHEDULER = Claim(resource="training thread", name="lr_scheduler_step", phase="optimizer")
GRADIENT_CLIPPING = Claim(resource="training thread", name="clip", phase="clip")
CALLBACKS = Claim(resource="training thread", name="callbacks", phase="callbacks")
LOGGING = Claim(resource="training thread", name="logging", phase="logging")
LOOP = Claim(resource="training thread", name="loop", phase="loop")
RANK_SYNC = Claim(resource="training thread", name="sync", phase="sync")
INTERPRETER = Claim(resource="training thread", name="waiting for the GIL")
GARBAGE_COLLECTOR = Claim(resource="training thread", name="garbage collector")
ALLOCATOR = Claim(resource="training thread", name="allocator")

FORWARD = Claim(resource="step", name="forward", phase="forward")
BACKWARD = Claim(resource="step", name="backward", phase="backward")
METRICS = Claim(resource="step", name="metrics", within=("forward",))
ZERO_GRAD = Claim(resource="step", name="zero_grad", phase="zero_grad")
ZEROS_IN_GRADIENTS = Claim(resource="step", name="gradients filled with zeros", within=("zero_grad", "backward"))
ANOMALY_DETECTION = Claim(resource="step", name="anomaly detection", within=("forward", "backward"))
PADDING = Claim(resource="step", name="padding", within=("forward", "backward"))
PYTHON = Claim(resource="step", name="Python between operators", within=("forward", "backward"))
ALGORITHM_TRIALS = Claim(resource="step", name="trials of algorithms", within=("forward", "backward"))
COMMUNICATION = Claim(resource="step", name="communication")
BATCH_COPIES = Claim(resource="step", name="copies of the batch")
COPIES_TO_HOST = Claim(resource="step", name="copies to the host")

LATE_LAUNCHES = Claim(resource="device idle", name="late launches")
HOST_ELSEWHERE = Claim(resource="device idle", name="host at other work")
ALL_RANKS_CHECK = Claim(resource="device idle", name="check of all ranks")
TENSORS_OF_THE_HOST = Claim(resource="device idle", name="waits for tensors of the host")
WAITS_OF_THE_CODE = Claim(resource="device idle", name="waits of the code")
WAITS_OF_THE_SCALER = Claim(resource="device idle", name="waits of the gradient scaler")
WAITS_OF_THE_PROGRESS_BAR = Claim(resource="device idle", name="waits of the progress bar")

MATRIX_KERNELS = Claim(resource="device busy", name="matrix kernels")
MEMORY_KERNELS = Claim(resource="device busy", name="memory kernels")
LAYOUT_CHANGES = Claim(resource="device busy", name="layout changes")
PADDING_ON_DEVICE = Claim(resource="device busy", name="padding")
IDLE_MULTIPROCESSORS = Claim(resource="device busy", name="idle multiprocessors")

CLOCKS = Claim(resource="clocks", name="clocks")

OUTLIERS = Claim(resource="uneven steps", name="outliers")
RECOMPILES = Claim(resource="uneven steps", name="recompiles")
WARM_UP = Claim(resource="uneven steps", name="warm-up")

VALIDATION = Claim(resource="outside steps", name="validation", phase="validation", part="validation")
CHECKPOINT = Claim(resource="outside steps", name="checkpoint", phase="checkpoint", part="checkpoint")
EPOCH_GAP = Claim(resource="outside steps", name="epoch_gap", part="epoch_gap")
EPOCH_START = Claim(resource="outside steps", name="epoch_start", part="epoch_gap")
LATE_RANK_OUTSIDE = Claim(resource="outside steps", name="late rank")
SANITY_CHECK = Claim(resource="outside steps", name="sanity check", part="sanity")

ALL: tuple[Claim, ...] = tuple(value for value in globals().values() if isinstance(value, Claim))

_OF_PHASE: dict[Phase, Claim] = {claim.phase: claim for claim in ALL if claim.phase == claim.name}


def of_phase(phase: Phase) -> Claim:
    """The whole of a phase."""
    return _OF_PHASE[phase]


assert set(_OF_PHASE) == set(PHASES)
