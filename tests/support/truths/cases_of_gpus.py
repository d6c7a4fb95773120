"""Cases: trainings on a GPU that are computed, each fault with the same training without it."""

from collections.abc import Callable
from random import Random

from lightning_gpuprof.model.finding import VerdictKind
from truths import faults_of_kernels as kernels
from truths import faults_of_launches as launches
from truths import faults_of_memory as memory
from truths import faults_of_ranks as ranks
from truths.case import Case
from truths.gpu_runs import Program, Simulated

_BUSY: tuple[VerdictKind, ...] = ("compute-bound", "memory-bound")


def _twins(
    name: str,
    program: Callable[[Random, bool], Program],
    *expected: str,
    verdicts: tuple[VerdictKind, ...] = _BUSY,
    allowed: tuple[str, ...] = (),
    without: str,
) -> tuple[Case, Case]:
    """A fault, any of whose rules names it, and the same training without it, of which they can judge, too."""
    faulty = Case(
        name=f"GPU: {name}",
        source=Simulated(program=program),
        expected=(expected,),
        verdicts=verdicts,
        allowed=allowed,
    )
    healthy = Case(
        name=f"GPU: {without}",
        source=Simulated(program=program, faulty=False),
        group="healthy",
        verdicts=_BUSY,
        must_judge=expected,
    )
    return faulty, healthy


_QUIET: tuple[tuple[str, Callable[[Random, bool], Program], str, str], ...] = (
    ("memory is nearly full", memory.nearly_full_memory, "oom-risk", "memory is not full"),
    ("free memory lies in pieces", memory.memory_in_pieces, "fragmentation", "free memory is in one piece"),
    ("a list keeps tensors of each step", memory.leaking_memory, "memory-leak", "each step frees its tensors"),
    ("activations fill the memory", memory.large_activations, "activations-dominate", "small activations"),
    ("gradients are in memory twice", ranks.copied_buckets, "bucket-view-off", "gradients are views of buckets"),
    ("gloo between GPUs", ranks.backend_for_cpus, "wrong-backend", "NCCL between GPUs"),
    ("products with an odd size", kernels.odd_sizes, "tc-misaligned", "products with a padded size"),
    ("products in a wave and a bit", kernels.uneven_waves, "wave-quantisation", "products in whole waves"),
    ("biases before norms", kernels.needless_biases, "conv-bias-before-bn", "no bias before norms"),
    ("products far below the peak", kernels.slow_products, "mfu-low", "products near the peak"),
    ("copies within the device", kernels.copies_in_memory, "copy-heavy", "one layout"),
)
"""Faults that leave the verdict as it is: name, program, the rule that names it, and what the training is without."""


