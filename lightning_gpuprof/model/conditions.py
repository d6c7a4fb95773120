"""The facts of a run that its numbers depend on: by name, with group, source, and what a difference means."""

import re
from collections.abc import Mapping
from typing import Literal, get_args

import msgspec

from lightning_gpuprof.model.journal import Value

_GPU = re.compile(r"gpu\d+\.")
_ONE_OF_LOADERS = re.compile(r"loader\.\d+\.")
_OF_ALL_LOADERS = frozenset({"batch_size", "built_at", "built_by", "count", "dataset_has_model"})
"""Facts that are not of one loader; the batch size is that of the largest batch."""

Group = Literal["hardware", "software", "model", "batch", "data", "trainer", "flags", "run"]
"""What a fact is about; ``run`` names the run and describes nothing that it did."""

GROUPS: tuple[Group, ...] = get_args(Group)

Role = Literal["fixed", "tested", "label"]
"""What a difference between two runs means: ``fixed``: they are not comparable, unless that is allowed;
``tested``: it may be the change under test; ``label``: nothing."""

FixedGroup = Literal["hardware", "model", "batch"]
"""Groups with facts that must be equal for two runs to be comparable."""

FIXED_GROUPS: tuple[FixedGroup, ...] = get_args(FixedGroup)


THRESHOLDS = "gpuprof.threshold."
"""Begin of the names of facts that hold thresholds: ``gpuprof.threshold.input-bound.least_ratio``."""

UNTRACED = "gpuprof.untraced"
"""Whether nobody wanted a trace window."""
GOAL = "gpuprof.goal"
SAMPLES = "gpuprof.samples_of_batch"


class Fact(msgspec.Struct, frozen=True):
    """One fact, as ``docs/conditions.md`` lists it."""

    name: str
    """Key in ``run`` of ``report.json``."""
    group: Group
    role: Role
    hashed: bool
    """Whether it takes part in ``conditions.hash``."""
    source: str
    """Where it is read, and what it says if the name does not."""


