"""Named streams of random numbers."""

import ast
from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import ood_lab
from ood_lab.common.random_streams import stream


@cache
def names_in_use():
    """The name in every call of ``stream`` in the package."""
    return list(calls_of_stream())


def calls_of_stream():
    for path in Path(ood_lab.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Call)
                and getattr(node.func, "id", "") == "stream"
                and node.args
            ):
                yield ast.unparse(node.args[1])  # with its variables, where it has any


def permuted(generator):
    return tuple(generator.permutation(1000))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_no_two_streams_of_a_seed_agree(seed):
    names = names_in_use()
    assert len(names) == len(set(names)) > 3
    numbers = [(), (0,), (0, 0), (1,), (0, 1), (1, 0)]
    drawn = [permuted(stream(seed, name, *some)) for name in names for some in numbers]
    drawn += [permuted(np.random.default_rng(key)) for key in (seed, [seed, 1], [seed, 0, 1])]
    assert all(one != other for one, other in combinations(drawn, 2))


def test_a_stream_is_the_same_again_and_another_for_another_seed():
    assert permuted(stream(3, "a", 4)) == permuted(stream(3, "a", 4))
    assert permuted(stream(3, "a", 4)) != permuted(stream(4, "a", 4))
