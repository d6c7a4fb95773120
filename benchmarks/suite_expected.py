"""Why tests of Lightning fail beside any profiler that is a callback: classes, each with the error it is known by."""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A reason for which tests fail beside any profiler."""

    name: str
    why: str
    error: str
    """A regular expression for the text of the failure: the same test with another error is unexpected."""
    tests: Sequence[str] = ()
    """Below ``tests/tests_pytorch``, without parameters; empty where the error alone says enough."""

    def has(self, test: str, failure: str) -> bool:
        """Whether this test with this failure is one of the class."""
        return (not self.tests or test in self.tests) and re.search(self.error, failure) is not None


CLASSES: tuple[Expected, ...] = (
    Expected(
        name="counts callbacks",
        why="compares trainer.callbacks with what it put in: the profiler is one more",
        error=r"(?m)^E .*<lightning_gpuprof\.callback\.GpuProfiler object",
    ),
    Expected(
        name="counts logger calls",
        why="compares all that was logged with what it logged: the profiler logs its scalars and its report, too",
        error=r"(?m)^E .*('gpuprof/(final/)?\w+|'gpuprof-report')",
    ),
    Expected(
        name="counts logger calls, told by number",
        why="the same, where the error has the number of calls or the first of too many only",
        error=r"(?m)^E .*(\blog_artifacts?\b|assert \[call\(metrics)",
        tests=(
            "callbacks/test_throughput_monitor.py::test_throughput_monitor_fit_gradient_accumulation",
            "loggers/test_mlflow.py::test_mlflow_log_model",
            "loggers/test_wandb.py::test_wandb_log_model",
        ),
    ),
    Expected(
        name="leaves its report",
        why="runs without a folder of its own and allows no new file in the current folder: the report is there",
        error=r"Test left artifacts behind: \{('tests_pytorch/gpuprof[\w-]*(/[\w.-]+)?'(, )?)+\}",
    ),
    Expected(
        name="lists the folder of logs",
        why="compares all that is in the folder of the logs with what it wrote: the folder of the report is there, too",
        error=r"(?m)^E (?!.*Test left artifacts|.*assert not \{).*('|/)gpuprof(-\w+)?'",
    ),
    Expected(
        name="lists the folder of logs, told by number",
        why="the same, where the error has the number of files only",
        error=r"(?m)^E .*built-in function listdir",
        tests=("checkpointing/test_model_checkpoint.py::test_model_checkpoint_train_time_interval",),
    ),
    Expected(
        name="compares what is printed",
        why="compares all calls of print with its own: the end of each stage is one line of the profiler's",
        error=r"(?m)^E .*call\('gpuprof: ",
        tests=("callbacks/progress/test_tqdm_progress_bar.py::test_tqdm_progress_bar_print_disabled",),
    ),
    Expected(
        name="mocks the clock",
        why="puts a clock in the place of time.monotonic that ticks when asked: threads of the profiler ask it, too",
        error=r"(?m)^E .*(FAILED: |Expected train/time )",
        tests=(
            "callbacks/test_throughput_monitor.py::test_throughput_monitor_validation_with_many_epochs",
            "trainer/flags/test_val_check_interval.py::test_time_and_epoch_gated_val_check",
        ),
    ),
)
