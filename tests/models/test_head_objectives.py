"""Objectives with layers of their own: losses, gradients and scores are the formulas."""

from dataclasses import replace

import pytest
import torch
from test_objectives import Linear, step  # noqa: F401 - a fixture
from torch import nn

from ood_lab.common.errors import UserError
from ood_lab.models.objectives.arpl import ARPL
from ood_lab.models.objectives.cider import CIDER
from ood_lab.models.objectives.conf_branch import ConfBranch
from ood_lab.models.objectives.godin import GODIN
from ood_lab.models.objectives.ish import ISH
from ood_lab.models.objectives.mcd import MCD
from ood_lab.models.objectives.mos import MOS
from ood_lab.models.objectives.npos import NPOS
from ood_lab.models.objectives.palm import PALM
from ood_lab.models.objectives.rotpred import RotPred
from ood_lab.models.objectives.udg import UDG


def softmax(f):
    f = f - f.detach().amax(1, keepdim=True)
    return f.exp() / f.exp().sum(1, keepdim=True)


def entropy(p):
    return -(p * p.log()).sum(1)


def picked(p, y):
    """Mean of -log p_y."""
    return -torch.stack([p[i, c] for i, c in enumerate(y.tolist())]).log().mean()


def features(images):
    return images.flatten(1)[:, :6]


def linear(layer, z):
    return z @ layer.weight.T + (0 if layer.bias is None else layer.bias)


def conf_branch(o, s):
    z = features(s.image)
    p, c = softmax(linear(s.backbone.layer, z)), 1 / (1 + (-linear(o.confidence, z)).exp())
    hinted = torch.where(torch.rand(len(z), 1, dtype=z.dtype) < 0.5, c, torch.ones_like(c))
    mixed = hinted * p + (1 - hinted) * torch.eye(4)[s.label]
    return picked(mixed, s.label) - 0.1 * c.log().mean()


def rotpred(o, s):
    turned = [torch.rot90(s.image, k, [2, 3]) for k in range(4)]
    total = picked(softmax(linear(s.backbone.layer, features(s.image))), s.label)
    for k, image in enumerate(turned):
        total = total - softmax(linear(o.turn, features(image)))[:, k].log().mean() / 4
    return total


def godin(o, s):
    z, w = features(s.image), o.h.weight
    h = {
        "cosine": (z / (z.norm(dim=1)[:, None] + 1e-4)) @ (w / (w.norm(dim=1)[:, None] + 1e-4)).T,
        "inner": linear(o.h, z),
        "euclid": -torch.stack([(z - row).square().mean(1) for row in w], 1),
    }[o.similarity]
    scale = linear(o.g[0], z)
    variance = scale.var(unbiased=False) + o.g[1].eps
    norm = (scale - scale.mean()) / variance.sqrt() * o.g[1].weight + o.g[1].bias
    return picked(softmax(h * (1 + (-norm).exp())), s.label)


def arpl(o, s):
    z = features(s.image)
    square = torch.stack([(z - p).square().sum(1) / 6 for p in o.points], 1)
    f = square - torch.stack([(z * p).sum(1) for p in o.points], 1)
    of_class = square[range(len(z)), s.label]
    margin = nn.MarginRankingLoss(margin=1.0)
    return picked(softmax(f), s.label) + 0.1 * margin(o.radius, of_class, torch.ones_like(of_class))


def mcd(o, s):
    heads = (s.backbone.layer, o.second)
    inside = [softmax(linear(head, features(s.image))) for head in heads]
    outside = [entropy(softmax(linear(head, features(s.outliers)))) for head in heads]
    gap = 1.2 - (outside[0] - outside[1]).mean()
    return sum(picked(p, s.label) for p in inside) + max(gap, 0 * gap)


def mos(o, s):
    f, total = linear(o.layer, features(s.image)), 0
    for k, group in enumerate(o.groups):
        p = softmax(f[:, [*group, 4 + k]])
        places = [group.index(c) if c in group else len(group) for c in s.label.tolist()]
        total = total + picked(p, torch.tensor(places))
    return total


def unit(rows):
    return rows / rows.norm(dim=-1, keepdim=True)


def projections(o, s):
    """Features, projections and labels of both views; prototypes get values."""
    h = torch.cat([features(s.image), features(s.views[:, 0])])
    hidden = linear(o.project[0], h)
    z = unit(linear(o.project[2], hidden * (hidden > 0)))
    noise = torch.randn(o.prototypes.shape, generator=torch.Generator().manual_seed(0))
    o.prototypes.copy_(unit(noise))
    return h, z, [*s.label.tolist(), *s.label.tolist()]


