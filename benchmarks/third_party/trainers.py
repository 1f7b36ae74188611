"""Loops that other packages own: transformers, trl, accelerate, Lightning, ignite, skorch, ultralytics, torchrl."""

from __future__ import annotations

import contextlib
import io
import tempfile
import types
import warnings
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from .catalogue import STEPS, fit, program


def _llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    return LlamaForCausalLM(config)


def _tokenizer() -> Any:
    """Words that are numbers."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3} | {str(n): n for n in range(4, 512)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def _text(words: int) -> str:
    return " ".join(str(int(n)) for n in torch.randint(4, 512, (words,)))


def _arguments(folder: str, kind: str = "transformers.TrainingArguments", **more: Any) -> Any:
    import importlib

    module, name = kind.rsplit(".", 1)
    usual = {"output_dir": folder, "per_device_train_batch_size": 4, "report_to": [], "use_cpu": True}
    usual |= {"max_steps": STEPS, "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True}
    usual |= {"dataloader_pin_memory": False}
    return getattr(importlib.import_module(module), name)(**(usual | more))


def _trained(trainer: Any) -> list[Any]:
    """Trains quietly; returns losses and parameters."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return [losses, *(p.detach() for p in trainer.model.parameters())]


class _Words(torch.utils.data.Dataset):  # type: ignore[type-arg]
    def __init__(self, count: int = 32) -> None:
        self.words = torch.randint(4, 512, (count, 64))

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, at: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.words[at], "labels": self.words[at]}


@program("transformers", small=True)
def trainer() -> Any:
    from transformers import Trainer

    with tempfile.TemporaryDirectory() as folder:
        return _trained(Trainer(_llama(), _arguments(folder), train_dataset=_Words()))


@program("transformers")
def trainer_with_everything() -> Any:
    """Accumulation, checkpointing, evaluation, clipping, bfloat16, Adafactor, a checkpoint saved and taken up again."""
    from transformers import Trainer

    more: dict[str, Any] = {"gradient_accumulation_steps": 2, "gradient_checkpointing": True, "max_grad_norm": 0.5}
    more |= {"bf16": True, "optim": "adafactor", "eval_strategy": "steps", "eval_steps": 2}
    more |= {"save_strategy": "steps", "save_steps": 2}
    with tempfile.TemporaryDirectory() as folder:
        arguments = _arguments(folder, **more)
        first = _trained(Trainer(_llama(), arguments, train_dataset=_Words(), eval_dataset=_Words(8)))
        arguments.max_steps = STEPS + 2
        again = Trainer(_llama(), arguments, train_dataset=_Words(), eval_dataset=_Words(8))
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again.train(resume_from_checkpoint=f"{folder}/checkpoint-{STEPS}")
        return first, [p.detach() for p in again.model.parameters()]


@program("trl")
def supervised_fine_tuning() -> Any:
    """Texts of different lengths."""
    from datasets import Dataset
    from trl import SFTTrainer

    data = Dataset.from_dict({"text": [_text(int(n)) for n in torch.randint(8, 60, (32,))]})
    with tempfile.TemporaryDirectory() as folder:
        arguments = _arguments(folder, "trl.SFTConfig", max_length=64, bf16=False)
        return _trained(SFTTrainer(_llama(), arguments, train_dataset=data, processing_class=_tokenizer()))


