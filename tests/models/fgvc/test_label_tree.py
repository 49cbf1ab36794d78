"""The label tree: states, marginals, losses, refusals."""

import math

import numpy as np
import pytest
import torch
from tree_toys import BRONZE, TOY, legal_states, sigmoid_wave, wave

from ood_lab.models.fgvc.label_tree import Hierarchy

LEVELS = torch.tensor([[0, 0, 0], [1, 2, 4], [0, 1, -1], [1, -1, -1]])  # nodes 5, 9, 3, 1


def toy() -> Hierarchy:
    return Hierarchy(**TOY)


def close(got, expected, atol=1e-5):
    torch.testing.assert_close(got, torch.as_tensor(expected), atol=atol, rtol=0)


def test_nodes_are_numbered_level_by_level():
    tree = toy()
    assert (tree.offsets, tree.nodes) == ([0, 2, 5], 10)
    assert tree.deepest(LEVELS).tolist() == [5, 9, 3, 1]
    assert tree.deepest(torch.tensor([[-1, -1, -1], [-1, 2, -1]])).tolist() == [-1, 4]


def test_reference_values():
    potentials = sigmoid_wave(4, 10, a=0.7)
    log_p, log_z = toy().log_marginals(potentials)
    per_sample = -log_p.gather(1, torch.tensor([[5], [9], [3], [1]])).squeeze(1)
    close(per_sample, [2.034743, 1.936794, 1.589190, 0.996547])
    close(log_z.exp(), [39.493023, 41.943310, 40.689316, 36.860070], atol=2e-5)
    close(log_p[0].exp(), [.570176, .404503, .333320, .195109, .355722,
                           .130714, .116134, .110760, .123660, .144678])  # fmt: skip
    close(toy().loss(potentials, LEVELS), 1.639319)


def test_reference_values_of_the_bronze_tree():
    tree = Hierarchy(**BRONZE)
    potentials = sigmoid_wave(4, 15, a=0.7)
    levels = torch.tensor([[0, 0], [1, 3], [3, 10], [2, -1]])
    assert tree.deepest(levels).tolist() == [4, 7, 14, 2]
    each = [float(tree.loss(potentials[i : i + 1], levels[i : i + 1])) for i in range(4)]
    close(torch.tensor(each), [2.710336, 2.687136, 2.948720, 1.159163])
    close(tree.loss(potentials, levels), 2.376339)


@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("shape", [TOY, {"level_sizes": (3,), "parents": ()}])
def test_marginals_are_sums_over_the_legal_states(shape, scale):
    tree = Hierarchy(**shape)
    states = legal_states(**shape)
    assert len(states) == tree.nodes + 1
    potentials = wave(4, tree.nodes, a=0.9, scale=scale)
    weights = np.exp(potentials.double().numpy() @ states.T)
    z = weights.sum(1)
    log_p, log_z = tree.log_marginals(potentials)
    close(log_p.exp().double(), weights @ states / z[:, None])
    close(log_z.double(), np.log(z), atol=1e-5 * scale)


def test_equal_potentials_count_states():
    zero = torch.zeros(1, 10)
    for levels, expected in ([0, -1, -1], 0.606136), ([0, 0, -1], 1.299283), ([0, 0, 0], 2.397895):
        close(toy().loss(zero, torch.tensor([levels])), expected)


@pytest.mark.parametrize(
    ("shape", "levels", "floor"),
    [
        (TOY, [0, 0, 0], 0.871586),
        (TOY, [0, 1, -1], 0.729526),
        (TOY, [1, -1, -1], 0.497004),
        (BRONZE, [0, 0], 1.251367),
        (BRONZE, [1, 2], 1.315781),
    ],
)
def test_sigmoid_potentials_leave_a_floor(shape, levels, floor):
    tree = Hierarchy(**shape)
    perfect = torch.zeros(1, tree.nodes)
    for offset, label in zip(tree.offsets, levels, strict=True):
        if label >= 0:
            perfect[0, offset + label] = 1.0
    close(tree.loss(perfect, torch.tensor([levels])), floor)


def test_siblings_share_the_probability_of_their_parent():
    p = toy().log_marginals(wave(50, 10, a=0.37, scale=3))[0].exp()
    for parent, children in (0, [2, 3]), (1, [4]), (2, [5, 6]), (3, [7]), (4, [8, 9]):
        assert bool((p[:, children].sum(1) <= p[:, parent] + 1e-6).all())
    assert bool((p[:, [0, 1]].sum(1) <= 1 + 1e-6).all())


def test_extreme_potentials_give_finite_losses_and_gradients():
    potentials = torch.tensor([[-500.0, 500.0] * 5]).requires_grad_()
    loss = toy().loss(potentials, torch.tensor([[0, 0, 0]]))
    loss.backward()
    assert loss.isfinite()
    assert potentials.grad.isfinite().all()


def test_gradient_is_that_of_the_state_sum():
    potentials = wave(4, 10, a=0.9).double().requires_grad_()
    assert torch.autograd.gradcheck(lambda a: toy().loss(a, LEVELS), potentials)


def test_images_without_any_label_do_not_count():
    potentials = sigmoid_wave(4, 10, a=0.7).requires_grad_()
    levels = LEVELS.clone()
    levels[1] = -1
    kept = [0, 2, 3]
    close(toy().loss(potentials, levels), toy().loss(potentials[kept], levels[kept]))
    nothing = toy().loss(potentials, torch.full((4, 3), -1))
    nothing.backward()
    assert float(nothing) == 0
    assert not potentials.grad.any()


def test_half_precision_is_left_at_once():
    potentials = sigmoid_wave(4, 10, a=0.7).bfloat16()
    expected = toy().loss(potentials.float(), LEVELS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = toy().loss(potentials, LEVELS)
    assert got.dtype == torch.float32
    assert math.isclose(float(got), float(expected), abs_tol=1e-6)
