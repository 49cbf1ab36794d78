"""AKG: reference values, graphs by their explicit states, missing annotations."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor
from tree_toys import (
    BIRDS,
    BRONZE,
    build,
    gradients,
    legal_states,
    module,
    parameters,
    sigmoid_wave,
    wave,
)

from ood_lab.common.errors import UserError
from ood_lab.models.fgvc.akg import AKG, AKGNet, AKGOutput, graph_losses
from ood_lab.models.fgvc.label_tree import Hierarchy

KNOWLEDGE = BRONZE | {"shapes": 29, "attributes": 96}
LEVELS = torch.tensor([[0, 0], [1, 3], [3, 10], [2, 5]])
SHAPES = torch.tensor([0, 28, 7, 13])
POSITIVES = [(0, 5, 95), (10,), (1, 2, 3, 4), (50, 60)]


def attributes() -> Tensor:
    t = torch.zeros(4, 96)
    for row, positives in enumerate(POSITIVES):
        t[row, list(positives)] = 1
    return t


def batch(**changes) -> dict[str, Tensor]:
    known = {"levels": LEVELS, "label": LEVELS[:, 1], "shape": SHAPES, "attributes": attributes()}
    return known | changes


def outputs(**changes) -> AKGOutput:
    out = AKGOutput(
        logits=wave(4, 11, a=0.9),
        features=torch.zeros(4, 8),
        eras=wave(4, 15, a=0.7),
        shapes=wave(4, 29, a=0.5),
        shape_potentials=wave(4, 29, a=1.1),
        attributes=wave(4, 96, a=1.3),
        category=None,
    )
    return out._replace(**changes)


def potentials() -> list[Tensor]:
    sizes = (15, 0.7), (29, 1.1), (96, 1.3)
    return [sigmoid_wave(4, n, a=a).requires_grad_() for n, a in sizes]


def small_net(**labels) -> AKGNet:
    return build(AKGNet, KNOWLEDGE | labels, 11, width=16, embedding=8)


graph = partial(graph_losses, Hierarchy(**BRONZE))


def close(got, expected):
    torch.testing.assert_close(got, torch.as_tensor(expected), atol=1e-5, rtol=0)


def test_reference_losses():
    losses = module(AKG, small_net()).losses(outputs(), batch())
    close(losses["era"], 2.721525)
    close(losses["shape"], 0.1 * 2.920792)
    close(losses["attributes"], 0.1 * 3.433523)
    close(losses["ce"], 2.667834)
    close(losses["shape_focal"] * 1000, 2.998677)
    close(losses["attributes_focal"] * 1000, 16.764063)
    close(sum(losses.values()), 6.044554)


def test_gradients_flow_through_the_weights():
    a, b, d = potentials()
    losses = graph(a, b, d, LEVELS, SHAPES, attributes())
    (by_era,) = torch.autograd.grad(losses["shape"], a, retain_graph=True)
    (by_shape,) = torch.autograd.grad(losses["attributes"], b)
    close(by_era.sum(), -0.093855)
    close(by_shape.sum(), -0.000195)


def test_closed_form_is_the_sum_over_all_states():
    a, b, d = potentials()
    losses = graph(a, b, d, LEVELS, SHAPES, attributes())
    eras = legal_states(**BRONZE)
    era = np.exp(a.detach().double().numpy() @ eras.T)  # [B, 16]
    p_era = (era * eras[:, 4 + LEVELS[:, 1]].T).sum(1) / era.sum(1)
    close(torch.tensor(p_era), torch.tensor([0.066514, 0.068076, 0.052407, 0.078874]).double())

    def on_graph(items: Tensor, chosen: np.ndarray) -> np.ndarray:
        """The share of the states with an item chosen among empty + 16 x K states."""
        each = era[:, :, None] * np.exp(items.detach().double().numpy())[:, None]
        assert each[0].size + 1 in (465, 1537)
        return (each * chosen[:, None]).sum((1, 2)) / (1 + each.sum((1, 2)))

    p_shape = on_graph(b, np.eye(29)[SHAPES])
    p_attribute = on_graph(d, attributes().numpy())
    close(torch.tensor(p_shape), torch.tensor([0.034041, 0.032876, 0.040003, 0.033502]).double())
    close(torch.tensor(p_attribute), torch.tensor([0.02951, 0.009255, 0.043538, 0.0196]).double())
    expected = {
        "era": -np.log(p_era).mean(),
        "shape": -((1 - p_era) ** 2 * np.log(p_shape)).mean(),
        "attributes": -((1 - p_shape) ** 3 * np.log(p_attribute)).mean(),
    }
    for name, value in expected.items():
        close(losses[name].double(), value)


def test_images_without_characteristics_are_left_out():
    a, b, d = potentials()
    t = attributes()
    t[1] = 0
    losses = graph(a, b, d, LEVELS, SHAPES, t)
    kept = torch.tensor([0, 2, 3])
    rest = graph(a[kept], b[kept], d[kept], LEVELS[kept], SHAPES[kept], t[kept])
    close(losses["attributes"], float(rest["attributes"]))
    close(losses["shape"], 2.920792)
    losses["attributes"].backward()
    assert all(bool(x.grad.isfinite().all()) for x in (a, b, d))
    assert not d.grad[1].any()


def test_images_without_shape_are_left_out_and_weigh_one():
    a, b, d = potentials()
    shape = SHAPES.clone()
    shape[2] = -1
    losses = graph(a, b, d, LEVELS, shape, attributes())
    kept = torch.tensor([0, 1, 3])
    rest = graph(a[kept], b[kept], d[kept], LEVELS[kept], SHAPES[kept], attributes()[kept])
    close(losses["shape"], float(rest["shape"]))
    expected = (3 * rest["attributes"] - torch.tensor(0.043538).log()) / 4
    torch.testing.assert_close(losses["attributes"], expected, atol=2e-5, rtol=0)
    focal = module(AKG, small_net()).losses(outputs(), batch(shape=shape))["shape_focal"]
    p = wave(4, 29, a=0.5).softmax(1)[kept, SHAPES[kept]]
    close(focal * 1000, float(-((1 - p) ** 5 * p.log()).mean()))


def test_nothing_annotated_leaves_eras_and_absent_characteristics():
    unknown = batch(shape=torch.full((4,), -1), attributes=torch.zeros(4, 96))
    losses = module(AKG, small_net()).losses(outputs(), unknown)
    assert all(bool(loss.isfinite()) for loss in losses.values())
    assert (
        float(losses["shape"]) == float(losses["attributes"]) == float(losses["shape_focal"]) == 0
    )
    close(losses["era"], 2.721525)


def test_branches_share_the_eras_one_way():
    net = small_net(categories=2).eval()
    image = wave(2, 3, 64, 64, a=0.7)
    with net.capture([*net.level_heads, net.category_head]) as seen:
        logits, features = net(image)
    out = net.train_outputs(image)
    last = net.maps(image)[-1]
    both = (net.coarse_branch(last) + net.fine_branch(last)).relu()
    close(features, both)
    close(logits, net.head(both))
    close(seen["coarse"], net.coarse(both))
    close(out.eras, torch.cat([net.coarse(both), net.fine(both)], dim=1))
    close(seen["category"], out.category)
    branches = net.coarse_branch, net.fine_branch, net.shape_branch, net.attribute_branch
    assert gradients(out.eras[:, :4].sum(), *branches) == [True, False, False, False]
    assert gradients(out.logits.sum(), *branches) == [True, True, False, False]
    assert gradients(out.shape_potentials.sum(), *branches) == [False, False, True, False]
    assert gradients(out.attributes.sum(), *branches) == [False, False, False, True]


def test_the_category_is_one_more_cross_entropy():
    net = small_net(categories=2)
    category = wave(4, 2, a=0.3)
    target = torch.tensor([1, 0, -1, 1])
    losses = module(AKG, net).losses(outputs(category=category), batch(category=target))
    expected = torch.nn.functional.cross_entropy(category[[0, 1, 3]], target[[0, 1, 3]])
    close(losses["category"], float(expected))


def test_half_precision_outputs_give_float32_losses():
    half = AKGOutput(*(None if x is None else x.bfloat16() for x in outputs()))
    rounded = AKGOutput(*(None if x is None else x.float() for x in half))
    model = module(AKG, small_net())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        losses = model.losses(half, batch())
    for name, expected in model.losses(rounded, batch()).items():
        assert losses[name].dtype == torch.float32
        close(losses[name], float(expected))


@pytest.mark.slow
def test_parameters_on_resnet50():
    assert parameters(build(AKGNet, KNOWLEDGE, 11, "resnet50", {})) == 118_027_508


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        (BIRDS | {"shapes": 3, "attributes": 4}, 200, "AKG .* two levels, and the data has 3"),
        (KNOWLEDGE | {"shapes": 0}, 11, "AKG needs a shape"),
    ],
)
def test_refusals(labels, classes, message):
    with pytest.raises(UserError, match=message):
        build(AKGNet, labels, classes)