_TABLES: dict[tuple[Group, Role, bool], dict[str, str]] = {
    ("hardware", "fixed", True): {
        "device.type": "type of `trainer.strategy.root_device`",
        "device.name": "`torch.cuda.get_device_properties`, once CUDA is in use",
        "device.capability": "the same: compute capability, `9.0`",
        "device.visible_count": "`torch.cuda.device_count()`, once CUDA is in use",
        "device.memory_bytes": "`torch.cuda.get_device_properties`",
        "trainer.world_size": "`trainer.world_size`: ranks",
        "trainer.num_nodes": "`trainer.num_nodes`",
        "machine.system": "`platform`: system and processor architecture",
        "machine.cpu": "`/proc/cpuinfo`: model name",
        "cpu.count": "`os.cpu_count()`: logical CPUs of the machine",
        "cpu.usable": "min(affinity, quota of the control group) / ranks on this machine",
    },
    ("hardware", "tested", True): {
        "cpu.affinity": "`os.sched_getaffinity`: CPUs that the scheduler may use",
        "cpu.quota": "control group: CPUs; absent where there is no quota",
        "machine.numa_nodes": "`/sys/devices/system/node`: online nodes",
        "machine.affinity_numa_nodes": "nodes of the process's CPUs",
        "machine.container": "`docker`, `podman`, `kubernetes`, `apptainer`, `lxc`, … or `none`, by their marks",
    },
    ("hardware", "tested", False): {
        "device.multiprocessors": "`multi_processor_count`; not hashed, as the next six: the name implies them",
        "device.threads_per_multiprocessor": "`max_threads_per_multi_processor`",
        "device.threads_per_block": "`max_threads_per_block`",
        "device.threads_per_warp": "`warp_size`",
        "device.registers_per_multiprocessor": "`regs_per_multiprocessor`",
        "device.shared_per_multiprocessor_bytes": "`shared_memory_per_multiprocessor`",
        "device.shared_per_block_bytes": "`shared_memory_per_block_optin`",
        "device.l2_cache_bytes": "`L2_cache_size`",
        "machine.memory_bytes": "`/proc/meminfo`; not hashed: it differs by a few bytes between equal machines",
    },
    ("software", "tested", True): {
        "version.python": "the interpreter",
        "version.torch": "the package",
        "version.lightning": "the package",
        "version.pytorch-lightning": "the package",
        "version.torchmetrics": "the package, if imported",
        "version.numpy": "the package",
        "version.triton": "the package, if imported",
        "version.tensorboard": "the package, if imported",
        "version.torch-tb-profiler": "installed distribution",
        "version.nvidia-ml-py": "installed distribution",
        "version.cuda": "`torch.version.cuda`: what torch was built with",
        "version.hip": "`torch.version.hip`",
        "version.cudnn": "`torch.backends.cudnn.version()`, once CUDA is in use",
        "version.nccl": "`torch.cuda.nccl.version()`, once CUDA is in use",
        "version.driver": "`/proc/driver/nvidia/version`",
        "version.kernel": "`platform.release()`",
        "device.cuda": "as `version.cuda`, for a run on CUDA",
    },
    ("model", "fixed", True): {
        "model.class": "class of the LightningModule",
        "model.parameters": "sum of `numel()`",
        "model.trainable_parameters": "those with `requires_grad`",
        "model.layers": "modules without children; `torch.compile`'s wrappers do not count",
    },
    ("model", "tested", True): {
        "model.parameter_tensors": "number of parameters as tensors: what an optimizer loops over",
        "model.parameter_bytes": "sum of `numel() * element_size()`",
        "model.buffer_bytes": "the same of buffers",
        "model.parameter_dtypes": "bytes by dtype",
        "model.automatic_optimization": "attribute of the LightningModule",
        "model.optimizer": "classes of the optimizers",
        "model.optimizer_param_groups": "parameter groups of all optimizers",
        "model.optimizer_fused": "`fused` of the first parameter group",
        "model.optimizer_foreach": "`foreach` of the first parameter group",
        "model.convolutions": "modules of `torch.nn` with Conv in their class's name",
        "model.channels_last_convolutions": "2-d convolutions whose weight lies in channels_last",
        "model.conv_bias_before_norm": "convolutions with a bias right before a BatchNorm in a Sequential",
        "compile.state": "`none`, `module` or `submodules`: `torch.compile` in use at the first step",
        "compile.modules": "names of what is compiled",
        "compile.backend": "backend of `torch.compile`",
        "compile.mode": "mode or options of `torch.compile`",
        "compile.dynamic": "`dynamic` of `torch.compile`: yes, no, or `automatic`",
        "compile.fullgraph": "`fullgraph` of `torch.compile`",
    },
    ("model", "tested", False): {
        "model.sync_batchnorms": "modules",
        "model.metrics_updated_twice": "torchmetrics whose calls update twice",
    },
    ("batch", "fixed", True): {
        "loader.batch_size": "the loader's or its batch sampler's; of several loaders the largest",
    },
    ("batch", "tested", True): {
        "batch.tensors": "tensors in the first batch of the run",
        "batch.dtypes": "their dtypes, in order",
    },
    ("batch", "tested", False): {
        "batch.shapes": "their shapes; not hashed, because lengths that vary depend on the order of the samples",
        "batch.bytes": "their bytes; not hashed for the same reason",
        "batch.objects": "lists, tuples, tensors, numbers and so on in it, at most 1,000; not hashed likewise",
        "batch.device": "devices that they are on when the step begins",
    },
    ("data", "tested", True): {
        f"{prefix}.{name}": source
        for prefix, extra in (("loader", ""), ("val_loader", ", of validation"))
        for name, source in {
            "count": f"loaders{extra}",
            "kind": f"class of the loader{extra}",
            "num_workers": f"DataLoader argument{extra}",
            "pin_memory": f"DataLoader argument{extra}",
            "persistent_workers": f"DataLoader argument{extra}",
            "prefetch_factor": f"DataLoader argument{extra}",
            "drop_last": f"DataLoader argument{extra}",
            "multiprocessing_context": f"start method of the workers, if there are any{extra}",
            "in_order": f"DataLoader argument{extra}",
            "worker_init_fn": f"whether there is one{extra}",
            "collate_fn": f"name of the function{extra}",
            "sampler": f"class of the sampler{extra}",
            "batch_sampler": f"class of the batch sampler{extra}",
            "shuffle": f"whether the sampler is a random one{extra}",
            "dataset": f"class of the dataset{extra}",
            "dataset_length": f"its length, where torch's own sampler asks for it{extra}",
        }.items()
    }
    | {"val_loader.batch_size": "as loader.batch_size, of validation"},
    ("data", "tested", False): {
        "loader.dataset_has_model": "whether the dataset has the model, a part of it or a method of one"
    },
    ("data", "label", False): {
        "loader.built_at": "file and line of your code that calls `DataLoader` for training",
        "loader.built_by": "that call as it is written there; `***` for strings that may be secret",
        "val_loader.built_at": "the same for the validation of a fit",
        "val_loader.built_by": "that call",
    },
    ("trainer", "tested", True): {
        "trainer.strategy": "class of the strategy",
        "trainer.accelerator": "class of the accelerator",
        "trainer.precision": "`trainer.precision`",
        "trainer.precision_plugin": "class of the precision plugin",
        "trainer.devices": "`trainer.num_devices`: devices of this node",
        "trainer.backend": "process group backend, of several ranks",
        "trainer.find_unused_parameters": "argument of DDP",
        "trainer.static_graph": "argument of DDP",
        "trainer.bucket_cap_mb": "argument of DDP, MB",
        "trainer.gradient_as_bucket_view": "argument of DDP",
        "trainer.comm_hook": "DDP's communication hook",
        "trainer.sharding": "FSDP's sharding strategy, DeepSpeed's stage",
        "trainer.tensor_parallel": "ranks that share one copy of the model, under ModelParallelStrategy",
        "trainer.pipeline_stage": "place of rank along `pp` in the `device_mesh` of the strategy",
        "trainer.sync_batchnorm": "`sync_batchnorm`",
        "trainer.accumulate_grad_batches": "argument of the trainer",
        "trainer.gradient_clip_val": "argument of the trainer",
        "trainer.gradient_clip_algorithm": "argument of the trainer",
        "trainer.max_epochs": "argument of the trainer",
        "trainer.max_steps": "argument of the trainer",
        "trainer.max_time": "argument of the trainer",
        "trainer.limit_train_batches": "argument of the trainer",
        "trainer.limit_val_batches": "argument of the trainer",
        "trainer.num_training_batches": "batches of an epoch, as Lightning counted them",
        "trainer.num_val_batches": "batches of a validation run, of all loaders",
        "trainer.check_val_every_n_epoch": "argument of the trainer",
        "trainer.val_check_interval": "argument of the trainer",
        "trainer.num_sanity_val_steps": "argument of the trainer",
        "trainer.reload_dataloaders_every_n_epochs": "argument of the trainer",
        "trainer.use_distributed_sampler": "argument of the trainer",
        "trainer.log_every_n_steps": "argument of the trainer",
        "trainer.loggers": "classes of the loggers",
        "trainer.callbacks": "classes of the callbacks",
        "trainer.profiler": "class of the user's profiler",
        "trainer.progress_bar": "class of the progress bar",
        "trainer.progress_bar_refresh_rate": "batches between two of its updates",
        "trainer.checkpoint_every_n_train_steps": "cadence of the checkpoints; with several callbacks the shortest",
        "trainer.checkpoint_every_n_epochs": "the same in epochs",
        "trainer.checkpoint_train_time_interval_s": "the same in seconds: `train_time_interval`",
        "trainer.checkpoint_save_top_k": "the most of all checkpoint callbacks, -1 is all",
        "trainer.checkpoint_save_weights_only": "whether all checkpoints leave the optimizer out",
        "trainer.checkpoint_io": "class of the checkpoint plugin",
    },
    ("trainer", "tested", False): {
        "trainer.callbacks_not_of_lightning": "those of the callbacks whose class Lightning does not define"
    },
    ("trainer", "label", False): {
        "trainer.built_at": "file and line of your code that calls `Trainer`",
        "trainer.config_file": "the configuration that LightningCLI was given, if it was one file",
        "trainer.config_data": "arguments of the data module in LightningCLI's configuration",
    },
    ("flags", "tested", True): {
        "trainer.detect_anomaly": "argument of the trainer",
        "flags.detect_anomaly": "`torch.is_anomaly_enabled()`",
        "flags.float32_matmul_precision": "`torch.get_float32_matmul_precision()`",
        "flags.matmul_tf32": "TF32 in matmuls",
        "flags.cudnn_tf32": "TF32 in cuDNN",
        "flags.cudnn_enabled": "`torch.backends.cudnn.enabled`",
        "flags.cudnn_benchmark": "`torch.backends.cudnn.benchmark`",
        "flags.cudnn_deterministic": "`torch.backends.cudnn.deterministic`",
        "flags.deterministic_algorithms": "`torch.are_deterministic_algorithms_enabled()`",
        "flags.sdpa_backends": "backends that scaled_dot_product_attention may choose from",
        "flags.default_dtype": "`torch.get_default_dtype()`",
        "flags.compile_disabled": "`TORCHDYNAMO_DISABLE` or `torch._dynamo.config.disable`",
        "flags.python_debugger": "a tracing function is set: a debugger or a coverage tool",
        "flags.gc_enabled": "`gc.isenabled()`",
        "flags.sharing_strategy": "`torch.multiprocessing.get_sharing_strategy()`",
        "torch.num_threads": "`torch.get_num_threads()`",
        "torch.num_interop_threads": "`torch.get_num_interop_threads()`",
        "allocator.settings": "`PYTORCH_ALLOC_CONF`, `PYTORCH_CUDA_ALLOC_CONF`",
        "allocator.backend": "`torch.cuda.get_allocator_backend()`, once CUDA is in use",
    },
    ("flags", "label", False): {
        "flags.anomaly_stack_us": "time that anomaly detection takes to record one stack",
        "flags.anomaly_stack_most_us": "the same with empty caches",
        "flags.anomaly_nodes": "nodes of the first loss's graph, each of which records its stack",
        "flags.anomaly_check_us": "time to check one gradient for NaN on a CPU",
        "flags.anomaly_check_most_us": "the same with empty caches",
        "flags.anomaly_checks": "gradients between the nodes of that graph, each of which is checked",
    },
    ("run", "label", False): {
        "script": "name of the program's file; `PACKAGE/__main__.py` for a package",
        "arguments": "the words after it: options, numbers, YAML and Python files; `***` for all others",
        "arguments_hash": "16 bits of a hash of these words, hidden ones as well, by which `gpuprof try` compares",
        "git.commit": "`.git/HEAD` of the working folder or one above",
        "slurm.job_id": "`SLURM_JOB_ID`",
        "slurm.num_nodes": "`SLURM_JOB_NUM_NODES`",
        "slurm.tasks": "`SLURM_NTASKS`",
        "slurm.cpus_per_task": "`SLURM_CPUS_PER_TASK`",
        "slurm.partition": "`SLURM_JOB_PARTITION`",
        "slurm.switch": "of the node of the rank, in `SLURM_TOPOLOGY_ADDR`",
    },
}
"""What is looked for: by group, role, and whether it is hashed."""

