"""Which frames of a Python stack run lines that the user wrote."""

import pytest

from lightning_gpuprof.model.user_code import is_user_code


@pytest.mark.parametrize(
    "frame",
    [
        "train_ddp.py(184): <module>",
        "/home/x/model.py(12): forward",
        "/home/x/projects/torch_models/train.py(3): step",
        "/home/x/lib/layers.py(7): forward",
        "mymodels/net.py(30): forward",
        "./train.py(1): <module>",
        "../src/train.py(1): <module>",
        "test.py(10): main",
        "profile.py(10): main",
        "<ipython-input-3-0f1e>(5): train",
        "/tmp/ipykernel_123/2887.py(5): train",
        "C:\\Users\\x\\train.py(2): main",
        "resnet50_profiler_api.py(42): <module>",
    ],
)
def test_files_of_the_user_are_user_code(frame: str) -> None:
    assert is_user_code(frame)


@pytest.mark.parametrize(
    "frame",
    [
        "torch/nn/modules/module.py(1743): _call_impl",
        "torch/utils/data/dataloader.py(631): __next__",
        "lightning/pytorch/loops/fit_loop.py(200): run",
        "pytorch_lightning/trainer/trainer.py(5): fit",
        "lightning_gpuprof/callback.py(5): on_train_batch_end",
        "transformers/models/bert/modeling_bert.py(1001): forward",
        "numpy/core/fromnumeric.py(3): sum",
        "threading.py(5): run",
        "contextlib.py(123): inner",
        "multiprocessing/queues.py(110): get",
        "/usr/lib/python3/dist-packages/yaml/loader.py(2): load",
        "/home/x/anaconda3/envs/kineto/lib/python3.7/runpy.py(12): run",
        "/home/x/env/lib/python3.7/site-packages/torch/profiler/profiler.py(312): step",
        "/home/x/pytorch-lightning/src/lightning/pytorch/trainer/call.py(40): _call",
        "/opt/pytorch/pytorch/torch/nn/functional.py(5): relu",
        "C:\\Python311\\Lib\\threading.py(900): run",
        "<frozen importlib._bootstrap>(1007): _find_and_load",
        "<string>(2): forward",
        "<eval_with_key>.3(4): forward",
        "<built-in method relu of type object at 0x7f0>",
        "<built-in function linear>",
        "nn.Module: Linear_0",
        "aten::mm",
        "",
    ],
)
def test_libraries_python_and_what_has_no_file_are_not(frame: str) -> None:
    assert not is_user_code(frame)
