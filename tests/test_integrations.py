"""Budgets for the loops of transformers, Lightning and Accelerate, with the packages themselves."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from bits import bits, differences
from process import PYTHON, program, ran_warm
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from true_peak import true_peak

BUDGET = "24MiB"
COUNTERS = {"remat/peak_bytes", "remat/used_bytes", "remat/evictions", "remat/recomputed", "remat/slowdown"}


class Net(nn.Module):
    """A deep network whose step takes 41 MiB, and a loss as transformers wants it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(24))

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        for layer in self.layers:
            x = x + layer(x).tanh()
        return {"loss": x.square().mean()}


class Fails(Exception):
    """An error of the program's own."""


def data(rows: int = 8 * 64) -> torch.Tensor:
    return torch.randn(rows, 64, 64, generator=torch.Generator().manual_seed(0))


def transformers_trainer(folder: Path, callbacks: list[Any]) -> Any:
    from transformers import Trainer, TrainingArguments

    torch.manual_seed(0)
    rows = data()
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=64,
        max_steps=6,
        logging_steps=2,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
    )
    return Trainer(Net(), arguments, train_dataset=[{"x": row} for row in rows], callbacks=callbacks)


def test_a_trainer_of_transformers_keeps_its_budget_and_logs(tmp_path: Path) -> None:
    from remat.integrations.transformers import RematCallback
    from transformers import TrainerCallback

    class Logger(TrainerCallback):
        """As the loggers are that transformers has."""

        def __init__(self) -> None:
            self.logs: list[dict[str, float]] = []

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            self.logs.append(dict(logs))

    plain = transformers_trainer(tmp_path, [])
    with true_peak() as unbounded:
        plain.train()
    logger, callback = Logger(), RematCallback(BUDGET)
    trainer = transformers_trainer(tmp_path, [logger])
    callback.add_to(trainer)
    trainer.train()
    assert callback.run is not None
    stats = callback.run.stats()
    assert stats.peak <= 24 * 2**20 < unbounded.highest - unbounded.base
    assert stats.evictions > 0
    assert not differences(bits(dict(plain.model.state_dict())), bits(dict(trainer.model.state_dict())))
    assert all(set(logs) >= COUNTERS for logs in logger.logs)
    assert len(logger.logs) >= 3
    assert trainer.state.log_history[0]["remat/evictions"] > 0
    with remat.budget("1GiB"):  # no budget is in force any more
        pass


def test_a_budget_that_a_trainer_forgot_ends_with_the_next(tmp_path: Path) -> None:
    from remat.integrations.transformers import RematCallback

    with pytest.raises(remat.BudgetError):
        transformers_trainer(tmp_path, [RematCallback("9MiB")]).train()
    callback = RematCallback(BUDGET)
    trainer = transformers_trainer(tmp_path, [callback])
    trainer.train()
    assert callback.run is not None
    assert callback.run.stats().budget == 24 * 2**20


@pytest.mark.parametrize("fails", [False, True])
def test_a_trainer_of_lightning_keeps_its_budget_and_logs(tmp_path: Path, fails: bool) -> None:
    lightning = pytest.importorskip("lightning")
    from lightning.pytorch.loggers import CSVLogger
    from remat.integrations.lightning import RematCallback

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            if fails and index == 3:
                raise Fails
            return self.net(batch[0])["loss"]

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), 1e-3)

    def fitted(callbacks: list[Any]) -> Any:
        torch.manual_seed(0)
        module = Module()
        trainer = lightning.Trainer(
            accelerator="cpu",
            max_steps=6,
            log_every_n_steps=2,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            logger=CSVLogger(str(tmp_path), version=len(callbacks)),
            callbacks=callbacks,
        )
        trainer.fit(module, DataLoader(TensorDataset(data()), batch_size=64))
        return module

    callback = RematCallback(BUDGET)
    if fails:
        with pytest.raises(Fails):
            fitted([callback])
    else:
        plain, within = fitted([]), fitted([callback])
        assert not differences(bits(dict(plain.state_dict())), bits(dict(within.state_dict())))
        assert callback.run is not None
        stats = callback.run.stats()
        assert stats.peak <= 24 * 2**20
        assert stats.evictions > 0
        with next(tmp_path.glob("**/version_1/metrics.csv")).open() as file:
            rows = [row for row in csv.DictReader(file) if row.get("remat/evictions")]
        assert len(rows) >= 3
        assert float(rows[-1]["remat/evictions"]) == stats.evictions
    with remat.budget("1GiB"):  # no budget is in force any more
        pass


NOTEBOOK = """
import sys
from IPython.core.interactiveshell import InteractiveShell

shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "remat")
shell.run_cell("import torch; from torch import nn; torch.manual_seed(0)")
shell.run_cell("net = nn.Sequential(*(nn.Linear(64, 64) for _ in range(32))); x = torch.randn(2048, 64)")

def cell(line, text="net(x).square().mean().backward()"):
    print(f"-- {line}", flush=True)
    done = shell.run_cell(f"%%remat {line}\\n{text}")
    error = done.error_before_exec or done.error_in_exec
    print(type(error).__name__, done.success, flush=True)

cell("3MiB")
cell("12MiB", "net.zero_grad(); loss = net(x).square().mean(); loss.backward()")
cell("")
cell("3 bananas")
cell("1GiB --plan nowhere.json", "pass")
cell("1GiB", "import remat; print(remat.budget)")
cell("1GiB '", "pass")
cell("1GiB", "1 +* 1")
cell("1GiB", "raise SystemExit('left')")
cell("1GiB --help", "1 / 0")
cell("1GiB", "class Bare(Exception):\\n    def __setattr__(self, *_): raise AttributeError\\nraise Bare('own')")
shell.run_cell("plain = net(x).square().mean(); print('same', plain.item() == loss.item())")
"""


