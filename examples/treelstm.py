"""A TreeLSTM over Python syntax trees learns to tell methods from functions by the body alone.

The child-sum form of Tai et al. 2015. Every tree has its own shape, so every step runs other operations
than the last: control flow that no static graph describes. A node is known by its syntax class (If, Call,
...); names and the argument list are withheld, for they would give the answer away.
"""

from __future__ import annotations

import ast
import random
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from data import source_functions
from torch import Tensor, nn
from training import make_optimizer, options, prepare, train, update

CLASSES = [kind for kind in vars(ast).values() if isinstance(kind, type) and issubclass(kind, ast.AST)]
SYNTAX = {name: index for index, name in enumerate(sorted({kind.__name__ for kind in CLASSES}))}


@dataclass(frozen=True)
class Tree:
    """A syntax node and what stands below it."""

    syntax: int
    children: tuple[Tree, ...]
    nodes: int


def tree_of(node: ast.AST, below: list[ast.AST]) -> Tree:
    """The tree with root `node` and a subtree for each of `below`."""
    children = tuple(tree_of(child, list(ast.iter_child_nodes(child))) for child in below)
    return Tree(SYNTAX[type(node).__name__], children, 1 + sum(child.nodes for child in children))


def labelled_trees(smallest: int, largest: int) -> list[tuple[Tree, int]]:
    """Bodies of standard library functions within the node limits; 1 marks a method."""
    trees = [(tree_of(function, function.body), int(method)) for function, method in source_functions()]
    return [(tree, label) for tree, label in trees if smallest <= tree.nodes <= largest]


class TreeLSTM(nn.Module):
    """A tree to the scores (2,) of function and method."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.width = width
        self.syntax = nn.Embedding(len(SYNTAX), width)
        self.gates = nn.Linear(2 * width, 3 * width)
        self.forget_input = nn.Linear(width, width)
        self.forget_state = nn.Linear(width, width, bias=False)
        self.head = nn.Linear(width, 2)

    def encode(self, tree: Tree) -> tuple[Tensor, Tensor]:
        """Hidden and memory state (width,) of the tree's root."""
        x = self.syntax.weight[tree.syntax]
        if tree.children:
            states = [self.encode(child) for child in tree.children]
            hidden = torch.stack([h for h, _ in states])
            memory = torch.stack([c for _, c in states])
            forget = torch.sigmoid(self.forget_input(x) + self.forget_state(hidden))
            below, kept = hidden.sum(0), (forget * memory).sum(0)
        else:
            below = kept = x.new_zeros(self.width)
        update_gate, output_gate, candidate = self.gates(torch.cat([x, below])).chunk(3)
        c = torch.sigmoid(update_gate) * torch.tanh(candidate) + kept
        return torch.sigmoid(output_gate) * torch.tanh(c), c

    def forward(self, tree: Tree) -> Tensor:
        hidden, _ = self.encode(tree)
        return self.head(hidden)


def main() -> None:
    parser = options(__doc__.split("\n")[0], steps=40, batch=16, optimizer="adamw", lr=5e-3)
    parser.add_argument("--width", type=int, default=64, help="width of the states")
    parser.add_argument("--smallest", type=int, default=10, help="nodes of the smallest tree")
    parser.add_argument("--largest", type=int, default=80, help="nodes of the largest tree")
    args = parser.parse_args()
    prepare(args)

    trees = labelled_trees(args.smallest, args.largest)
    draw = random.Random(args.seed)
    model = TreeLSTM(args.width).to(args.device)
    optimizer = make_optimizer(args, model.parameters())

    def step() -> Tensor:
        batch = draw.sample(trees, args.batch)
        scores = torch.stack([model(tree) for tree, _ in batch])
        loss = F.cross_entropy(scores, torch.tensor([label for _, label in batch], device=args.device))
        update(optimizer, loss)
        return loss

    train(args, model, step)


if __name__ == "__main__":
    main()
