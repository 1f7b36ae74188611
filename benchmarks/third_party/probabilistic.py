"""gpytorch, botorch, pyro, zuko, opacus, snntorch: probability, privacy, spikes."""

from __future__ import annotations

import math
import warnings
from typing import Any

import torch
from torch import nn

from .catalogue import STEPS, fit, program


@program("gpytorch")
def exact_process() -> Any:
    import gpytorch

    x = torch.linspace(0, 1, 200)
    y = torch.sin(x * 2 * math.pi) + 0.1 * torch.randn(200)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood: Any) -> None:
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(likelihood)
    marginal = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    return fit(model, lambda: -marginal(model(x), y))


@program("gpytorch")
def variational_process() -> Any:
    import gpytorch

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self) -> None:
            points = torch.rand(32, 2)
            spread = gpytorch.variational.CholeskyVariationalDistribution(32)
            super().__init__(gpytorch.variational.VariationalStrategy(self, points, spread))
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel())

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    x, y = torch.rand(4096, 2), torch.randn(4096)
    model, likelihood = Model(), gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=4096)
    return fit(nn.ModuleList([model, likelihood]), lambda: -bound(model(x), y))


@program("botorch")
def bayesian_optimization() -> Any:
    """A surrogate fitted by L-BFGS of scipy and an acquisition function maximized."""
    from botorch.acquisition import qExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    x = torch.rand(20, 2, dtype=torch.double)
    y = x.sum(-1, keepdim=True).sin()
    model = SingleTaskGP(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit_gpytorch_mll(
            ExactMarginalLogLikelihood(model.likelihood, model), optimizer_kwargs={"options": {"maxiter": 10}}
        )
        acquisition = qExpectedImprovement(model, best_f=y.max())
        bounds = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.double)
        found, value = optimize_acqf(acquisition, bounds, q=2, num_restarts=2, raw_samples=8, options={"maxiter": 5})
    return found, value


@program("pyro")
def variational_inference() -> Any:
    """A variational autoencoder by stochastic inference."""
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.optim import Adam

    pyro.clear_param_store()
    decoder = nn.Sequential(nn.Linear(8, 64), nn.Softplus(), nn.Linear(64, 256), nn.Sigmoid())
    encoder = nn.Sequential(nn.Linear(256, 64), nn.Softplus(), nn.Linear(64, 16))
    images = torch.rand(128, 256).round()

    def model(x: torch.Tensor) -> None:
        pyro.module("decoder", decoder)
        with pyro.plate("data", len(x)):
            z = pyro.sample("z", dist.Normal(torch.zeros(len(x), 8), torch.ones(len(x), 8)).to_event(1))
            pyro.sample("x", dist.Bernoulli(decoder(z)).to_event(1), obs=x)

    def guide(x: torch.Tensor) -> None:
        pyro.module("encoder", encoder)
        with pyro.plate("data", len(x)):
            mean, spread = encoder(x).chunk(2, -1)
            pyro.sample("z", dist.Normal(mean, spread.exp()).to_event(1))

    inference = SVI(model, guide, Adam({"lr": 1e-3}), Trace_ELBO())
    return [inference.step(images) for _ in range(STEPS)]


@program("pyro")
def hamiltonian_sampling() -> Any:
    import pyro
    import pyro.distributions as dist
    from pyro.infer import MCMC, NUTS

    pyro.clear_param_store()
    x, y = torch.randn(20000, 4), torch.randint(0, 2, (20000,)).float()

    def model() -> None:
        weights = pyro.sample("weights", dist.Normal(torch.zeros(4), torch.ones(4)).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)

    sampler = MCMC(NUTS(model, max_tree_depth=3), num_samples=4, warmup_steps=4, disable_progbar=True)
    sampler.run()
    return sampler.get_samples()["weights"]


@program("zuko")
def spline_flow() -> Any:
    import zuko

    flow = zuko.flows.NSF(features=4, context=3, transforms=3, hidden_features=(64, 64))
    x, context = torch.randn(256, 4), torch.randn(256, 3)
    return fit(flow, lambda: -flow(context).log_prob(x).mean())


@program("zuko")
def continuous_flow() -> Any:
    import zuko

    flow, x = zuko.flows.CNF(features=2, hidden_features=(32, 32)), torch.randn(512, 2)
    return fit(flow, lambda: -flow().log_prob(x).mean())


@program("opacus")
def private_training() -> Any:
    """Gradients of each sample by hooks, clipped and with noise."""
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
    data = DataLoader(TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(0, 10, (64,))), batch_size=16)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        private, optimizer, data = PrivacyEngine().make_private(
            module=model, optimizer=optimizer, data_loader=data, noise_multiplier=1.0, max_grad_norm=1.0
        )
        losses = []
        for x, labels in data:
            loss = nn.functional.cross_entropy(private(x), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, [p.detach() for p in private.parameters()]


@program("snntorch")
def spiking_network() -> Any:
    import snntorch as snn
    from snntorch import surrogate

    gradient = surrogate.fast_sigmoid(slope=25)
    layers = nn.ModuleList(
        [
            nn.Linear(64, 128),
            snn.Leaky(0.9, spike_grad=gradient),
            nn.Linear(128, 10),
            snn.Leaky(0.9, spike_grad=gradient),
        ]
    )
    x, labels = torch.rand(16, 64), torch.randint(0, 10, (16,))

    def loss() -> torch.Tensor:
        first, second, total = layers[1].init_leaky(), layers[3].init_leaky(), torch.zeros(())
        for _ in range(20):
            spikes, first = layers[1](layers[0](x), first)
            _, second = layers[3](layers[2](spikes), second)
            total = total + nn.functional.cross_entropy(second, labels)
        return total

    return fit(layers, loss)
