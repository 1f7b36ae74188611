"""transformers, peft, trl, sentence-transformers, x-transformers: language, and models that see or hear."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from .catalogue import STEPS, add, fit, program

VOCABULARY, LENGTH, COUNT = 512, 64, 4


def tokens(count: int = COUNT, length: int = LENGTH) -> Tensor:
    return torch.randint(5, VOCABULARY, (count, length))


#: Sizes that most configurations understand.
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "max_position_embeddings": 128,
}
NARROW = {"vocab_size": VOCABULARY, "d_model": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
BOTH_SIDES = {
    **NARROW,
    "decoder_start_token_id": 1,
    "max_position_embeddings": 128,
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 128 for side in ("encoder", "decoder")},
}
GROUPED = {**SMALL, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

#: Language models by name: the class, its configuration, and the sizes of it.
LANGUAGE_MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", "BertConfig", SMALL),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", SMALL | {"max_position_embeddings": 130}),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {"vocab_size": 512, "dim": 64, "hidden_dim": 128, "n_layers": 3, "n_heads": 4},
    ),
    "albert": ("AlbertForMaskedLM", "AlbertConfig", SMALL | {"embedding_size": 32}),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", SMALL | {"embedding_size": 32}),
    "deberta_v2": (
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        SMALL | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    ),
    "modernbert": (
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        SMALL | {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2},
    ),
    "longformer": (
        "LongformerForMaskedLM",
        "LongformerConfig",
        SMALL | {"attention_window": 16, "max_position_embeddings": 130},
    ),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", {"vocab_size": 512, "n_embd": 64, "n_layer": 3, "n_head": 4}),
    "gpt_neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", SMALL),
    "opt": (
        "OPTForCausalLM",
        "OPTConfig",
        {
            "vocab_size": 512,
            "hidden_size": 64,
            "ffn_dim": 128,
            "num_hidden_layers": 3,
            "num_attention_heads": 4,
            "word_embed_proj_dim": 64,
        },
    ),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"vocab_size": 512, "hidden_size": 64, "n_layer": 3, "n_head": 4}),
    "falcon": (
        "FalconForCausalLM",
        "FalconConfig",
        {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", GROUPED),
    "mistral": ("MistralForCausalLM", "MistralConfig", GROUPED | {"sliding_window": 16}),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", GROUPED | {"head_dim": 16}),
    "qwen2_moe": (
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        GROUPED | {"num_experts": 4, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64},
    ),
    "gemma2": ("Gemma2ForCausalLM", "Gemma2Config", GROUPED | {"head_dim": 16, "sliding_window": 16}),
    "phi3": ("Phi3ForCausalLM", "Phi3Config", GROUPED),
    "mixtral": ("MixtralForCausalLM", "MixtralConfig", GROUPED | {"num_local_experts": 4}),
    "olmo2": ("Olmo2ForCausalLM", "Olmo2Config", GROUPED),
    "mamba": (
        "MambaForCausalLM",
        "MambaConfig",
        {"vocab_size": 512, "hidden_size": 48, "num_hidden_layers": 2, "state_size": 4},
    ),
    "rwkv": (
        "RwkvForCausalLM",
        "RwkvConfig",
        {
            "vocab_size": 512,
            "hidden_size": 48,
            "attention_hidden_size": 48,
            "num_hidden_layers": 2,
            "context_length": 64,
        },
    ),
}

#: Models of an input and an output text.
SEQUENCE_TO_SEQUENCE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        NARROW | {"d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0},
    ),
    "bart": ("BartForConditionalGeneration", "BartConfig", BOTH_SIDES),
    "m2m_100": ("M2M100ForConditionalGeneration", "M2M100Config", BOTH_SIDES),
    "marian": ("MarianMTModel", "MarianConfig", BOTH_SIDES),
    "led": (
        "LEDForConditionalGeneration",
        "LEDConfig",
        {k: v for k, v in BOTH_SIDES.items() if k != "max_position_embeddings"}
        | {"attention_window": 16, "max_encoder_position_embeddings": 128, "max_decoder_position_embeddings": 128},
    ),
}


def _made(model: str, config: str, sizes: dict[str, Any]) -> nn.Module:
    import transformers

    made: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**sizes))
    return made.train()


def _language_model(name: str) -> list[float]:
    model = _made(*LANGUAGE_MODELS[name])
    words = tokens(2, 32) if name in ("mamba", "rwkv") else tokens()
    more = {} if name in ("longformer", "mamba", "rwkv") else {"attention_mask": torch.ones_like(words)}
    return fit(model, lambda: model(input_ids=words, labels=words, **more).loss)


def _sequence_to_sequence(name: str) -> list[float]:
    model = _made(*SEQUENCE_TO_SEQUENCE[name])
    source, target = tokens(), tokens(length=32)
    return fit(model, lambda: model(input_ids=source, labels=target).loss)


for _name in LANGUAGE_MODELS:
    add("transformers", _name, lambda name=_name: _language_model(name), small=_name == "qwen3")
for _name in SEQUENCE_TO_SEQUENCE:
    add("transformers", _name, lambda name=_name: _sequence_to_sequence(name))

SEEING = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "image_size": 64,
}

#: Models of images.
IMAGE_MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vit": ("ViTForImageClassification", "ViTConfig", SEEING | {"patch_size": 8}),
    "beit": ("BeitForImageClassification", "BeitConfig", SEEING | {"patch_size": 8}),
    "swin": (
        "SwinForImageClassification",
        "SwinConfig",
        {"image_size": 64, "embed_dim": 24, "depths": [2, 2], "num_heads": [2, 2], "window_size": 4},
    ),
    "convnextv2": (
        "ConvNextV2ForImageClassification",
        "ConvNextV2Config",
        {"hidden_sizes": [16, 32], "depths": [2, 2], "num_stages": 2},
    ),
    "dinov2": (
        "Dinov2ForImageClassification",
        "Dinov2Config",
        {k: v for k, v in SEEING.items() if k != "intermediate_size"} | {"patch_size": 8},
    ),
}


def _image_model(name: str) -> list[float]:
    model = _made(*IMAGE_MODELS[name])
    images, labels = torch.randn(8, 3, 64, 64), torch.randint(0, 2, (8,))
    return fit(model, lambda: model(pixel_values=images, labels=labels).loss)


for _name in IMAGE_MODELS:
    add("transformers", _name, lambda name=_name: _image_model(name))


@program("transformers")
def segformer() -> Any:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = SegformerConfig(depths=[1, 1, 1, 1], hidden_sizes=[16, 16, 32, 32], decoder_hidden_size=32, num_labels=3)
    model, images = SegformerForSemanticSegmentation(config).train(), torch.randn(4, 3, 64, 64)
    masks = torch.randint(0, 3, (4, 64, 64))
    return fit(model, lambda: model(pixel_values=images, labels=masks).loss)


@program("transformers")
def clip() -> Any:
    from transformers import CLIPConfig, CLIPModel

    text = {**SMALL, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    config = CLIPConfig(text_config=text, vision_config=SEEING | {"patch_size": 8}, projection_dim=32)
    model, images, words = CLIPModel(config).train(), torch.randn(8, 3, 64, 64), tokens(8, 16)
    return fit(model, lambda: model(input_ids=words, pixel_values=images, return_loss=True).loss)


@program("transformers")
def image_captions() -> Any:
    from transformers import GPT2Config, VisionEncoderDecoderConfig, VisionEncoderDecoderModel, ViTConfig

    decoder = GPT2Config(vocab_size=512, n_embd=64, n_layer=2, n_head=4)
    config = VisionEncoderDecoderConfig.from_encoder_decoder_configs(ViTConfig(**SEEING, patch_size=8), decoder)
    config.decoder_start_token_id, config.pad_token_id = 1, 0
    model, images, words = VisionEncoderDecoderModel(config=config).train(), torch.randn(4, 3, 64, 64), tokens(4, 16)
    return fit(model, lambda: model(pixel_values=images, labels=words).loss)


@program("transformers")
def gradient_checkpointing() -> Any:
    """transformers' own checkpointing, within autocast, with gradients accumulated over two batches."""
    model = _made(*LANGUAGE_MODELS["llama"])
    model.gradient_checkpointing_enable()  # type: ignore[operator]
    optimizer, losses = torch.optim.AdamW(model.parameters(), 1e-3), []
    for _ in range(STEPS):
        for words in (tokens(), tokens()):
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(input_ids=words, labels=words, use_cache=False).loss / 2
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    return losses


