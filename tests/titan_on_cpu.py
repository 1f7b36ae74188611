"""Trains torchtitan's small Llama by its own trainer, on the CPU: `python titan_on_cpu.py CONFIG [OPTION...]`.

Started in an empty folder, it makes a tokenizer and texts there, and leaves the trained weights in `weights.pt`.
"""

from __future__ import annotations

import json
import os
import random
import sys
import types
from pathlib import Path
from typing import Any

import torch
import torch._utils

# Torch has no such answers of a CPU; torchtitan asks every device for them.
torch._utils._get_available_device_type = lambda: "cpu"
torch.cpu.current_device = lambda: 0
torch.cpu.get_device_name = lambda *_: "cpu"
torch.cpu.get_device_properties = lambda *_: types.SimpleNamespace(total_memory=1 << 34)
torch.cpu.reset_peak_memory_stats = torch.cpu.empty_cache = lambda *_: None
torch.cpu.memory_stats = lambda *_: {}

from torch.distributed.tensor import DTensor  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC  # noqa: E402
from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention  # noqa: E402
from torchtitan.models.llama3.config_registry import llama3_debugmodel  # noqa: E402
from torchtitan.tools.logging import init_logger  # noqa: E402


def plain() -> Any:
    """Torchtitan's own small configuration, with the attention that has gradients on CPUs."""
    config = llama3_debugmodel()
    for _, _, owner, name in list(config.model_spec.model.traverse(FlexAttention.Config)):
        setattr(owner, name, ScaledDotProductAttention.Config())
    config.hf_assets_path = "tokenizer"
    config.training.disable_cuda_graphs = True
    config.training.seq_len, config.training.local_batch_size, config.training.steps = 256, 4, 4
    config.activation_checkpoint = None
    config.validator.enable = config.checkpoint.enable = False
    config.debug.seed = 0
    return config


def full() -> Any:
    """Every block is checkpointed."""
    config = plain()
    config.activation_checkpoint = FullAC.Config()
    return config


def budget() -> Any:
    """Within the bytes that the environment says."""
    from remat.integrations.torchtitan import BudgetAC

    config = plain()
    config.activation_checkpoint = BudgetAC.Config(budget=os.environ["BUDGET"], choices={"policy": "dtr-eq"})
    return config


def make_assets() -> None:
    """A tokenizer of 200 words, and texts of these, where torchtitan's own small configuration looks for them."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = [f"word{number}" for number in range(200)]
    vocabulary = {word: number for number, word in enumerate(["<unk>", "<s>", "</s>", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    Path("tokenizer").mkdir()
    tokenizer.save("tokenizer/tokenizer.json")
    Path("tokenizer/tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "</s>"}))
    texts = Path("tests/assets/c4_test")
    texts.mkdir(parents=True)
    draw = random.Random(0)
    rows = (json.dumps({"text": " ".join(draw.choices(words, k=600))}) for _ in range(100))
    (texts / "data.json").write_text("\n".join(rows))


def main() -> None:
    init_logger()
    make_assets()
    sys.modules["titan_on_cpu"] = sys.modules[__name__]
    trainer = ConfigManager().parse_args(["--module", "titan_on_cpu", "--config", *sys.argv[1:]]).build()
    trainer.train()
    weights = [value for part in trainer.model_parts for value in part.parameters()]
    torch.save([value.to_local() if isinstance(value, DTensor) else value for value in weights], "weights.pt")
    trainer.close()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
