"""HRN: reference values of its losses, flow of gradients."""

import pytest
import torch
from tree_toys import (
    BIRDS,
    TOY,
    build,
    gradients,
    legal_states,
    module,
    parameters,
    wave,
)

from ood_lab.models.fgvc.hrn import HRN, HRNNet, HRNOutput

LEVELS = torch.tensor([[0, 0, 0], [1, 2, 4], [0, 1, -1], [1, -1, -1]])


def toy_net(categories: int = 0) -> HRNNet:
    return build(HRNNet, TOY | {"categories": categories}, 5, width=16, embedding=8)


def outputs(category=None):
    features = torch.zeros(4, 8)
    return HRNOutput(wave(4, 5, a=1.1), features, wave(4, 10, a=0.7), category)


def close(got, expected):
    torch.testing.assert_close(got, torch.as_tensor(expected), atol=1e-5, rtol=0)


def test_reference_losses():
    batch = {"levels": LEVELS, "label": LEVELS[:, -1]}
    losses = module(HRN, toy_net()).losses(outputs(), batch)
    close(losses["tree"], 1.639319)
    close(losses["ce"], 2.167226)
    close(sum(losses.values()), 3.806545)


def test_no_known_class_leaves_the_tree_alone():
    levels = LEVELS.clone()
    levels[:, -1] = -1
    out = outputs()
    losses = module(HRN, toy_net()).losses(out, {"levels": levels, "label": levels[:, -1]})
    assert float(losses["ce"]) == 0
    assert float(losses["tree"]) > 0


def test_two_trees_are_their_product():
    """Tree and category: the sum of two losses is the loss on the product of the states."""
    category = wave(4, 2, a=0.3)
    target = torch.tensor([0, 1, 1, 0])
    batch = {"levels": LEVELS, "label": LEVELS[:, -1], "category": target}
    losses = module(HRN, toy_net(2)).losses(outputs(category), batch)
    eras = torch.from_numpy(legal_states(**TOY))
    kinds = torch.from_numpy(legal_states((2,), ()))
    both = torch.cat([eras.repeat_interleave(3, 0), kinds.repeat(len(eras), 1)], dim=1)
    potentials = torch.cat([wave(4, 10, a=0.7), category], dim=1).sigmoid().double()
    weights = (potentials @ both.T).exp()
    nodes, z = torch.tensor([5, 9, 3, 1]), weights.sum(1)
    chosen = both[:, nodes].T * both[:, 10 + target].T
    expected = -((weights * chosen).sum(1) / z).log().mean()
    close((losses["tree"] + losses["category"]).double(), expected)


def test_every_level_adds_to_the_coarser_ones():
    net = toy_net(3).eval()
    image = wave(2, 3, 64, 64, a=0.7)
    with net.capture([*net.level_heads, net.category_head]) as seen:
        logits, features = net(image)
    out = net.train_outputs(image)
    last = net.maps(image)[-1]
    e = [branch(last) for branch in net.branches]
    close(features, (e[0] + e[1] + e[2]).relu())
    close(logits, net.head(features))
    close(seen["heads.0"], net.heads[0](e[0].relu()))
    close(seen["heads.1"], net.heads[1]((e[0] + e[1]).relu()))
    close(torch.cat([*seen.values()], dim=1), torch.cat([out.levels[:, :5], out.category], dim=1))
    assert gradients(out.logits.sum(), *net.branches) == [True, True, True]
    assert gradients(out.levels[:, :2].sum(), *net.branches) == [True, False, False]
    assert gradients(out.category.sum(), *net.branches, net.category_branch) == [False] * 3 + [True]


@pytest.mark.slow
def test_parameters_on_resnet50():
    assert parameters(build(HRNNet, BIRDS, 200, "resnet50", {})) == 94_559_747