def test_cells_of_notebooks_run_within_budgets(tmp_path: Path) -> None:
    """A refused cell says which budget to try; the cell runs then, and wrong lines are told in a line."""
    pytest.importorskip("IPython")
    done = ran_warm([*PYTHON, program(tmp_path, NOTEBOOK)])
    assert done.code == 0, done.err
    parts = [part.strip() for part in done.out.split("-- ")[1:]]
    assert parts[0].endswith("BudgetError False")
    assert parts[0].count("Traceback (most recent call last)") == 1, "an error is shown once"
    assert parts[1].startswith("12MiB")
    assert "Error" not in parts[1]
    assert "UsageError" in parts[2]
    assert "bananas" in parts[3] + done.err
    assert "UsageError" in parts[3]
    assert parts[4].endswith("UsageError False")
    assert "there is no such file" in done.err
    assert parts[6].endswith("UsageError False")
    assert """%%remat: "1GiB '": No closing quotation; quotes come in pairs""" in done.err
    assert parts[7].endswith("CellFailed False") and parts[7].count("SyntaxError") == 1
    assert parts[8].endswith("CellFailed False") and parts[8].count("SystemExit") == 1
    assert parts[9].endswith("NoneType True") and done.out.count("Run a cell inside a byte budget.") == 1
    assert parts[10].split("same")[0].strip().endswith("CellFailed False")
    assert parts[10].count("Traceback (most recent call last)") == 1
    assert "same True" in parts[10]


def test_a_budget_takes_over_from_a_training_that_failed() -> None:
    """A loop that ends by an error does not always tell its callbacks."""
    from accelerate import Accelerator
    from remat.integrations import accelerate as integration
    from remat.integrations._held import Held

    failed = Held("32MiB", {})
    failed.enter()
    with integration.budget(Accelerator(cpu=True), "64MiB") as run:
        assert run.stats().budget == 64 * 2**20
    assert not failed.in_force
    with remat.budget("1GiB"):  # no budget is in force any more
        pass


@pytest.mark.parametrize("budget", ["x", -1, {"cpu": "12 parsecs"}])
def test_callbacks_refuse_a_budget_that_makes_no_sense_before_training(budget: Any) -> None:
    from remat.integrations.lightning import RematCallback

    with pytest.raises(ValueError, match="is not a byte count"):
        RematCallback(budget)


def test_a_loop_with_accelerate_keeps_its_budget_and_logs() -> None:
    from accelerate import Accelerator
    from accelerate.tracking import GeneralTracker
    from remat.integrations import accelerate as integration

    class Logger(GeneralTracker):
        """A tracker of one's own, as accelerate documents it."""

        name, requires_logging_directory = "kept", False

        def __init__(self) -> None:
            super().__init__()
            self.logs: list[dict[str, Any]] = []

        @property
        def tracker(self) -> Any:
            return self.logs

        def store_init_configuration(self, values: Any) -> None:
            pass

        def log(self, values: Any, step: int | None = None, **_: Any) -> None:
            self.logs.append(dict(values))

    def trained(within: str | None) -> tuple[Any, list[dict[str, Any]], Any]:
        torch.manual_seed(0)
        logger = Logger()
        accelerator = Accelerator(cpu=True, log_with=logger)
        accelerator.init_trackers("test")
        net: Any = Net()
        optimizer: Any = torch.optim.AdamW(net.parameters(), 1e-3)
        net, optimizer = accelerator.prepare(net, optimizer)

        def train() -> None:
            for step, x in enumerate(data().split(64)[:5]):
                loss = net(x)["loss"]
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
                accelerator.log({"loss": loss.item()}, step=step)

        run = None
        if within is None:
            train()
        else:
            with integration.budget(accelerator, within) as run:
                train()
            accelerator.log({"after": 1.0})
        return net, logger.logs, run

    plain, logs, _ = trained(None)
    assert set(logs[0]) == {"loss"}
    net, logs, run = trained(BUDGET)
    assert not differences(bits(dict(plain.state_dict())), bits(dict(net.state_dict())))
    assert run.stats().peak <= 24 * 2**20
    assert run.stats().evictions > 0
    assert all(set(entry) == COUNTERS | {"loss"} for entry in logs[:5])
    assert set(logs[5]) == {"after"}


def test_a_log_of_the_programs_own_stays_with_accelerate() -> None:
    """One that is set before is given the counters meanwhile; one that is set within the budget stays too."""
    from accelerate import Accelerator
    from remat.integrations import accelerate as integration

    accelerator: Any = Accelerator(cpu=True)
    logs: list[dict[str, Any]] = []
    accelerator.log = own = logs.append
    with integration.budget(accelerator, "64MiB"):
        accelerator.log({"loss": 1.0})
    assert set(logs[0]) == COUNTERS | {"loss"}
    assert accelerator.log is own
    with integration.budget(accelerator, "64MiB"):
        accelerator.log = print
    assert accelerator.log is print