@program("trl")
def preference_optimization() -> Any:
    from datasets import Dataset
    from trl import DPOTrainer

    rows = [{"prompt": _text(8), "chosen": _text(12), "rejected": _text(12)} for _ in range(16)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = _arguments(folder, "trl.DPOConfig", max_length=32, bf16=False)
        data = Dataset.from_list(rows)
        return _trained(DPOTrainer(_llama(), _llama(), arguments, train_dataset=data, processing_class=_tokenizer()))


@program("trl")
def rewarded_generation() -> Any:
    """GRPO: texts are generated, rewarded, and learned from."""
    from datasets import Dataset
    from trl import GRPOTrainer

    data = Dataset.from_dict({"prompt": [_text(6) for _ in range(16)]})
    with tempfile.TemporaryDirectory() as folder:
        more = {"num_generations": 4, "max_completion_length": 8, "max_steps": 2, "bf16": False}
        trainer = GRPOTrainer(
            _llama(),
            lambda completions, **_: [float(len(text)) for text in completions],
            args=_arguments(folder, "trl.GRPOConfig", **more),
            train_dataset=data,
            processing_class=_tokenizer(),
        )
        return _trained(trainer)


@program("accelerate", small=True)
def accelerated_loop() -> Any:
    """Accumulation and clipping in a loop of one's own."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model: Any = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 256), nn.GELU(), nn.Linear(256, 10))
    data: Any = DataLoader(
        TensorDataset(torch.randn(256, 64), torch.randint(0, 10, (256,))), batch_size=32, shuffle=True
    )
    optimizer: Any = torch.optim.AdamW(model.parameters(), 1e-3)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    losses = []
    for x, labels in data:
        with accelerator.accumulate(model):
            loss = nn.functional.cross_entropy(model(x), labels)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(accelerator.gather(loss).mean().item())
    return losses


def _lightning(module: Any, data: Any, **more: Any) -> list[Any]:
    import logging

    import lightning

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    usual: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    usual |= {"enable_model_summary": False, "max_steps": STEPS, "accelerator": "cpu", "devices": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lightning.Trainer(**(usual | more)).fit(module, data)
    return [p.detach() for p in module.parameters()]


def _pictures(count: int = 64) -> Any:
    return DataLoader(TensorDataset(torch.randn(count, 3, 32, 32), torch.randint(0, 10, (count,))), batch_size=8)


@program("lightning")
def lightning_classifier() -> Any:
    import lightning

    class Classifier(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(
                nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(),
                nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
            )  # fmt: skip

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)
            return [optimizer], [torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)]

    return _lightning(Classifier(), _pictures(), gradient_clip_val=1.0, accumulate_grad_batches=2)


@program("lightning")
def lightning_adversaries() -> Any:
    """Two networks and two optimizers, stepped by hand."""
    import lightning

    class Adversaries(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.maker = nn.Sequential(nn.Linear(16, 256), nn.ReLU(), nn.Linear(256, 3 * 32 * 32), nn.Tanh())
            self.judge = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 128), nn.LeakyReLU(0.2), nn.Linear(128, 1))

        def training_step(self, batch: Any, index: int) -> None:
            of_maker, of_judge = self.optimizers()
            made = self.maker(torch.randn(len(batch[0]), 16)).view_as(batch[0])
            of_maker.zero_grad()
            self.manual_backward(-self.judge(made).mean())
            of_maker.step()
            of_judge.zero_grad()
            self.manual_backward(self.judge(made.detach()).mean() - self.judge(batch[0]).mean())
            of_judge.step()

        def configure_optimizers(self) -> Any:
            return [torch.optim.Adam(net.parameters(), 1e-3) for net in (self.maker, self.judge)]

    return _lightning(Adversaries(), _pictures(), max_steps=2 * STEPS)


@program("ignite")
def ignite_engine() -> Any:
    from ignite.engine import Events, create_supervised_trainer
    from ignite.handlers import EMAHandler

    model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(256, 10))
    optimizer, losses = torch.optim.RMSprop(model.parameters(), 1e-3), []
    engine = create_supervised_trainer(model, optimizer, nn.functional.cross_entropy)
    EMAHandler(model, momentum=0.1).attach(engine)
    engine.add_event_handler(Events.ITERATION_COMPLETED, lambda engine: losses.append(engine.state.output))
    engine.run(_pictures(), max_epochs=1)
    return losses


@program("skorch")
def scikit_learn_network() -> Any:
    import numpy
    from skorch import NeuralNetClassifier

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(
                nn.Linear(20, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 2), nn.Softmax(-1)
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers(x)

    net = NeuralNetClassifier(Net, max_epochs=2, lr=0.1, batch_size=512, verbose=0, iterator_train__shuffle=True)
    x = torch.randn(2048, 20).numpy()
    net.fit(x, (x.sum(1) > 0).astype(numpy.int64))
    return net.history[:, "train_loss"], net.predict_proba(x[:8]).tolist()


@program("ultralytics")
def yolo() -> Any:
    """A detector with its own losses and assignment of targets."""
    from ultralytics.cfg import get_cfg
    from ultralytics.nn.tasks import DetectionModel

    with contextlib.redirect_stdout(io.StringIO()):
        model = DetectionModel("yolo11n.yaml", nc=3, verbose=False)
    model.args = types.SimpleNamespace(**vars(get_cfg()))
    boxes = torch.tensor([[0.5, 0.5, 0.4, 0.3], [0.3, 0.6, 0.2, 0.2], [0.6, 0.4, 0.3, 0.5]])
    batch = {"img": torch.rand(2, 3, 64, 64), "batch_idx": torch.tensor([0.0, 0.0, 1.0])}
    batch |= {"cls": torch.tensor([[0.0], [1.0], [2.0]]), "bboxes": boxes}
    return fit(model, lambda: model(batch)[0].sum())


@program("torchrl")
def actor_critic() -> Any:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule
    from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.modules.tensordict_module.common import SafeModule  # noqa: F401 - registers its modules
    from torchrl.objectives import ClipPPOLoss

    net = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 8))

    class Split(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            mean, spread = self.net(x).chunk(2, -1)
            return mean, nn.functional.softplus(spread) + 1e-3

    actor = ProbabilisticActor(
        TensorDictModule(Split(), in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)), in_keys=["observation"])
    loss = ClipPPOLoss(actor, critic)
    data = TensorDict({"observation": torch.randn(4096, 16)}, batch_size=[4096])
    with torch.no_grad():
        data = actor(data)
    data["advantage"], data["value_target"] = torch.randn(4096, 1), torch.randn(4096, 1)

    def value() -> torch.Tensor:
        found = loss(data.clone())
        return sum((found[key] for key in ("loss_objective", "loss_critic", "loss_entropy")), start=torch.zeros(()))

    return fit(loss, value)