FACTS = tuple(Fact(name, *kind, source) for kind, sources in _TABLES.items() for name, source in sources.items())
"""Every fact that is looked for; which of them a run has depends on the run."""

ENVIRONMENT: tuple[str, ...] = (
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUDA_DEVICE_MAX_CONNECTIONS",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_DISTRIBUTED_DEBUG",
    "TORCH_CPP_LOG_LEVEL",
    "TORCH_SHOW_CPP_STACKTRACES",
    "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCH_NCCL_DESYNC_DEBUG",
    "NCCL_DEBUG",
    "NCCL_P2P_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "TORCH_LOGS",
    "TORCH_COMPILE_DEBUG",
    "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "OMP_PROC_BIND",
    "KMP_AFFINITY",
    "PYTHONFAULTHANDLER",
    "PYTHONASYNCIODEBUG",
    "PYTHONMALLOC",
    "MALLOC_CONF",
    "COMPUTE_SANITIZER_PROCESS_TREE",
)
"""Environment variables whose value is read, as ``env.<NAME>``, and no other: none of them holds a secret or a path."""

HEADER: tuple[Fact, ...] = (
    Fact("world_size", "hardware", "fixed", False, "ranks, from the journal's header"),
    Fact("gpuprof", "software", "tested", False, "this package"),
    Fact("run_id", "run", "label", False, "drawn at the start"),
    Fact("stage", "run", "label", False, "`fit`, `validate`, `test` or `predict`"),
    Fact("started", "run", "label", False, "when the stage was entered, UTC"),
    Fact("status", "run", "label", False, "`finished`, `unfinished` or `interrupted: …`"),
    Fact("ended_at", "run", "label", False, "line of the program that the exception which ended it came through"),
    Fact("host", "run", "label", False, "name of the machine"),
    Fact("rank", "run", "label", False, "whose journal it is"),
    Fact("kept.in", "run", "label", False, "list, dictionary or set of the program that gained most items"),
    Fact("kept.items", "run", "label", False, "how many it gained"),
    Fact("kept.kind", "run", "label", False, "what they are: `tensors with their graphs`, `tensors` or `items`"),
    Fact("model.gradients_kept", "model", "tested", False, "gradients left by `zero_grad` in one step"),
    Fact("trainer.logged_values", "trainer", "tested", False, "how many values `training_step` logs"),
    Fact("trainer.synced_values", "trainer", "tested", False, "how many of them ranks exchange in every step"),
    Fact("checkpoint.bytes", "run", "label", False, "size of what was saved last, if its files are on this machine"),
    Fact("gpuprof.target", "run", "label", False, "what the run was to reach, as given"),
    Fact("gpuprof.price_per_gpu_hour", "run", "label", False, "as given"),
    Fact(GOAL, "run", "label", False, "what the report leads with, if it is not throughput"),
    Fact(SAMPLES, "run", "label", False, "samples of a batch, as given or counted in the first one by `samples=`"),
    Fact("gpuprof.baseline", "run", "label", False, "the run was compared with an earlier one at its end"),
    Fact("gpuprof.untraced", "run", "label", False, "no trace window was asked for: `windows=[]`"),
)
"""What else stands in ``run`` of ``report.json``: known at the end, or from the journal's header and footer."""