def cider(o, s):
    _, z, y = projections(o, s)
    mu = list(o.prototypes.clone())
    for row, c in zip(z, y, strict=True):
        mu[c] = unit(0.95 * mu[c] + 0.05 * row)
    mu = torch.stack(mu)
    spread = [(mu[[k for k in range(4) if k != c]] @ mu[c] / 0.1).exp().mean() for c in range(4)]
    near = picked(softmax(z @ mu.detach().T / 0.1), torch.tensor(y))
    return o.compact * near + o.disperse * torch.stack(spread).log().mean()


def npos(o, s):
    h, _, _ = projections(o, s)
    generator = torch.Generator().manual_seed(48)  # no two radii are equal
    o.queues.features.copy_(torch.randn(o.queues.features.shape, generator=generator))
    o.queues.count.fill_(9)
    virtual = []
    for rows in o.queues.features:

        def radius(row, rows=rows):
            return (unit(row) - unit(rows)).norm(dim=1).sort().values[2]

        border = sorted(rows, key=radius, reverse=True)[:4]
        for i in torch.randperm(4).tolist()[:2]:
            candidates = border[i] + 0.1 * torch.randn(6, 6, dtype=rows.dtype)
            virtual += sorted(candidates, key=radius, reverse=True)[:2]
    hidden = linear(o.inside[0], torch.cat([h, torch.stack(virtual)]))
    g = linear(o.inside[2], hidden * (hidden > 0))[:, 0]
    signs = torch.tensor([1] * 12 + [-1] * 16)
    return cider(o, s) + 0.1 * (1 + (-signs * g).exp()).log().mean()


