"""Real torch in one arena of exactly so many bytes: same bits, a true peak, out of memory that a program survives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from preloaded_arena import LIBRARY, MiB, in_arena
from process import PYTHON, program, ran_warm

TRAINING = """
    import hashlib, sys
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(),
                                      nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width))
        def forward(self, x):
            return torch.relu(x + self.body(x))

    def resnet():
        model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *(Block(32) for _ in range(4)),
                              nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
        return model, lambda: model(torch.randn(8, 3, 32, 32)).square().mean()

    def lstm():
        model = nn.LSTM(64, 128, num_layers=2, dropout=0.2, batch_first=True)
        return model, lambda: model(torch.randn(16, 30, 64))[0].square().mean()

    def train(model, loss_of, steps=3):
        # By hand: torch's optimizers import its compiler first, which takes seconds.
        momenta = [torch.zeros_like(parameter) for parameter in model.parameters()]
        losses = []
        for _ in range(steps):
            loss = loss_of()
            loss.backward()
            with torch.no_grad():
                for parameter, momentum in zip(model.parameters(), momenta):
                    parameter -= 0.1 * momentum.mul_(0.9).add_(parameter.grad)
                    parameter.grad = None
            losses.append(loss.item().hex())
        digest = hashlib.sha256()
        for parameter in model.state_dict().values():
            digest.update(parameter.numpy().tobytes())
        return digest.hexdigest(), losses

    print("bits", *train(*globals()[sys.argv[1]]()))
"""

PEAK = """
    from preloaded_arena import statistics
    seen = statistics()
    assert seen.exhaustions == seen.wrong_frees == 0
    print("peak", seen.high_water)
"""


def line(out: str, word: str) -> str:
    """The line of an output that begins with a word."""
    return next(line for line in out.splitlines() if line.startswith(word))


@pytest.mark.parametrize("model", ["resnet", pytest.param("lstm", marks=pytest.mark.full)])
def test_training_has_the_same_bits_in_an_arena_little_larger_than_its_peak(tmp_path: Path, model: str) -> None:
    plain = ran_warm([*PYTHON, program(tmp_path, TRAINING, "plain.py"), model])
    assert plain.code == 0, plain.err
    script = program(tmp_path, TRAINING, "arena.py")
    script.write_text(script.read_text() + program(tmp_path, PEAK, "peak.py").read_text())
    roomy = in_arena(1 << 30, script, model)
    assert roomy.code == 0, roomy.err
    assert line(roomy.out, "bits") == line(plain.out, "bits")
    peak = int(line(roomy.out, "peak").split()[1])
    assert 1 * MiB < peak < 200 * MiB
    # Nobody evicts whole windows here, so gaps remain: a fifth of room for them.
    tight = in_arena(peak + peak // 5, script, model)
    assert tight.code == 0, tight.err
    assert line(tight.out, "bits") == line(plain.out, "bits")
    over = in_arena(peak - peak // 20, script, model)
    assert over.code == 1
    assert "can't allocate memory" in over.err


def test_the_peak_is_that_of_the_tensors_to_the_byte(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import torch
        from preloaded_arena import MiB, owns, restart_peak, statistics

        kept = torch.empty(3 * MiB, dtype=torch.uint8)
        before = statistics().in_use
        restart_peak()
        large = torch.empty(4 * MiB, dtype=torch.uint8)
        small = torch.empty(1000, dtype=torch.uint8)
        other = torch.empty(2 * MiB + 1, dtype=torch.uint8)
        assert owns(kept) and owns(large) and owns(other) and not owns(small)
        del large
        third = torch.empty(MiB, dtype=torch.uint8)
        assert statistics().high_water - before == 6 * MiB + 64
        assert statistics().in_use - before == 3 * MiB + 64
        """,
    )
    ended = in_arena(64 * MiB, script)
    assert ended.code == 0, ended.err