BY_NAME: dict[str, Fact] = {
    fact.name: fact
    for fact in (
        *HEADER,
        *FACTS,
        *(Fact(f"env.{name}", "flags", "tested", True, "environment variable, if it is set") for name in ENVIRONMENT),
    )
}
"""All facts, those of the environment with them."""

HASH_NAME = "conditions.hash"


def fact_of(name: str) -> Fact:
    """The fact of a name; one of several loaders (``loader.1.kind``) is as that of the only one.

    What only another version knows, and NVML's, is sorted by its first word.
    """
    if name in BY_NAME:
        return BY_NAME[name]
    if _ONE_OF_LOADERS.match(name):
        common = BY_NAME.get(_ONE_OF_LOADERS.sub("loader.", name)) or Fact("", "data", "label", False, "")
        return msgspec.structs.replace(common, name=name)
    return Fact(name, "hardware" if _GPU.match(name) else "run", "label", False, "")


def condition_of(run: Mapping[str, Value], name: str, slowest: int | None) -> Value:
    """A fact of a run; of several training loaders that is the slowest one's, but for what is not of one loader.

    Args:
        run: All facts.
        name: Of the wanted one.
        slowest: The number of the slowest training loader; None: not known.

    Returns:
        None if it is not known.
    """
    head, _, rest = name.partition(".")
    if head == "loader" and f"loader.{slowest}.kind" in run and rest not in _OF_ALL_LOADERS:
        return run.get(f"loader.{slowest}.{rest}")
    return run.get(name)
