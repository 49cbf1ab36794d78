"""Anchors, proposals, selection, crops and the ranking loss of NTS-Net and P2P-Net."""

import math

import pytest
import torch
import torch.nn.functional as F
from waves import size_of, wave

from ood_lab.models.fgvc.discriminative_parts import (
    PartProposals,
    ProposalNet,
    anchor_boxes,
    crop,
    rank_loss,
    select,
)

ANCHORS = anchor_boxes(14, 14)  # of 448 pixels


def test_anchors_of_448_pixels():
    padded = ANCHORS + 224
    assert len(padded) == 1614
    assert padded[0].tolist() == [202, 215, 277, 264]
    assert padded[1613].tolist() == [547, 485, 796, 858]
    assert padded.sum(0).tolist() == [647516, 647516, 806246, 806246]


@pytest.mark.parametrize(("side", "count"), [(224, 426), (128, 129), (64, 39)])
def test_number_of_anchors(side, count):
    cells = math.ceil(side / 32)
    assert anchor_boxes(cells, cells).shape == (count, 4)


def test_anchors_of_an_oblong_image_one_by_one():
    rows, columns, scale = 5, 3, 0.35
    expected = []
    for stride, base, powers in ((32, 48, (1, 2)), (64, 96, (1, 2)), (128, 192, (0, 1, 2))):
        for power in powers:
            for ratio in (0.667, 1, 1.5):
                h = scale * base * 2 ** (power / 3) / ratio**0.5
                w = scale * base * 2 ** (power / 3) * ratio**0.5
                for i in range(math.ceil(32 * rows / stride)):
                    for j in range(math.ceil(32 * columns / stride)):
                        y, x = stride * (i + 0.5), stride * (j + 0.5)
                        box = (y - h / 2, x - w / 2, y + h / 2, x + w / 2)
                        expected.append([math.floor(edge) for edge in box])
    assert anchor_boxes(rows, columns, scale).tolist() == expected


def iou(a, b):
    height = min(a[2], b[2]) - max(a[0], b[0])
    width = min(a[3], b[3]) - max(a[1], b[1])
    common = max(height, 0) * max(width, 0)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return common / (sum(areas) - common)


def greedy(boxes, scores, count):
    """Survivors first, then the best of the rest."""
    order = sorted(range(len(boxes)), key=lambda i: -scores[i])
    kept = []
    for i in order:
        if all(iou(boxes[i], boxes[k]) <= 0.25 for k in kept):
            kept.append(i)
    return (kept + [i for i in order if i not in kept])[:count], len(kept)


def test_best_boxes_of_448_pixels():
    scores = torch.stack(
        [wave(1614, a=0.7), wave(1614, a=1.3) * torch.linspace(1, 2, 1614)]
    )  # both at once: images do not suppress each other
    assert select(ANCHORS, scores, 6).tolist() == [
        [1214, 92, 469, 1591, 837, 846],
        [1601, 1572, 1543, 1596, 1514, 1577],
    ]


@pytest.mark.parametrize("cells", [2, 4])
def test_selection_is_greedy_and_fills_up(cells):
    boxes = anchor_boxes(cells, cells)
    scores = torch.randn(3, len(boxes), generator=torch.Generator().manual_seed(cells))
    chosen = select(boxes, scores, 9)
    survivors = []
    for row, values in zip(chosen.tolist(), scores.tolist(), strict=True):
        expected, kept = greedy(boxes.tolist(), values, 9)
        assert row == expected
        survivors.append(kept)
    assert (min(survivors) < 9) == (cells == 2)  # at 64 pixels there are not enough


def test_crops_are_those_of_the_padded_image():
    image = wave(2, 3, 40, 56, a=0.7).requires_grad_()
    boxes = torch.tensor([[[-9, -5, 20, 18], [3, 4, 30, 50]], [[10, 30, 61, 70], [0, 0, 40, 56]]])
    cut = crop(image, boxes, 24)
    assert not cut.requires_grad
    padded = F.pad(image.detach(), (30, 30, 30, 30))
    expected = []
    for b in range(2):
        for y0, x0, y1, x1 in boxes[b].tolist():
            piece = padded[b : b + 1, :, y0 + 30 : y1 + 30, x0 + 30 : x1 + 30]
            options = {"mode": "bilinear", "align_corners": True}
            expected.append(F.interpolate(piece, (24, 24), **options))
    torch.testing.assert_close(cut, torch.cat(expected), rtol=0, atol=1e-5)


def test_rank_loss():
    logits, labels = wave(12, 5, a=0.7), torch.tensor([1, 3]).repeat_interleave(6)
    losses = F.cross_entropy(logits, labels, reduction="none").view(2, 6).requires_grad_()
    scores = wave(2, 6, a=1.3).requires_grad_()
    loss = rank_loss(scores, losses)
    assert loss.item() == pytest.approx(19.379061, abs=1e-5)
    pairs = [
        max(0.0, 1 - scores[b, i].item() + scores[b, j].item())
        for b in range(2) for i in range(6) for j in range(6) if losses[b, j] > losses[b, i]
    ]  # fmt: skip
    assert loss.item() == pytest.approx(sum(pairs) / 2, abs=1e-5)
    loss.backward()
    assert losses.grad is None
    assert scores.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("scores", "losses", "value"),
    [([0, 1, 2], [3, 2, 1], 0), ([2, 1, 0], [3, 2, 1], 7), ([2, 1, 0], [1, 1, 1], 0)],
)
def test_rank_loss_of_three(scores, losses, value):
    assert rank_loss(torch.tensor([scores]).float(), torch.tensor([losses]).float()) == value


def test_proposals_score_anchors_in_their_order():
    net = ProposalNet(8)
    top = wave(2, 8, 5, 3, a=0.7)
    scores = net(top)
    assert scores.shape == (2, len(anchor_boxes(5, 3)))
    # Level 1 has 6 maps of 3 x 2 cells, after 6 of 5 x 3: its scale 1, ratio 2, row 1, column 0.
    index = 6 * 15 + (1 * 3 + 2) * 6 + 1 * 2 + 0
    below = net.down[1](net.down[0](top).relu()).relu()
    torch.testing.assert_close(scores[:, index], net.score[1](below)[:, 5, 1, 0])
    box = anchor_boxes(5, 3)[index].double()
    centre = (box[:2] + box[2:]) / 2
    torch.testing.assert_close(centre, torch.tensor([96.0, 32.0]).double(), rtol=0, atol=1)
    assert size_of(ProposalNet(2048)) == 2_657_301


def test_parts_train_the_proposals_alone():
    proposals = PartProposals(8, 3, 16, 0.35)
    image, top = wave(2, 3, 96, 96, a=0.7), wave(2, 8, 3, 3, a=1.1)
    for tensor in (image, top):
        tensor.requires_grad_()
    parts = proposals(image, top)
    assert parts.crops.shape == (6, 3, 16, 16)
    assert (parts.scores.diff(dim=1) <= 0).all()
    fewer = proposals(image, top, 2)
    torch.testing.assert_close(fewer.scores, parts.scores[:, :2])
    torch.testing.assert_close(fewer.crops[2:], parts.crops[3:5])
    rank_loss(parts.scores, torch.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]])).backward()
    assert image.grad is None
    assert top.grad is None
    assert all(p.grad is not None for p in proposals.parameters())
