"""An unrolled GAN learns to draw handwritten digits.

Metz et al. 2017: the generator is trained against the discriminator as it will be `--unroll` gradient steps
from now, and its gradient passes through those steps, so backward runs through backward.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from data import digits, shuffled_batches
from torch import Tensor, nn
from torch.func import functional_call
from training import make_optimizer, options, prepare, train, update

Weights = dict[str, Tensor]


def perceptron(inputs: int, width: int, depth: int, outputs: int) -> nn.Sequential:
    """`depth` hidden layers with tanh: smooth, so that second derivatives say something."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(inputs, width), nn.Tanh()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs))


def discriminator_loss(discriminator: nn.Module, weights: Weights, real: Tensor, fake: Tensor) -> Tensor:
    """How badly the discriminator with these weights tells real from fake."""
    on_real = functional_call(discriminator, weights, (real,))
    on_fake = functional_call(discriminator, weights, (fake,))
    return F.softplus(-on_real).mean() + F.softplus(on_fake).mean()


def unrolled(discriminator: nn.Module, real: Tensor, fake: Tensor, steps: int, rate: float) -> Weights:
    """The discriminator's weights `steps` gradient steps ahead, differentiable in `fake`."""
    weights: Weights = dict(discriminator.named_parameters())
    for _ in range(steps):
        loss = discriminator_loss(discriminator, weights, real, fake)
        gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        weights = {
            name: weight - rate * gradient for (name, weight), gradient in zip(weights.items(), gradients, strict=True)
        }
    return weights


def main() -> None:
    parser = options(__doc__.split("\n")[0], steps=60, batch=128, optimizer="adamw", lr=1e-3)
    parser.add_argument("--depth", type=int, default=2, help="hidden layers of each network")
    parser.add_argument("--width", type=int, default=256, help="width of the hidden layers")
    parser.add_argument("--latent", type=int, default=32, help="numbers the generator draws from")
    parser.add_argument("--unroll", type=int, default=5, help="discriminator steps to look ahead")
    parser.add_argument("--unroll-lr", type=float, default=0.1, help="their learning rate")
    args = parser.parse_args()
    prepare(args)

    batches = shuffled_batches(digits()[0].flatten(1), batch=args.batch)
    generator = nn.Sequential(perceptron(args.latent, args.width, args.depth, 64), nn.Tanh()).to(args.device)
    discriminator = perceptron(64, args.width, args.depth, 1).to(args.device)
    generator_optimizer = make_optimizer(args, generator.parameters())
    discriminator_optimizer = make_optimizer(args, discriminator.parameters())

    def step() -> Tensor:
        real = next(batches)[0].to(args.device)
        fake = generator(torch.randn(args.batch, args.latent, device=args.device))
        ahead = unrolled(discriminator, real, fake, args.unroll, args.unroll_lr)
        generator_loss = F.softplus(-functional_call(discriminator, ahead, (fake,))).mean()
        update(generator_optimizer, generator_loss)

        now = dict(discriminator.named_parameters())
        discriminator_optimizer.zero_grad()
        update(discriminator_optimizer, discriminator_loss(discriminator, now, real, fake.detach()))
        return generator_loss

    train(args, nn.ModuleList([generator, discriminator]), step)


if __name__ == "__main__":
    main()
