"""Sound, time series, tables: transformers, pytorch-tabnet, entmax."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .catalogue import fit, program


@program("transformers")
def wav2vec2() -> Any:
    """Speech recognition by CTC, on masked spans of features."""
    from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

    config = Wav2Vec2Config(
        vocab_size=32,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        conv_dim=(16, 16, 16),
        conv_stride=(5, 4, 4),
        conv_kernel=(10, 4, 4),
        num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=2,
        mask_time_prob=0.05,
    )
    model, sound, labels = Wav2Vec2ForCTC(config).train(), torch.randn(2, 8000), torch.randint(1, 32, (2, 10))
    return fit(model, lambda: model(input_values=sound, labels=labels).loss)


@program("transformers", small=True)
def whisper() -> Any:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_source_positions": 100}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = WhisperConfig(vocab_size=512, num_mel_bins=16, **layers, **sizes, **special)
    model = WhisperForConditionalGeneration(config).train()
    sound, labels = torch.randn(4, 16, 200), torch.randint(3, 500, (4, 32))
    return fit(model, lambda: model(input_features=sound, labels=labels).loss)


@program("transformers")
def patch_tst() -> Any:
    from transformers import PatchTSTConfig, PatchTSTForPrediction

    config = PatchTSTConfig(
        num_input_channels=3, context_length=64, prediction_length=8, patch_length=8, d_model=32, num_hidden_layers=2
    )
    model = PatchTSTForPrediction(config).train()
    past, future = torch.randn(8, 64, 3), torch.randn(8, 8, 3)
    return fit(model, lambda: model(past_values=past, future_values=future).loss)


@program("pytorch_tabnet")
def tabnet() -> Any:
    from pytorch_tabnet.tab_network import TabNet

    groups = torch.eye(16)
    model = TabNet(16, 3, n_d=8, n_a=8, n_steps=3, virtual_batch_size=32, group_attention_matrix=groups)
    x, labels = torch.randn(128, 16), torch.randint(0, 3, (128,))

    def loss() -> torch.Tensor:
        logits, sparsity = model(x)
        return nn.functional.cross_entropy(logits, labels) - 1e-3 * sparsity

    return fit(model, loss)


@program("entmax")
def sparse_attention() -> Any:
    from entmax import entmax15, sparsemax_loss

    query, out = nn.Linear(64, 64), nn.Linear(64, 10)
    x, labels = torch.randn(16, 64, 64), torch.randint(0, 10, (16,))

    def loss() -> torch.Tensor:
        weights = entmax15(query(x) @ x.transpose(1, 2) / 8, dim=-1)
        return sparsemax_loss(out((weights @ x).mean(1)), labels).mean()

    return fit(nn.ModuleList([query, out]), loss)
