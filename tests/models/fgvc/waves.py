"""Test tensors without random numbers, and networks small enough for tests."""

import math

import torch

TINY = {"layers": [1, 1, 1, 1], "channels": [8, 16, 24, 32]}


def wave(*shape, a):
    """``sin(a k)``, k = 0, 1, 2, ... in row-major order, made in float64."""
    k = torch.arange(math.prod(shape), dtype=torch.float64)
    return torch.sin(a * k).view(shape).float()


def tiny(cls, classes=5, size=128, **settings):
    """The method's network on a very small trunk."""
    return cls("resnet18", classes, kwargs=TINY, input_size=size, **settings)


def official(cls, **settings):
    """The method's network as published for 200 classes; small images, for a quick check."""
    return cls("resnet50", 200, input_size=64, **settings)


def size_of(module):
    """Number of parameters."""
    return sum(p.numel() for p in module.parameters())
