"""The user's line and the module at any moment of a thread, from the trace's Python stacks: what is no library's."""

import re
import sys
from functools import cached_property

import numpy as np

from lightning_gpuprof.model.trace.attribution import LineMeaning, SourceLine, Stacks
from lightning_gpuprof.trace.linked import LinkedTrace
from lightning_gpuprof.trace.nesting import nearest, take_or_absent
from lightning_gpuprof.trace.steps import STEP
from lightning_gpuprof.trace.tables import ABSENT, Int32, Int64, Rows

_PROFILER = ("torch/profiler/", "torch/autograd/profiler.py")

_FRAME = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): ")
"""``train.py(12): forward``; built-in functions and modules (``nn.Module: Linear_0``) have no file."""

_GENERATED = re.compile(r"^<(?!ipython)")
"""``<frozen os>``, ``<string>``, ``<eval_with_key>.3``; a cell of a notebook is user code."""

_INSTALLED = re.compile(
    r"(^|/)(site-packages|dist-packages)/"
    r"|(^|/)lib(64)?/python\d"
    r"|(^|/)python\d*/lib/"
    r"|/(pytorch_lightning|lightning_fabric|lightning_gpuprof|lightning/(pytorch|fabric))/"
    r"|/torch/(_\w+|amp|autograd|compiler|cuda|distributed|fx|jit|nn|optim|profiler|utils)/",
    re.IGNORECASE,
)
"""Where libraries lie; the last two lines are for checkouts that are imported from their own folder."""

_INSTALLED_PACKAGES = """
IPython PIL _pytest accelerate albumentations apex bitsandbytes botorch captum cv2 dask datasets decord deepspeed
diffusers einops fire flash_attn fsspec functorch gpytorch h5py huggingface_hub hydra ignite imageio ipykernel
jaxtyping joblib jsonargparse kornia lightning lightning_fabric lightning_gpuprof lightning_utilities litdata
matplotlib megatron mlflow monai numba numpy omegaconf optree pandas peft pkg_resources pluggy pyarrow pydantic
pytest pytorch_lightning ray requests rich safetensors scipy sentencepiece setuptools skimage sklearn tensorboard
tensorboardX tensordict tiktoken timm tokenizers torch torch_geometric torch_xla torchao torchaudio torchdata
torchmetrics torchrec torchtext torchvision tornado tqdm traitlets transformers triton trl typing_extensions
urllib3 wandb webdataset xformers yaml zmq
"""
"""Top packages that training runs import. Kineto cuts the import path off a file's name, so ``torch/nn/functional.py``
says no longer that it was installed, and a package that is not listed here counts as the user's."""

_OFTEN_THE_USERS = frozenset(("code", "profile", "test", "this", "trace"))
"""Names of Python's own modules that training does not run, but that users give to their scripts."""

_LIBRARIES = frozenset(_INSTALLED_PACKAGES.split())

_PYTHON = (frozenset(sys.stdlib_module_names) | {"__future__", "asyncore", "distutils", "imp"}) - _OFTEN_THE_USERS
"""Top modules of Python, also those that only other versions have."""


