"""YourFL: reference values, and the one-way flow from fine to coarse."""

import pytest
import torch
from tree_toys import BIRDS, BRONZE, build, module, parameters, wave

from ood_lab.models.fgvc.yourfl import YourFL, YourFLNet, YourFLOutput

LEVELS = torch.tensor([[11, 34, 0], [5, 8, 3], [8, 31, 99], [7, 22, 199]])


def close(got, expected, atol=1e-5):
    torch.testing.assert_close(got, torch.as_tensor(expected), atol=atol, rtol=0)


def bird_net() -> YourFLNet:
    net = build(YourFLNet, BIRDS, 200)
    shapes = [(13, 600, 1.1), (38, 400, 1.3), (200, 200, 1.7)]
    for head, (labels, width, a) in zip(net.heads, shapes, strict=True):
        head.weight.data = wave(labels, width, a=a, scale=0.1)
        head.bias.data.zero_()
    return net


def test_reference_losses_and_gradients():
    net = bird_net()
    v = wave(4, 600, a=0.7).requires_grad_()
    levels = net.levels(v)
    out = YourFLOutput(levels[-1], v[:, 400:], levels, None)
    losses = module(YourFL, net).losses(out, {"levels": LEVELS})
    close(torch.stack(list(losses.values())), [2.591145, 3.610141, 5.270700])
    close(sum(losses.values()), 11.471986)
    expected = [(8.077168, 0, 0), (0, 12.553763, 0), (0, 0, 12.452215)]
    for loss, sums in zip(losses.values(), expected, strict=True):
        (grad,) = torch.autograd.grad(loss, v, retain_graph=True)
        close(torch.stack([g.abs().sum() for g in grad.split(200, dim=1)]), [*map(float, sums)])


def test_a_level_counts_the_images_whose_label_it_knows():
    net = bird_net()
    v = wave(4, 600, a=0.7)
    levels = net.levels(v)
    out = YourFLOutput(levels[-1], v[:, 400:], levels, None)
    unknown = LEVELS.clone()
    unknown[1:, 1] = -1
    unknown[:, 2] = -1
    losses = module(YourFL, net).losses(out, {"levels": unknown})
    alone = torch.nn.functional.cross_entropy(levels[1][:1], LEVELS[:1, 1])
    close(losses["level_1"], float(alone))
    assert float(losses["level_2"]) == 0


def test_features_are_the_finest_chunk_and_the_category_has_its_own():
    net = build(YourFLNet, BRONZE | {"categories": 2}, 11, width=100).eval()
    image = wave(2, 3, 64, 64, a=0.7)
    with net.capture([*net.level_heads, net.category_head]) as seen:
        logits, features = net(image)
    out = net.train_outputs(image)
    v = net.neck(net.maps(image)[-1].amax((2, 3)))
    assert v.shape == (2, 99)  # three chunks of 33
    close(features, v[:, 33:66])
    close(logits, net.head(features))
    close(seen["heads.0"], net.heads[0](v[:, :66]))
    close(seen["category"], net.category(v[:, 66:]))
    grad = torch.autograd.grad(out.category.sum(), net.neck[1].weight, retain_graph=True)[0]
    assert [bool(part.any()) for part in grad.split(33)] == [False, False, True]
    losses = module(YourFL, net).losses(
        out, {"levels": torch.tensor([[0, 0], [1, 3]]), "category": torch.tensor([1, -1])}
    )
    close(losses["category"], -float(out.category[0].log_softmax(0)[1]))


@pytest.mark.slow
def test_parameters_on_resnet50():
    assert parameters(build(YourFLNet, BIRDS, 200, "resnet50", {})) == 24_805_979