GPUS: tuple[Case, ...] = (
    *_twins(
        "kernels shorter than their launches",
        launches.small_kernels,
        "launch-bound",
        "small-kernels",
        verdicts=("host-bound",),
        allowed=("launch-bound", "small-kernels", "compile-absent"),
        without="as many launches of long kernels",
    ),
    *_twins(
        "a loop in Python between launches",
        launches.python_between_launches,
        "gpu-gaps",  # one long gap at one line: neither launches nor the interpreter as a whole are slow
        verdicts=("host-bound",),
        without="a short loop between launches",
    ),
    *_twins(
        "some Python before each launch",
        launches.python_before_each_launch,
        "python-overhead",
        verdicts=("host-bound",),
        allowed=("launch-bound",),
        without="the same Python before long kernels",
    ),
    *_twins(
        "the loss is read in each step",
        launches.item_in_step,
        "sync-points",
        verdicts=("sync-bound",),
        without="the loss is not read",
    ),
    *_twins(
        "a value is read after a fetch that the queue hides",
        launches.value_read_after_a_hidden_fetch,
        "sync-points",
        verdicts=("sync-bound",),
        without="a fetch that the queue hides",
    ),
    *_twins(
        "a progress bar reads a value in each step",
        launches.progress_bar,
        "progress-bar-sync",
        verdicts=(),  # of a step it is a seventh, and drawing is a part of the loop
        allowed=("callback-slow",),
        without="a progress bar without values",
    ),
    *_twins(
        "masks are made on the host",
        launches.tensors_of_the_host,
        "host-tensor-creation",
        verdicts=("sync-bound", "host-bound"),
        without="masks are made on the device",
    ),
    *_twins(
        "batches in pageable memory",
        launches.pageable_batches,
        "h2d-pageable",
        verdicts=("transfer-bound",),
        without="batches in pinned memory",
    ),
    *_twins(
        "large batches from pinned memory",
        launches.large_pinned_batches,
        "h2d-exposed",
        verdicts=("transfer-bound",),
        without="small batches from pinned memory",
    ),
    *_twins(
        "batches from pinned memory of the other socket",
        launches.slow_pinned_copies,
        "h2d-slow-link",
        verdicts=(),  # of a step it is a tenth to a third
        allowed=("h2d-exposed",),
        without="batches from pinned memory of its own socket",
    ),
    *_twins(
        "the host is ahead until the queue is full",
        launches.launches_far_ahead,
        "queue-full",
        without="the host waits before the queue is full",
    ),
    *_twins(
        "outputs are copied back in each step",
        launches.outputs_copied_back,
        "d2h-traffic",
        verdicts=(),  # no kind is for it
        allowed=("sync-points",),
        without="outputs stay on the device",
    ),
    *_twins(
        "segments are allocated in each step",
        memory.memory_taken_in_steps,
        "cudamalloc-steady",
        verdicts=("host-bound",),
        allowed=("gpu-gaps",),
        without="all segments are there",
    ),
    *_twins(
        "memory is given back and taken again",
        memory.memory_given_back_in_steps,
        "empty-cache-in-loop",
        verdicts=("host-bound",),
        allowed=("gpu-gaps", "cudamalloc-steady"),
        without="memory stays reserved",
    ),
    *_twins(
        "allocations are tried again",
        memory.allocations_tried_again,
        "alloc-retries",
        verdicts=("host-bound",),
        allowed=("gpu-gaps", "oom-risk", "activations-dominate"),
        without="allocations succeed at once",
    ),
    *_twins(
        "states of the optimizer fill the memory",
        memory.large_states,
        "optimizer-state-dominates",
        allowed=("uneven-peak-phase",),
        without="small states of the optimizer",
    ),
    *_twins(
        "the optimizer's temporary tensors make the peak",
        memory.temporary_tensors_of_the_optimizer,
        "uneven-peak-phase",
        without="an optimizer without temporary tensors",
    ),
    *_twins(
        "gradients are kept through forward, where the peak is",
        memory.gradients_in_forward,
        "grads-live-in-forward",
        without="gradients are freed before forward",
    ),
    Case(
        name="GPU: short kernels, and memory for a batch three times as large",
        source=Simulated(program=memory.room_for_a_larger_batch),
        expected=(("launch-bound", "small-kernels"), ("memory-headroom",)),
        verdicts=("host-bound",),
        group="pair",
        allowed=("launch-bound", "small-kernels", "compile-absent"),
    ),
    *_twins(
        "batches come late",
        launches.slow_fetches,
        "input-bound",
        "too-few-workers",
        verdicts=("input-bound",),
        allowed=("too-few-workers",),
        without="batches are ready",
    ),
    *_twins(
        "gradients are reduced after backward",
        ranks.exposed_reductions,
        "exposed-comm",
        verdicts=("comm-bound",),
        without="gradients are reduced beside backward",
    ),
    *_twins(
        "gradients are reduced without NVLink",
        ranks.reductions_without_nvlink,
        "comm-slow-link",
        verdicts=("comm-bound",),
        allowed=("exposed-comm",),
        without="gradients are reduced through NVLink",
    ),
    *_twins(
        "gradients are reduced in batches without an optimizer step",
        ranks.reductions_between_steps,
        "accumulate-nosync",
        verdicts=("comm-bound",),
        allowed=("exposed-comm",),
        without="gradients are reduced before optimizer steps only",
    ),
    *_twins(
        "ranks exchange the statistics of each layer",
        ranks.synced_norms,
        "batchnorm-sync",
        verdicts=(),  # a sixth of the step
        allowed=("exposed-comm",),
        without="ranks exchange the statistics of layers that take long",
    ),
    *_twins(
        "Lightning's check of all ranks empties the queue",
        ranks.check_of_ranks,
        "framework-ddp-sync",
        verdicts=(),  # a tenth of the step
        without="no check of all ranks",
    ),
    *_twins(
        "unused parameters are searched for",
        ranks.unused_search,
        "find-unused-params",
        without="no search for unused parameters",
    ),
    *_twins(
        "rank 0 keeps the outputs of all ranks",
        ranks.gathered_outputs,
        "rank-memory-imbalance",
        without="all ranks need the same memory",
    ),
    *_twins(
        "products in fp32",
        kernels.fp32_products,
        "fp32-matmul-tf32-off",
        allowed=("tc-unused",),
        without="products in TF32",
    ),
    *_twins(
        "products in fp32 on a GPU without TF32",
        kernels.fp32_on_volta,
        "tc-unused",
        without="products in half precision on a GPU without TF32",
    ),
    *_twins(
        "layouts change around convolutions",
        kernels.transposed_images,
        "channels-last-missing",
        without="convolutions in channels-last",
    ),
    *_twins(
        "attention in pieces",
        kernels.attention_in_pieces,
        "attention-unfused",
        allowed=("memory-bound-kernels",),
        without="attention in one kernel",
    ),
    *_twins(
        "kernels of few blocks",
        kernels.few_blocks,
        "low-occupancy",
        verdicts=("latency-bound",),
        without="kernels of many blocks",
    ),
    *_twins(
        "operators that only go through memory",
        kernels.pointwise_work,
        "memory-bound-kernels",
        verdicts=("memory-bound",),
        without="few operators that go through memory",
    ),
    *_twins(
        "cuDNN may not try its algorithms",
        kernels.untried_convolutions,
        "cudnn-benchmark-off",
        without="cuDNN tries its algorithms",
    ),
    *_twins(
        "cuDNN times its algorithms for each new shape",
        kernels.new_shapes,
        "cudnn-benchmark-thrash",
        verdicts=(),  # no kind is for it
        allowed=("sync-points",),
        without="new shapes cost nothing",
    ),
    *_twins(
        "memory is nearer to its limit than arithmetic",
        kernels.near_one_roof,
        "roofline-position",
        without="memory and arithmetic are in balance",
    ),
    *_twins(
        "warps of long kernels wait",
        kernels.waiting_warps,
        "latency-bound-kernels",
        verdicts=("latency-bound",),
        without="long kernels use the GPU",
    ),
    *_twins(
        "launches take long",
        launches.slow_launches,
        "slow-launch-api",
        verdicts=("host-bound",),
        allowed=("launch-bound", "small-kernels", "compile-absent"),
        without="launches are fast",
    ),
    *_twins(
        "many small copies",
        launches.many_small_copies,
        "many-small-copies",
        verdicts=(),  # a tenth of the step
        allowed=("sync-points",),
        without="one copy for all",
    ),
    *(twin for name, program, rule, without in _QUIET for twin in _twins(name, program, rule, without=without)),
    Case(
        name="GPU: float16 with a gradient scaler",
        source=Simulated(program=launches.scaled_gradients),
        expected=(("amp-scaler-sync",), ("precision-16-on-ampere",)),
        verdicts=("sync-bound",),
        group="pair",
    ),
    Case(
        name="GPU: bfloat16 without a scaler",
        source=Simulated(program=launches.scaled_gradients, faulty=False),
        group="healthy",
        verdicts=_BUSY,
    ),
    Case(
        name="GPU: nothing is wrong",
        source=Simulated(program=kernels.healthy, faulty=False),
        group="healthy",
        verdicts=_BUSY,
    ),
    Case(
        name="GPU: fetches that the device's queue hides",
        source=Simulated(program=launches.fetches_behind_the_device),
        group="decoy",
        verdicts=_BUSY,
    ),
    Case(
        name="GPU: the loss is read, and long kernels follow at once",
        source=Simulated(program=launches.item_and_launch_at_once),
        group="decoy",
        verdicts=_BUSY,
    ),
)