def test_out_of_memory_is_torchs_own_error_and_the_program_goes_on(tmp_path: Path) -> None:
    source = """
        from preloaded_arena import MiB, statistics
        before = statistics()
        for wanted in (64 * MiB, 1 << 62):
            try:
                torch.empty(wanted, dtype=torch.uint8)
            except RuntimeError as error:
                assert "can't allocate memory" in str(error), error
                assert str(wanted) in str(error), error
            else:
                raise AssertionError(wanted)
        try:
            hoard = []
            while True:
                hoard.append(torch.empty(MiB, dtype=torch.uint8))
        except RuntimeError as error:
            assert "can't allocate memory" in str(error), error
        assert len(hoard) > 20
        del hoard
        after = statistics()
        assert after.in_use == before.in_use and after.refusals == before.refusals + 3
        print("bits", *train(*resnet()))
    """
    script = program(tmp_path, TRAINING)
    script.write_text(script.read_text() + program(tmp_path, source, "more.py").read_text())
    ended = in_arena(63 * MiB, script, "lstm")
    assert ended.code == 0, ended.err


def test_who_is_registered_makes_room_amid_forward_and_backward(tmp_path: Path) -> None:
    source = """
        from preloaded_arena import MiB, on_exhausted, statistics

        asked = []
        hoard = []
        def make_room(size):
            asked.append(size)
            return bool(hoard) and hoard.pop() is not None
        kept = on_exhausted(make_room)

        def fill():
            while statistics().largest_free >= MiB:
                hoard.append(torch.empty(MiB, dtype=torch.uint8))

        torch.manual_seed(0)
        model, loss_of = resnet()
        fill()
        forward = loss_of()
        in_forward = len(asked)
        assert in_forward > 5
        fill()
        forward.backward()
        assert len(asked) > in_forward
        assert hoard
        seen = statistics()
        assert seen.refusals == 0 and seen.exhaustions >= len(asked)
        assert 0 < seen.fragmentation_mean < seen.fragmentation_max < 0.25, seen.fragmentation_max
        print("gradients", hashlib.sha256(b"".join(p.grad.numpy().tobytes() for p in model.parameters())).hexdigest())
    """
    plain = """
        torch.manual_seed(0)
        model, loss_of = resnet()
        loss_of().backward()
        print("gradients", hashlib.sha256(b"".join(p.grad.numpy().tobytes() for p in model.parameters())).hexdigest())
    """
    found = []
    for name, more in (("arena", source), ("plain", plain)):
        script = program(tmp_path, TRAINING, f"{name}.py")
        script.write_text(script.read_text() + program(tmp_path, more, "more.py").read_text())
        ended = in_arena(96 * MiB, script, "lstm") if name == "arena" else ran_warm([*PYTHON, script, "lstm"])
        assert ended.code == 0, ended.err
        found.append(line(ended.out, "gradients"))
    assert found[0] == found[1]


def test_data_loaders_workers_live_beside_a_full_arena(tmp_path: Path) -> None:
    script = program(
        tmp_path,
        """
        import torch
        from torch.utils.data import DataLoader, Dataset
        from preloaded_arena import MiB, owns, statistics

        torch.set_num_threads(2)
        inherited = torch.arange(4 * MiB, dtype=torch.int64)
        filler = torch.empty(14 * MiB, dtype=torch.uint8)

        class Squares(Dataset):
            def __len__(self):
                return 16
            def __getitem__(self, index):
                own = torch.full((2 * MiB,), index, dtype=torch.float32)
                assert not owns(own) and statistics().capacity == 48 * MiB
                return own.square()[:1000] + inherited[index]

        if __name__ == "__main__":
            blocks = statistics().blocks
            loader = DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork")
            for epoch in range(2):
                firsts = [int(value) for batch in loader for value in batch[:, 0]]
                assert firsts == [index * index + index for index in range(16)], firsts
            assert int(inherited.sum()) == 4 * MiB * (4 * MiB - 1) // 2
            assert statistics().blocks == blocks
        """,
    )
    ended = in_arena(48 * MiB, script)
    assert ended.code == 0, ended.err


def test_a_budget_that_is_none_ends_the_program_with_one_line(tmp_path: Path) -> None:
    ended = in_arena("12MiB", program(tmp_path, "raise SystemExit('it started')"))
    assert ended.code == 2
    assert ended.err.splitlines() == [
        'remat: REMAT_ARENA=12MiB: "12MiB" is no number of bytes; expected BYTES[,ALIGNMENT], such as 268435456,64'
    ]


@pytest.mark.skipif(not hasattr(torch._C, "_cuda_customAllocator"), reason="torch was built without CUDA")
def test_torch_takes_it_for_a_cuda_allocator() -> None:
    allocator = torch.cuda.memory.CUDAPluggableAllocator(str(LIBRARY), "remat_cuda_malloc", "remat_cuda_free")
    assert allocator.allocator() is not None
