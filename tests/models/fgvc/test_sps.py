"""Stochastic partial swap against published values."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch.nn import Linear
from waves import official, size_of, tiny, wave

from ood_lab.models.fgvc import SPS, SPSNet
from ood_lab.models.fgvc.sps import Middle, SPSOutput, random_swap, swap

X = torch.arange(24.0).view(3, 8)


def test_swap_of_named_features():
    mask = torch.tensor([1, 0, 0, 1, 0, 0, 0, 1]).bool()
    assert swap(X, mask, torch.tensor([2, 0, 1])).tolist() == [
        [16, 1, 2, 19, 4, 5, 6, 23],
        [0, 9, 10, 3, 12, 13, 14, 7],
        [8, 17, 18, 11, 20, 21, 22, 15],
    ]


def test_swap_of_the_released_draws():
    torch.manual_seed(0)
    swapped = swap(X, torch.rand(8) < 0.389825, torch.tensor([2, 1, 0]))
    assert swapped[0].tolist() == [0, 1, 18, 19, 20, 5, 6, 7]
    assert swapped[1].tolist() == X[1].tolist()


def test_random_swap_takes_a_share_of_the_features():
    torch.manual_seed(0)
    images, width = 6, 4000
    x = torch.arange(images).float()[:, None].expand(images, width)
    shares, orders = [], set()
    for _ in range(40):
        moved = random_swap(x, (0.3, 0.5))
        assert (moved.sort(0).values == x).all()  # nothing is lost, nothing doubled
        changed = (moved != x).any(0)
        if changed.any():
            orders.add(tuple(moved[:, changed][:, 0].tolist()))
            assert (moved[:, changed] == moved[:, changed][:, :1]).all()  # one permutation
            shares.append(float(changed.float().mean()))
    assert 0.27 < min(shares) < 0.34
    assert 0.46 < max(shares) < 0.53
    assert len(orders) > 30


def test_middle_branch():
    middle, linear = Middle(8), Linear(8, 5)
    with torch.no_grad():
        middle.conv.weight.copy_(0.3 * wave(8, 8, 1, 1, a=0.7))
        linear.weight.copy_(0.3 * wave(5, 8, a=1.1))
        middle.conv.bias.zero_()
        linear.bias.zero_()
    logits = linear(middle(wave(3, 8, 4, 4, a=0.9)))
    expected = torch.tensor([0.167666, -0.037066, -0.107538, 0.211513, -0.235575])
    torch.testing.assert_close(logits[0].detach(), expected, rtol=0, atol=1e-5)
    loss = F.cross_entropy(logits, torch.tensor([0, 2, 4]))
    assert float(loss) == pytest.approx(1.683781, abs=1e-5)


def module(**settings):
    net = tiny(SPSNet, size=64, **settings)
    return SPS(backbone=net, optimizer=functools.partial(torch.optim.SGD, lr=0.1))


@pytest.mark.parametrize(("epoch", "reached"), [(0, False), (59, False), (60, True)])
def test_branches_train_the_trunk_from_an_epoch_on(monkeypatch, epoch, reached):
    monkeypatch.setattr(SPS, "current_epoch", epoch)
    sps = module()
    batch = {"image": wave(3, 3, 64, 64, a=0.7), "label": torch.tensor([0, 2, 4])}
    terms = sps.losses(sps.outputs(batch), batch)
    terms["mid"].backward(retain_graph=True)
    trunk = sps.backbone.trunk
    assert (trunk["layer3"][0].conv1.weight.grad is not None) == reached
    assert trunk["layer4"][0].conv1.weight.grad is None
    assert sps.backbone.middle.conv.weight.grad is not None
    terms["high"].backward()
    assert trunk["layer4"][0].conv1.weight.grad is not None


def test_swaps_add_up_without_a_mean():
    logits = [wave(4, 5, a=a) for a in (0.7, 0.9, 1.1, 1.3)]
    label = torch.tensor([0, 1, 2, 4])
    terms = module().losses(SPSOutput(logits[0], logits[0], logits[1:]), {"label": label})
    log_p = [y.log_softmax(1)[torch.arange(4), label].mean() for y in logits]
    torch.testing.assert_close(terms["high"], -log_p[0])
    torch.testing.assert_close(terms["mid"], -sum(log_p[1:]))


def test_outside_training_nothing_is_swapped():
    net = module(swap=(1.0, 1.0)).backbone.eval()
    image = wave(3, 3, 64, 64, a=0.7)
    outputs, tested = net.train_outputs(image), net(image)
    torch.testing.assert_close(outputs.logits, tested.logits)
    assert len(outputs.mid) == 3
    torch.testing.assert_close(outputs.mid[0], outputs.mid[2])
    total = outputs.high + outputs.mid[0]
    torch.testing.assert_close(total, tested.logits)
    net.train()
    assert not torch.allclose(net.train_outputs(image).mid[0], outputs.mid[0], atol=1e-3)


@pytest.mark.slow
def test_size():
    net = official(SPSNet)
    assert size_of(net) == 25_172_432
    assert size_of(net.middle) + size_of(net.classifiers[1]) == 1_254_600
