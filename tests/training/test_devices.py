"""Devices: names, bf16, and the whole path on a stand-in device in Python, with the results of the CPU."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from thresher import (
    Batch,
    DataConfig,
    FmConfig,
    OptimizerConfig,
    PepConfig,
    RunConfig,
    SearchConfig,
    SyntheticConfig,
    TrainingConfig,
    prune,
)
from thresher.errors import ConfigError
from thresher.training.devices import autocast, computing_in, find_device

TESTS = Path(__file__).parents[1]


def test_names_of_devices():
    assert find_device("cpu") == torch.device("cpu")
    if not torch.cuda.is_available():
        assert find_device("auto") == torch.device("cpu")
        with pytest.raises(ConfigError, match="'cuda:1' cannot be used on this machine"):
            find_device("cuda:1")
    with pytest.raises(ConfigError, match="must be auto, cpu, cuda"):
        RunConfig(device="GPU 0")


def test_batches_move_with_everything_in_them():
    batch = Batch(({"user": torch.ones(2)}, torch.ones(2)), torch.ones(2), torch.ones(2)).to("meta")
    assert {batch.inputs[0]["user"].device, batch.inputs[1].device, batch.labels.device, batch.weights.device} == {
        torch.device("meta")
    }


def test_bf16_is_for_matrix_products():
    layer, rows = torch.nn.Linear(4, 2), torch.ones(3, 4)
    with computing_in("bf16"), autocast(torch.device("cpu")):
        assert layer(rows).dtype == torch.bfloat16
    with autocast(torch.device("cpu")):
        assert layer(rows).dtype == torch.float32


def test_a_run_in_bf16_is_close_to_one_in_float32(tmp_path):
    fast = OptimizerConfig(learning_rate=1e-2)
    aucs = {}
    for precision in ("float32", "bf16"):
        config = RunConfig(
            data=DataConfig(source="synthetic", synthetic=SyntheticConfig(num_rows=4_000, field_size=20)),
            model=FmConfig(),
            embedding=PepConfig(embedding_dim=4),
            training=TrainingConfig(batch_size=250, max_epochs=3, optimizer=fast),
            search=SearchConfig(optimizer=fast, plan_epochs=1),
            budgets=("20%",),
            effort="fast",
            teacher_share=0.0,
            precision=precision,
        )
        aucs[precision] = prune(config, out=tmp_path / precision).frontier.points[0].test_auc
    assert aucs["bf16"] == pytest.approx(aucs["float32"], abs=0.02)


@pytest.mark.slow
def test_the_stand_in_device_gives_the_results_of_the_cpu():
    """In a process of its own: a device cannot be unregistered. The program compares, and counts copies and waits."""
    program = TESTS / "training" / "on_stand_in_device.py"
    result = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
