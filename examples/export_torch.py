"""Write a small residual network of torch as an ONNX file that azserve evaluates.

    python examples/export_torch.py ConnectFour-v0 model.onnx
    bin/azserve search ConnectFour-v0 --model model.onnx

What azserve wants of a file: an input for each observation array, named like it, and the outputs
`prior_logits` [batch, A] and `value` [batch]; the batch may have any size.
"""

from __future__ import annotations

import argparse
import math

import torch
from torch import Tensor, nn

import azserve


class Block(nn.Module):
    """Two convolutions around which their input is carried."""

    def __init__(self, planes: int) -> None:
        super().__init__()
        self.a, self.b = (nn.Conv2d(planes, planes, 3, padding=1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        """Return planes [B, planes, rows, cols] of as many."""
        return torch.relu(x + self.b(torch.relu(self.a(x))))


class Network(nn.Module):
    """A tower of blocks with a policy and a value head, for boards [rows, cols, planes]."""

    def __init__(self, board: tuple[int, ...], actions: int, blocks: int = 3, planes: int = 32) -> None:
        super().__init__()
        rows, cols, inputs = board
        self.stem = nn.Conv2d(inputs, planes, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(planes) for _ in range(blocks)))
        self.policy = nn.Sequential(
            nn.Conv2d(planes, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * rows * cols, actions)
        )
        self.value = nn.Sequential(
            nn.Conv2d(planes, 8, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * rows * cols, 64), nn.ReLU(),
            nn.Linear(64, 1), nn.Tanh(),
        )  # fmt: skip

    def forward(self, board: Tensor) -> tuple[Tensor, Tensor]:
        """Return prior logits [B, A] and values [B] of boards [B, rows, cols, planes], float32."""
        x = self.blocks(torch.relu(self.stem(board.movedim(-1, 1))))
        return self.policy(x), self.value(x)[:, 0]


def export(network: nn.Module, spec: azserve.Spec, path: str) -> None:
    """Write a network that takes the environment's one observation array as float32."""
    name, shape = spec.obs[0].name, spec.obs[0].shape
    torch.onnx.export(
        network.eval(),
        (torch.zeros(2, *shape),),
        path,
        input_names=[name],
        output_names=["prior_logits", "value"],
        dynamic_shapes={"board": {0: torch.export.Dim("batch")}},
        dynamo=True,
        external_data=False,
        verbose=False,
    )


def main() -> None:
    """Make a network with random weights and write it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("env", help="a board game, such as ConnectFour-v0")
    parser.add_argument("path", help="the file to write")
    args = parser.parse_args()
    spec = azserve.spec(args.env)
    if len(spec.obs) != 1 or len(spec.obs[0].shape) != 3:
        parser.error(f"{args.env} has no board [rows, cols, planes]")
    network = Network(spec.obs[0].shape, spec.num_actions)
    export(network, spec, args.path)
    weights = sum(math.prod(p.shape) for p in network.parameters())
    print(f"{args.path}: {weights} weights")


if __name__ == "__main__":
    main()