@program("transformers", small=True)
def generation() -> Any:
    """Samples from a model between steps of training, as in reinforcement learning."""
    model = _made(*LANGUAGE_MODELS["llama"])
    optimizer, results = torch.optim.AdamW(model.parameters(), 1e-3), []
    for _ in range(3):
        model.eval()
        prompt = tokens(4, 8)
        words = model.generate(prompt, max_new_tokens=16, do_sample=True, pad_token_id=0)  # type: ignore[operator]
        model.train()
        loss = model(input_ids=words, labels=words).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        results += [words, loss.item()]
    return results


def _tuned(config: Any) -> list[float]:
    import peft

    model = peft.get_peft_model(_made(*LANGUAGE_MODELS["llama"]), config)
    words = tokens()
    trained = [p for p in model.parameters() if p.requires_grad]
    return fit(model, lambda: model(input_ids=words, labels=words).loss, optimizer=torch.optim.AdamW(trained, 1e-2))


@program("peft", small=True)
def lora() -> Any:
    from peft import LoraConfig

    return _tuned(LoraConfig(r=4, target_modules=["q_proj", "v_proj"], lora_dropout=0.1, task_type="CAUSAL_LM"))


@program("peft")
def dora() -> Any:
    from peft import LoraConfig

    return _tuned(LoraConfig(r=4, target_modules="all-linear", use_dora=True, task_type="CAUSAL_LM"))


