"""torchdiffeq, torchsde, e3nn, neuraloperator, torchrl's tensordict, stable-baselines3, captum, functorch: the rest."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .catalogue import STEPS, fit, program


def _field() -> nn.Module:
    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 8))

        def forward(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.net(y)

    return Field()


@program("torchdiffeq", small=True)
def neural_ode() -> Any:
    from torchdiffeq import odeint

    model, start, times = _field(), torch.randn(1024, 8), torch.linspace(0, 1, 8)
    return fit(model, lambda: odeint(model, start, times, method="rk4").square().mean())


@program("torchdiffeq")
def adjoint_ode() -> Any:
    from torchdiffeq import odeint_adjoint

    model, start, times = _field(), torch.randn(1024, 8), torch.linspace(0, 1, 4)
    return fit(model, lambda: odeint_adjoint(model, start, times, rtol=1e-3, atol=1e-3).square().mean())


@program("torchsde")
def neural_sde() -> Any:
    import torchsde

    class Model(nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self) -> None:
            super().__init__()
            self.drift, self.spread = nn.Linear(4, 4), nn.Linear(4, 4)

        def f(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.drift(y).tanh()

        def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.spread(y).sigmoid()

    model, start, times = Model(), torch.randn(4096, 4), torch.linspace(0, 1, 5)

    def loss() -> torch.Tensor:
        noise = torchsde.BrownianInterval(0.0, 1.0, size=(4096, 4), entropy=7)
        return torchsde.sdeint(model, start, times, dt=0.05, bm=noise, method="euler").square().mean()

    return fit(model, loss)


@program("e3nn")
def equivariant_network() -> Any:
    from e3nn import o3
    from e3nn.nn import Gate

    hidden = o3.Irreps("16x0e + 8x1o")
    gate = Gate("16x0e", [torch.tanh], "8x0e", [torch.sigmoid], "8x1o")
    first = o3.FullyConnectedTensorProduct("4x0e", "1x0e + 1x1o", gate.irreps_in)
    last = o3.Linear(hidden, "1x0e")
    x, places = torch.randn(256, 4), torch.randn(256, 3)

    def loss() -> torch.Tensor:
        directions = o3.spherical_harmonics("1x0e + 1x1o", places, normalize=True)
        return last(gate(first(x, directions))).square().mean()

    return fit(nn.ModuleList([first, gate, last]), loss)


@program("neuralop")
def fourier_operator() -> Any:
    """Spectral convolutions: FFTs and complex weights."""
    from neuralop.models import FNO

    model = FNO(n_modes=(8, 8), hidden_channels=16, in_channels=1, out_channels=1, n_layers=2)
    x, y = torch.randn(4, 1, 32, 32), torch.randn(4, 1, 32, 32)
    return fit(model, lambda: nn.functional.mse_loss(model(x), y))


@program("tensordict")
def tensors_in_a_dict() -> Any:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    first = TensorDictModule(nn.Sequential(nn.Linear(16, 64), nn.ReLU()), in_keys=["x"], out_keys=["hidden"])
    model = TensorDictSequential(first, TensorDictModule(nn.Linear(64, 1), in_keys=["hidden"], out_keys=["y"]))
    data = TensorDict({"x": torch.randn(8192, 16)}, batch_size=[8192])
    return fit(model, lambda: model(data.clone())["y"].square().mean())


@program("stable_baselines3")
def reinforcement_learning() -> Any:
    """PPO on a pole that is to be kept upright."""
    from stable_baselines3 import PPO

    model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
    model.learn(192)
    return [p.detach() for p in model.policy.parameters()]


@program("captum")
def attributions() -> Any:
    """Integrated gradients and occlusion: a backward pass without an optimizer."""
    from captum.attr import IntegratedGradients, Saliency

    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 5)
    )
    x = torch.randn(4, 3, 32, 32, requires_grad=True)
    found = IntegratedGradients(model).attribute(x, target=1, n_steps=16, internal_batch_size=16)
    return found, Saliency(model).attribute(x, target=2)


@program("torch.func", small=True)
def per_sample_gradients() -> Any:
    from torch.func import functional_call, grad, vmap

    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
    x, labels = torch.randn(64, 32), torch.randint(0, 10, (64,))
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: Any, one: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(functional_call(model, parameters, (one[None],)), label[None])

    norms = []
    for _ in range(STEPS):
        found = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, labels)
        norms.append(torch.stack([g.flatten(1).norm(dim=1) for g in found.values()]))
        parameters = {name: p - 0.1 * found[name].mean(0) for name, p in parameters.items()}
    return norms, parameters


@program("torch.func")
def learned_initialization() -> Any:
    """Meta-learning: gradients of a step of training."""
    from torch.func import functional_call, grad_and_value

    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    x, y = torch.randn(2048, 16), torch.randn(2048, 1)

    def loss(parameters: Any) -> torch.Tensor:
        return nn.functional.mse_loss(functional_call(model, parameters, (x,)), y)

    def after_a_step() -> torch.Tensor:
        parameters = dict(model.named_parameters())
        found, _ = grad_and_value(loss)(parameters)
        return loss({name: p - 0.1 * found[name] for name, p in parameters.items()})

    return fit(model, after_a_step)


@program("torch.func", small=True)
def jacobians() -> Any:
    from torch.func import hessian, jacrev, vmap

    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
    x = torch.randn(512, 8)
    return vmap(jacrev(model))(x), vmap(hessian(lambda one: model(one).sum()))(x)


@program("torch_optimizer")
def other_optimizers() -> Any:
    import torch_optimizer

    losses = []
    for kind in ("RAdam", "Lookahead", "Yogi", "NovoGrad"):
        model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))
        x, labels = torch.randn(2048, 64), torch.randint(0, 10, (2048,))
        base = torch_optimizer.Yogi(model.parameters(), lr=1e-2)
        made = (
            torch_optimizer.Lookahead(base, k=2)
            if kind == "Lookahead"
            else getattr(torch_optimizer, kind)(model.parameters(), lr=1e-2)
        )
        losses += fit(model, lambda m=model, x=x, y=labels: nn.functional.cross_entropy(m(x), y), optimizer=made)
    return losses


@program("pytorch_metric_learning")
def metric_learning() -> Any:
    from pytorch_metric_learning.losses import TripletMarginLoss
    from pytorch_metric_learning.miners import MultiSimilarityMiner

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))
    x, labels, miner, loss = (
        torch.randn(64, 64),
        torch.randint(0, 8, (64,)),
        MultiSimilarityMiner(),
        TripletMarginLoss(),
    )

    def value() -> torch.Tensor:
        embedded = model(x)
        return loss(embedded, labels, miner(embedded, labels))

    return fit(model, value)