def palm(o, s):
    _, z, y = projections(o, s)
    allowed = torch.tensor([[j // 3 == c for j in range(12)] for c in y])

    def assignments(p):
        q = (z.detach() @ p.T / 0.05).exp()
        for _ in range(3):
            q = q / q.sum(0) / 12
            q = q / q.sum(1, keepdim=True) / 12
        q = q * allowed
        q = q * (q >= q.sort(descending=True).values[:, 1:2])
        return q / q.sum(1, keepdim=True)

    share = assignments(o.prototypes)
    share = share / share.sum(0).clamp(min=1e-12)
    p = unit(0.999 * o.prototypes.clone() + 0.001 * share.T @ z)
    similar = softmax(z @ p.detach().T / 0.1).log()
    total = -(assignments(p.detach()) * similar).sum(1).mean()
    for j in range(12):
        others = [k for k in range(12) if k != j]
        mates = [others.index(k) for k in others if k // 3 == j // 3]
        total = total - softmax(p[None, j] @ p[others].T / 0.5)[0, mates].log().mean() / 12
    return total


CASES = {
    "conf_branch": (ConfBranch(), conf_branch),
    "rotpred": (RotPred(), rotpred),
    "godin": (GODIN(), godin),
    "godin inner": (GODIN("inner"), godin),
    "godin euclid": (GODIN("euclid"), godin),
    "arpl": (ARPL(), arpl),
    "mcd": (MCD(start=0), mcd),
    "mos": (MOS([[0, 2], [3, 1]]), mos),
    "cider": (CIDER(), cider),
    "npos": (NPOS(start=0, queue=5, k=3, boundary=4, draws=6, keep=2), npos),
    "palm": (PALM(prototypes_per_class=3, assigned=2), palm),
}


def attached(objective, s):
    objective.attach(s.backbone)
    objective.double()
    return objective


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_the_formula(name, step):  # noqa: F811
    objective, formula = CASES[name]
    attached(objective, step)
    step.image.requires_grad_()
    if objective.views > 1:
        step = replace(step, views=step.outliers[:, None])
    torch.manual_seed(3)
    expected = formula(objective, step)
    torch.manual_seed(3)
    got = sum(objective(step).terms.values())
    inputs = [step.image, *(p for p in step.backbone.parameters() if p.requires_grad)]
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6)
    gradients = (torch.autograd.grad(total, inputs, allow_unused=True) for total in (got, expected))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)


def test_own_scores(step):  # noqa: F811
    z, f = features(step.image), linear(step.backbone.layer, features(step.image))

    def score(objective):
        objective = attached(objective, step)
        with torch.no_grad():
            output = step.backbone(step.image)
            return objective, objective.score(step.backbone, step.image, output)

    o, got = score(ConfBranch())
    torch.testing.assert_close(got, -1 / (1 + (-linear(o.confidence, z)[:, 0]).exp()))
    o, got = score(MCD())
    torch.testing.assert_close(got, (softmax(f) - softmax(linear(o.second, z))).abs().sum(1))
    o, got = score(RotPred())
    of_class = (torch.full_like(f, 1 / 4) * (torch.tensor(1 / 4) / softmax(f)).log()).sum(1)
    turned = [features(torch.rot90(step.image, k, [2, 3])) for k in range(4)]
    turns = -torch.stack([softmax(linear(o.turn, t))[:, k].log() for k, t in enumerate(turned)])
    torch.testing.assert_close(got, turns.mean(0) - of_class)
    o, got = score(MOS(2))
    others = [softmax(linear(o.layer, z)[:, cs])[:, -1] for cs in ([0, 1, 4], [2, 3, 5])]
    torch.testing.assert_close(got, torch.stack(others).amin(0))
    o, got = score(ARPL())
    torch.testing.assert_close(got, -step.backbone(step.image).logits.amax(1))
    assert step.backbone.head is None


def test_the_weight_of_hints_leads_to_the_budget(step):  # noqa: F811
    objective = attached(ConfBranch(budget=1e9), step)
    objective(step)
    assert objective.current.item() == pytest.approx(0.1 / 1.01)
    objective.budget = 1e-9
    objective(step)
    assert objective.current.item() == pytest.approx(0.1 / 1.01 / 0.99)


@pytest.mark.parametrize("prune", [False, True])
def test_ish_changes_only_the_gradient_of_the_head(step, prune):  # noqa: F811
    head = attached(ISH(percentile=50, prune=prune), step) and step.backbone.layer
    z = features(step.image)
    total = sum(ISH(percentile=50, prune=prune)(step).terms.values())
    f = linear(head, z)
    torch.testing.assert_close(total, picked(softmax(f), step.label))
    at_logits = (softmax(f) - torch.eye(4)[step.label]) / len(z)
    rows = []
    for row in z:
        top = row.abs().argsort(descending=True)[:3]
        kept = torch.zeros_like(row)
        kept[top] = row[top].abs()
        rows.append((kept if prune else row) * (row.sum() / row[top].abs().sum()).exp())
    weight, bias = torch.autograd.grad(total, [head.weight, head.bias])
    torch.testing.assert_close(weight, at_logits.T @ torch.stack(rows))
    torch.testing.assert_close(bias, at_logits.sum(0))


def test_udg_takes_unlabelled_images_of_pure_clusters_for_id(step):  # noqa: F811
    torch.manual_seed(0)
    objective = attached(UDG(clusters=3, dimensions=6, memory=300), step)
    centres = 50 * torch.eye(6)[:3].double()
    of_cluster = torch.arange(300) % 3
    rows = centres[of_cluster] + torch.randn(300, 6).double()
    # Of cluster 0 nine in ten are of class 2; cluster 1 is mixed; cluster 2 is unlabelled.
    label = torch.where(of_cluster == 0, 2, torch.where(of_cluster == 1, torch.arange(300) % 2, -1))
    label[0:30:3] = -1
    objective.remember(rows, label)
    objective.cluster(0.5)
    found = torch.cdist(objective.reduced(centres), objective.centres).argmin(1)
    assert objective.majority[found].tolist() == [2, -1, -1]
    torch.testing.assert_close(objective.balance, torch.ones(3).double())
    outliers = torch.zeros_like(step.outliers)
    outliers.flatten(1)[:, :6] = centres[[0, 1, 2, 0, 1, 2]]
    now = replace(step, outliers=outliers, progress=0.5)
    terms = objective(now).terms
    p, q = (softmax(linear(step.backbone.layer, features(x))) for x in (step.image, outliers))
    taken = torch.cat([p, q[[0, 3]]]), torch.cat([step.label, torch.tensor([2, 2])])
    torch.testing.assert_close(terms["ce"], picked(*taken))
    torch.testing.assert_close(terms["exposure"], -0.5 * q[[1, 2, 4, 5]].log().mean())
    torch.testing.assert_close(
        terms["clusters"], torch.tensor(0.1).double() * torch.tensor(3).log()
    )


def test_networks_that_cannot_be_trained_so(step):  # noqa: F811
    step.backbone.data_config = {"input_size": (3, 4, 8)}
    with pytest.raises(UserError, match="reads 8 x 4"):
        RotPred().attach(step.backbone)
    with pytest.raises(UserError, match="3 is in one group"):
        MOS([[0, 1], [1, 2, 3]]).attach(step.backbone)
    with pytest.raises(UserError, match="none is empty"):
        MOS(5).attach(step.backbone)
    step.backbone.differentiable = False
    with pytest.raises(UserError, match="trains features, which linear has fixed"):
        CIDER().attach(step.backbone)
    step.backbone.head, step.backbone.widths = None, (0, 4)
    for objective in (ARPL(), ConfBranch(), GODIN(), MCD(), MOS(2), UDG()):
        with pytest.raises(UserError, match="needs features, which linear does not have"):
            objective.attach(step.backbone)
    godin = attached(GODIN("inner"), replace(step, backbone=Linear()))
    assert {id(p) for p in godin.undecayed()} == {id(godin.h.weight), id(godin.h.bias)}
