"""torchvision: classifiers, segmentation, detection, video, optical flow."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .catalogue import STEPS, add, classify, fit, program

#: Classifiers by name: the side of the images, how many, and what the model is made with.
CLASSIFIERS: dict[str, tuple[int, int, dict[str, Any]]] = {
    "alexnet": (64, 16, {"dropout": 0.1}),
    "squeezenet1_1": (96, 16, {}),
    "mobilenet_v2": (64, 16, {"width_mult": 0.35}),
    "mobilenet_v3_small": (96, 16, {}),
    "shufflenet_v2_x0_5": (96, 16, {}),
    "mnasnet0_5": (64, 16, {}),
    "efficientnet_b0": (64, 8, {}),
    "efficientnet_v2_s": (64, 4, {}),
    "regnet_y_400mf": (64, 8, {}),
    "resnet18": (64, 16, {}),
    "resnext50_32x4d": (64, 4, {}),
    "densenet121": (64, 4, {"memory_efficient": False}),
    "googlenet": (96, 8, {"init_weights": True, "aux_logits": False}),
    "vgg11_bn": (32, 16, {}),
    "convnext_tiny": (64, 4, {}),
    "swin_t": (64, 4, {}),
    "maxvit_t": (224, 1, {}),
}


def _classifier(name: str) -> list[float]:
    import torchvision

    side, count, how = CLASSIFIERS[name]
    model = torchvision.models.get_model(name, weights=None, num_classes=10, **how)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)  # as its references do
    return classify(model, torch.randn(count, 3, side, side), optimizer=optimizer)


for _name in CLASSIFIERS:
    add("torchvision", _name, lambda name=_name: _classifier(name))


@program("torchvision", small=True)
def vision_transformer() -> Any:
    from torchvision.models import VisionTransformer

    model = VisionTransformer(64, 8, num_layers=4, num_heads=4, hidden_dim=64, mlp_dim=256, dropout=0.1, num_classes=10)
    return classify(model, torch.randn(16, 3, 64, 64))


@program("torchvision")
def segmentation() -> Any:
    from torchvision.models.segmentation import lraspp_mobilenet_v3_large

    model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    x, labels = torch.randn(4, 3, 96, 96), torch.randint(0, 5, (4, 96, 96))
    return fit(model, lambda: nn.functional.cross_entropy(model(x)["out"], labels))


@program("torchvision")
def detection() -> Any:
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    images = [torch.rand(3, 160, 160) for _ in range(2)]
    boxes = torch.tensor([[10.0, 10.0, 80.0, 90.0], [40.0, 30.0, 120.0, 140.0]])
    targets = [{"boxes": boxes, "labels": torch.tensor([1, 2])} for _ in images]
    return fit(model, lambda: sum(model(images, targets).values(), start=torch.zeros(())))


@program("torchvision")
def video() -> Any:
    from torchvision.models.video import r3d_18

    return classify(r3d_18(weights=None, num_classes=10), torch.randn(2, 3, 8, 48, 48))


@program("torchvision")
def optical_flow() -> Any:
    from torchvision.models.optical_flow import raft_small

    model = raft_small(weights=None)
    a, b, flow = torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128), torch.randn(1, 2, 128, 128)

    def loss() -> torch.Tensor:
        found = model(a, b, num_flow_updates=4)
        return torch.stack([0.8 ** (len(found) - i) * (one - flow).abs().mean() for i, one in enumerate(found)]).sum()

    return fit(model, loss)


@program("torchvision")
def augmented_mixed_precision() -> Any:
    """Random augmentation, autocast to bfloat16, label smoothing, a schedule and clipped gradients."""
    import torchvision
    from torchvision.transforms import v2

    model = torchvision.models.resnet18(weights=None, num_classes=10)
    augment = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomResizedCrop(64), v2.RandomErasing()])
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=STEPS)
    losses = []
    for _ in range(STEPS):
        x, labels = augment(torch.rand(8, 3, 72, 72)), torch.randint(0, 10, (8,))
        with torch.autocast("cpu", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), labels, label_smoothing=0.1)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    return losses
