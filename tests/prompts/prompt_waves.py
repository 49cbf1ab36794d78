"""The numbers that the reference values were computed from."""

import math

import torch


def sines(shape, a, b, scale=1.0):
    """``scale · sin(a k + b)``, k = 0, 1, ..., computed in float64, given in float32."""
    k = torch.arange(math.prod(shape), dtype=torch.float64)
    return (scale * torch.sin(a * k + b)).float().reshape(shape)


def cosines(shape, a, b, scale=1.0):
    """The same with the cosine."""
    return sines(shape, a, b + math.pi / 2, scale)
