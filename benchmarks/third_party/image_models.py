"""timm, segmentation_models_pytorch, vit-pytorch, kornia, open_clip, diffusers, ultralytics: images."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .catalogue import STEPS, add, classify, fit, program

#: Classifiers of timm by name: the side of the images, how many, and what the model is made with.
TIMM: dict[str, tuple[int, int, dict[str, Any]]] = {
    "resnet10t": (64, 16, {}),
    "convnext_atto": (64, 16, {"drop_path_rate": 0.1}),
    "vit_tiny_patch16_224": (64, 32, {"img_size": 64, "drop_rate": 0.1}),
    "deit_tiny_distilled_patch16_224": (64, 16, {"img_size": 64}),
    "swinv2_cr_tiny_ns_224": (64, 2, {"img_size": 64}),
    "mixer_s32_224": (64, 16, {"img_size": 64}),
    "resmlp_12_224": (64, 16, {"img_size": 64}),
    "gmlp_ti16_224": (64, 16, {"img_size": 64}),
    "coat_lite_tiny": (64, 8, {"img_size": 64}),
    "levit_128s": (64, 16, {"img_size": 64}),
    "efficientvit_b0": (64, 16, {}),
    "mobilevit_xxs": (64, 16, {}),
    "edgenext_xx_small": (64, 16, {}),
    "ghostnet_050": (64, 16, {}),
    "mobilenetv4_conv_small": (64, 16, {}),
    "repvgg_a0": (64, 8, {}),
    "hrnet_w18_small": (64, 4, {}),
    "nf_resnet26": (64, 8, {}),
    "xcit_nano_12_p16_224": (64, 16, {}),
    "pvt_v2_b0": (64, 16, {}),
    "twins_pcpvt_small": (64, 4, {"img_size": 64}),
    "fastvit_t8": (64, 8, {}),
    "poolformerv2_s12": (64, 8, {}),
    "mambaout_femto": (64, 8, {}),
    "inception_next_atto": (64, 16, {}),
}


def _timm(name: str) -> list[float]:
    import timm

    side, count, how = TIMM[name]
    model = timm.create_model(name, pretrained=False, num_classes=10, **how)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, nesterov=True)  # the default of its script
    return classify(model, torch.randn(count, 3, side, side), optimizer=optimizer)


for _name in TIMM:
    add("timm", _name, lambda name=_name: _timm(name), small=_name == "resnet10t")


@program("timm")
def averaged_with_mixup() -> Any:
    """timm's own recipe: mixup, its optimizer and schedule, an averaged model."""
    import timm
    from timm.data import Mixup
    from timm.loss import SoftTargetCrossEntropy
    from timm.optim import create_optimizer_v2
    from timm.scheduler import CosineLRScheduler
    from timm.utils import ModelEmaV3

    model = timm.create_model("resnet10t", num_classes=10)
    mixup, average = Mixup(mixup_alpha=0.2, cutmix_alpha=1.0, num_classes=10), ModelEmaV3(model, decay=0.9)
    optimizer = create_optimizer_v2(model, opt="lamb", lr=1e-3, weight_decay=0.05)
    schedule, losses = CosineLRScheduler(optimizer, t_initial=STEPS, warmup_t=1), []
    for step in range(STEPS):
        x, target = mixup(torch.randn(16, 3, 64, 64), torch.randint(0, 10, (16,)))
        loss = SoftTargetCrossEntropy()(model(x), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update(model)
        schedule.step(step)
        losses.append(loss.item())
    return losses, [p.sum() for p in average.parameters()]


def _segment(architecture: str, side: int = 64) -> list[float]:
    import segmentation_models_pytorch as smp

    model = getattr(smp, architecture)("resnet18", encoder_weights=None, classes=3)
    x, masks = torch.randn(4, 3, side, side), torch.randint(0, 3, (4, side, side))
    dice = smp.losses.DiceLoss("multiclass")
    return fit(model, lambda: dice(model(x), masks) + smp.losses.FocalLoss("multiclass")(model(x), masks))


for _name in ("Unet", "UnetPlusPlus", "FPN", "DeepLabV3Plus", "MAnet", "PSPNet"):
    add("segmentation_models_pytorch", _name, lambda name=_name: _segment(name))


def _vit(name: str, side: int = 64, **sizes: Any) -> list[float]:
    import vit_pytorch

    module = __import__(f"vit_pytorch.{name}", fromlist=["x"]) if name[0].islower() else vit_pytorch
    kind = {"simple_vit": "SimpleViT", "cait": "CaiT", "deepvit": "DeepViT"}.get(name, name)
    model = getattr(module, kind)(num_classes=10, **sizes)
    return classify(model, torch.randn(8, 3, side, side))


_WIDE = {"image_size": 64, "patch_size": 8, "dim": 64, "heads": 4, "mlp_dim": 128}
add("vit_pytorch", "ViT", lambda: _vit("ViT", depth=3, dropout=0.1, **_WIDE))
add("vit_pytorch", "SimpleViT", lambda: _vit("simple_vit", depth=3, **_WIDE))
add("vit_pytorch", "CaiT", lambda: _vit("cait", depth=3, cls_depth=1, layer_dropout=0.1, **_WIDE))


add("vit_pytorch", "DeepViT", lambda: _vit("deepvit", depth=3, **_WIDE))


@program("kornia")
def kornia_augmentation() -> Any:
    """Augmentation with gradients through it, and a loss of structural similarity."""
    import kornia

    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 3, 3, padding=1), nn.Sigmoid())
    augment = kornia.augmentation.AugmentationSequential(
        kornia.augmentation.RandomAffine(15.0), kornia.augmentation.RandomGaussianBlur((3, 3), (0.1, 2.0), p=1.0)
    )
    images = torch.rand(8, 3, 64, 64)

    def loss() -> torch.Tensor:
        return kornia.losses.ssim_loss(augment(model(images)), images, 5) + kornia.filters.sobel(model(images)).mean()

    return fit(model, loss)