@program("peft")
def ia3() -> Any:
    from peft import IA3Config

    modules = ["k_proj", "v_proj", "down_proj"]
    return _tuned(IA3Config(target_modules=modules, feedforward_modules=["down_proj"], task_type="CAUSAL_LM"))


@program("peft")
def prompt_tuning() -> Any:
    from peft import PromptTuningConfig

    return _tuned(PromptTuningConfig(num_virtual_tokens=8, task_type="CAUSAL_LM"))


@program("sentence_transformers")
def sentence_pairs() -> Any:
    from sentence_transformers import SentenceTransformer, models
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    class Words(nn.Module):
        """BERT as a module of sentence-transformers, without a tokenizer."""

        def __init__(self) -> None:
            super().__init__()
            from transformers import BertConfig, BertModel

            self.bert = BertModel(BertConfig(**SMALL))

        def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
            answer = self.bert(features["input_ids"], attention_mask=features["attention_mask"])
            return features | {"token_embeddings": answer.last_hidden_state}

        def get_word_embedding_dimension(self) -> int:
            return 64

    model = SentenceTransformer(modules=[Words(), models.Pooling(64), models.Normalize()], device="cpu")
    loss = MultipleNegativesRankingLoss(model)

    def features() -> dict[str, Tensor]:
        words = tokens(8, 16)
        return {"input_ids": words, "attention_mask": torch.ones_like(words)}

    pair = [features(), features()]
    return fit(model, lambda: loss([dict(one) for one in pair], None))


def _decoder(**features: Any) -> list[float]:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=64, depth=3, heads=4, **features)
    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=LENGTH, attn_layers=layers))
    words = tokens()
    return fit(model, lambda: model(words))


add("x_transformers", "rotary", lambda: _decoder(rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True), small=True)
add("x_transformers", "alibi_talking_heads", lambda: _decoder(alibi_pos_bias=True, attn_pre_talking_heads=True))
add("x_transformers", "dropout_qk_norm", lambda: _decoder(attn_qk_norm=True, attn_dropout=0.1, ff_dropout=0.1))


@program("x_transformers")
def encoder_decoder() -> Any:
    from x_transformers import XTransformer

    sizes = {
        f"{side}_{size}": n for side in ("enc", "dec") for size, n in (("num_tokens", 512), ("depth", 2), ("heads", 4))
    }
    model = XTransformer(dim=64, enc_max_seq_len=64, dec_max_seq_len=64, tie_token_emb=True, **sizes)
    source, target = tokens(), tokens(length=33)
    return fit(model, lambda: model(source, target))
