"""Deterministic tensors, label trees and small networks for the tests of tree methods."""

import functools
import itertools

import numpy as np
import torch

SMALL = {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}  # a resnet18 of 15,000 weights
ERAS = (0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3)  # of the eleven periods
BIRDS = {
    "level_sizes": (13, 38, 200),
    "parents": ([i % 13 for i in range(38)], [i % 38 for i in range(200)]),
}
TOY = {"level_sizes": (2, 3, 5), "parents": ((0, 0, 1), (0, 0, 1, 2, 2))}
BRONZE = {"level_sizes": (4, 11), "parents": (ERAS,)}


def wave(*shape: int, a: float, scale: float = 1.0) -> torch.Tensor:
    """sin(a k) for k = 0, 1, ... in row-major order."""
    values = scale * np.sin(a * np.arange(np.prod(shape)))
    return torch.from_numpy(values.reshape(shape)).float()


def sigmoid_wave(*shape: int, a: float) -> torch.Tensor:
    values = 1 / (1 + np.exp(-np.sin(a * np.arange(np.prod(shape)))))
    return torch.from_numpy(values.reshape(shape)).float()


def legal_states(level_sizes: tuple[int, ...], parents: tuple) -> np.ndarray:
    """All legal subsets of nodes by definition: with its parent, without its siblings."""
    sizes = list(level_sizes)
    first = np.cumsum([0, *sizes])
    parent = {
        int(first[level]) + i: int(first[level - 1]) + p
        for level, above in enumerate(parents, start=1)
        for i, p in enumerate(above)
    }
    states = []
    for state in itertools.product((0, 1), repeat=sum(sizes)):
        on = [node for node, bit in enumerate(state) if bit]
        ups = [parent.get(node) for node in on]
        if len(set(ups)) == len(ups) and all(up is None or state[up] for up in ups):
            states.append(state)
    return np.array(states, dtype=float)


def build(net_class, labels, classes, trunk="resnet18", kwargs=SMALL, **settings):
    """A small network of a method with its transform at 64 pixels."""
    torch.manual_seed(0)
    return net_class(
        trunk, num_classes=classes, labels=labels, kwargs=kwargs,
        input_size=64, mean=0.5, std=0.5, crop_pct=1.0, **settings,
    )  # fmt: skip


def module(module_class, net, **settings):
    """The training module of a network, with plain SGD."""
    sgd = functools.partial(torch.optim.SGD, lr=0.01)
    return module_class(backbone=net, optimizer=sgd, **settings)


def parameters(net: torch.nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


def gradients(loss: torch.Tensor, *modules: torch.nn.Module) -> list[bool]:
    """Which of the modules a loss gives a gradient other than zero."""
    loss.backward(retain_graph=True)
    found = [
        any(p.grad is not None and bool(p.grad.any()) for p in part.parameters())
        for part in modules
    ]
    for part in modules:
        part.zero_grad()
    return found