@program("kornia")
def kornia_registration() -> Any:
    """A homography found by gradients through a warp."""
    import kornia

    warp = nn.Parameter(torch.eye(3)[None] + 0.01 * torch.randn(1, 3, 3))
    model = nn.ParameterList([warp])
    a, b = torch.rand(1, 3, 256, 256), torch.rand(1, 3, 256, 256)
    return fit(
        model,
        lambda: (kornia.geometry.transform.warp_perspective(a, warp, (256, 256)) - b).abs().mean(),
        steps=6,
    )


@program("open_clip")
def contrastive() -> Any:
    import open_clip

    vision = {"image_size": 64, "layers": 2, "width": 64, "patch_size": 8, "head_width": 32}
    text = {"context_length": 16, "vocab_size": 512, "width": 64, "heads": 2, "layers": 2}
    model = open_clip.CLIP(embed_dim=64, vision_cfg=vision, text_cfg=text)
    loss = open_clip.ClipLoss()
    images, tokens = torch.randn(16, 3, 64, 64), torch.randint(1, 512, (16, 16))
    return fit(model, lambda: loss(*model(images, tokens)[:3]))


def _noised(model: nn.Module, sample: torch.Tensor, call: Any) -> list[float]:
    """Denoising training with a schedule of diffusers."""
    from diffusers import DDPMScheduler

    schedule = DDPMScheduler(100)

    def loss() -> torch.Tensor:
        noise, times = torch.randn_like(sample), torch.randint(0, 100, (len(sample),))
        return nn.functional.mse_loss(call(schedule.add_noise(sample, noise, times), times), noise)

    return fit(model, loss)


@program("diffusers")
def unet_2d() -> Any:
    from diffusers import UNet2DModel

    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    model = UNet2DModel(
        32, 3, 3, layers_per_block=1, block_out_channels=(32, 64), norm_num_groups=8, attention_head_dim=8, **blocks
    )
    return _noised(model, torch.randn(4, 3, 32, 32), lambda x, t: model(x, t).sample)


@program("diffusers")
def unet_2d_conditioned() -> Any:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    )
    words = torch.randn(4, 8, 32)
    return _noised(model, torch.randn(4, 4, 16, 16), lambda x, t: model(x, t, words).sample)


@program("diffusers")
def autoencoder_kl() -> Any:
    from diffusers import AutoencoderKL

    blocks = {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
        "block_out_channels": (16, 32),
    }
    model, images = AutoencoderKL(norm_num_groups=8, latent_channels=4, **blocks), torch.randn(4, 3, 32, 32)

    def loss() -> torch.Tensor:
        posterior = model.encode(images).latent_dist
        decoded = model.decode(posterior.sample()).sample
        return nn.functional.mse_loss(decoded, images) + 1e-3 * posterior.kl().mean()

    return fit(model, loss)


@program("diffusers")
def diffusion_transformer() -> Any:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=32, in_channels=4, num_layers=3, sample_size=16, patch_size=2
    )
    labels = torch.randint(0, 10, (4,))
    return _noised(model, torch.randn(4, 4, 16, 16), lambda x, t: model(x, t, labels).sample)


@program("diffusers")
def unet_1d() -> Any:
    from diffusers import UNet1DModel

    model = UNet1DModel(
        sample_size=256,
        in_channels=2,
        out_channels=2,
        extra_in_channels=32,
        block_out_channels=(16, 32),
        down_block_types=("DownBlock1DNoSkip", "DownBlock1D"),
        up_block_types=("UpBlock1D", "UpBlock1DNoSkip"),
    )
    return _noised(model, torch.randn(4, 2, 256), lambda x, t: model(x, t).sample)


@program("monai")
def monai_unet_3d() -> Any:
    from monai.losses import DiceCELoss
    from monai.networks.nets import UNet

    model = UNet(spatial_dims=3, in_channels=1, out_channels=3, channels=(8, 16, 32), strides=(2, 2), num_res_units=1)
    x, masks = torch.randn(2, 1, 32, 32, 32), torch.randint(0, 3, (2, 1, 32, 32, 32))
    loss = DiceCELoss(to_onehot_y=True, softmax=True)
    return fit(model, lambda: loss(model(x), masks))


@program("monai")
def monai_unetr() -> Any:
    from monai.losses import DiceLoss
    from monai.networks.nets import UNETR

    model = UNETR(1, 2, (32, 32, 32), feature_size=8, hidden_size=48, mlp_dim=96, num_heads=4)
    x, masks = torch.randn(1, 1, 32, 32, 32), torch.randint(0, 2, (1, 1, 32, 32, 32))
    loss = DiceLoss(to_onehot_y=True, softmax=True)
    return fit(model, lambda: loss(model(x), masks))
