"""Tells the user's own code from Python and installed libraries, by how torch.profiler names a function."""

import re
import sys

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