class SourceLines:
    """The innermost lines of user code.

    Traces have one of two kinds of stacks. Since 2022 each call of a Python function is a span (``with_stack=True``);
    its number is the line at which the function stood when it was entered, that is its ``def`` line (that of its first
    decorator, if it has one), not the line that launched. For functions that were already running when the recording
    began it is the line they had come to then, which says nothing of later work. Until 2022 each operator has the text
    of its stack; there the numbers are the lines of the calls.

    Args:
        linked: The trace.
    """

    def __init__(self, linked: LinkedTrace) -> None:
        self._linked = linked
        self._trace = linked.trace
        self._frames = linked.trace.python_function
        self._numbers: dict[str, int] = {}
        self._line_of_name: Rows = np.full(len(self._trace.names), ABSENT, np.intp)
        if len(self._frames):
            used = np.flatnonzero(np.bincount(self._frames.name, minlength=len(self._trace.names)))
            for name in used.tolist():
                self._line_of_name[name] = self._number(self._trace.names[name])
        innermost = (next(filter(is_user_code, stack.split(";")), "") for stack in self._trace.stacks)
        self._line_of_stack: Rows = np.array([self._number(frame) for frame in innermost], np.intp)

    def _number(self, frame: str) -> int:
        return self._numbers.setdefault(frame, len(self._numbers)) if is_user_code(frame) else ABSENT

    @property
    def stacks(self) -> Stacks | None:
        """Which kind of stacks the trace holds, None for none."""
        if len(self._frames):
            return "python_calls"
        return "operators" if self._trace.stacks else None

    @cached_property
    def lines(self) -> tuple[SourceLine, ...]:
        """What the lines of this class's answers count."""
        means: dict[str, LineMeaning] = {}
        if len(self._frames):
            began_ns = self._recording_began_ns()
            for frame, number in self._numbers.items():
                own = self._line_of_name[self._frames.name] == number
                running = own.any() and bool((self._frames.start_ns[own] <= began_ns).all())
                means[frame] = "when the recording began" if running else "definition"
        return tuple(SourceLine(frame=frame, means=means.get(frame, "call")) for frame in self._numbers)

    def _recording_began_ns(self) -> int:
        """When the profiler's own function that began the recording was entered; what began before was running."""
        starters = self._linked.named(
            self._frames, lambda name: name.startswith(_PROFILER) or "/torch/profiler/" in name
        )
        first = self._frames.start_ns[starters]
        return int(first.min()) if len(first) else int(self._frames.start_ns.min()) - 1

    @cached_property
    def user_frame(self) -> Rows:
        """The innermost frame of user code at or around each call of a Python function."""
        return nearest(self._linked.frames.parent, self._line_of_name[self._frames.name] > ABSENT)

    @cached_property
    def line_of_frame(self) -> Rows:
        """The line that each call of a Python function runs for."""
        return take_or_absent(take_or_absent(self._line_of_name, self._frames.name.astype(np.intp)), self.user_frame)

    def frame_at(self, time_ns: Int64, thread: Int32) -> Rows:
        """The innermost call of a Python function at each moment.

        Args:
            time_ns: n moments.
            thread: Number of the thread at each.

        Returns:
            n rows of ``python_function``.
        """
        if not len(self._frames):
            return np.full(len(time_ns), ABSENT, np.intp)
        return self._linked.frames.innermost(time_ns, thread)

    @cached_property
    def line_of_operator(self) -> Rows:
        """The line that ran each operator, by the calls of functions around it, else by its own stack."""
        ops = self._trace.cpu_op
        line = take_or_absent(self.line_of_frame, self.frame_at(ops.start_ns, ops.thread))
        if len(self._trace.stacks):
            stacked = take_or_absent(self._line_of_stack, ops.stack.astype(np.intp))
            # the profiler opens the range of a step in the line before it: what is in the step was not called there
            stacked[self._linked.named(ops, lambda name: name.startswith(STEP))] = ABSENT
            around = nearest(self._linked.operators.parent, stacked > ABSENT)
            line = np.where(line > ABSENT, line, take_or_absent(stacked, around))
        return line


def is_user_code(frame_name: str) -> bool:
    """Whether a frame runs a line that the user wrote.

    Args:
        frame_name: A frame as torch.profiler names it: ``train_ddp.py(184): <module>``, ``nn.Module: Linear_0``,
            ``<built-in method relu of type object at 0x7f>``.

    Returns:
        True for files that lie neither in Python itself nor in an installed library. A frame without a file is not
        the user's: what it runs for follows from the frames around it.
    """
    frame = _FRAME.match(frame_name)
    if frame is None:
        return False
    file = frame["file"].replace("\\", "/")
    if _GENERATED.match(file) or _INSTALLED.search(file):
        return False
    top = file.split("/", 1)[0].removesuffix(".py")
    return top not in _LIBRARIES and top not in _PYTHON
