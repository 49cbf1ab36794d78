"""P2P-Net against published values and a second way to compute them."""

import functools
import itertools

import pytest
import torch
from waves import official, size_of, tiny, wave

from ood_lab.models.fgvc import P2P, P2PNet
from ood_lab.models.fgvc.p2p import P2POutput, PoseMemory, best_orders, peaked_cross_entropy

SMALL = {"crop": 64, "anchor_scale": 0.5, "hidden": 24}
LABEL = torch.tensor([0, 1, 2, 4])


def module(net=None):
    sgd = functools.partial(torch.optim.SGD, lr=0.1)
    return P2P(backbone=net or tiny(P2PNet, **SMALL), optimizer=sgd)


@pytest.mark.parametrize(
    ("peak", "value"), [(0.7, 1.638397), (0.8, 1.622298), (0.9, 1.606200), (1.0, 1.590101)]
)
def test_peaked_cross_entropy(peak, value):
    logits = wave(4, 5, a=0.7)
    loss = float(peaked_cross_entropy(logits, LABEL, peak))
    assert loss == pytest.approx(value, abs=1e-5)
    target = torch.full((4, 5), (1 - peak) / 4).scatter(1, LABEL[:, None], peak)
    assert loss == pytest.approx(float(-(target * logits.log_softmax(1)).sum(1).mean()), abs=1e-5)


def test_losses():
    vectors = [wave(2, 6, a=1.1).requires_grad_() for _ in range(3)]
    outputs = P2POutput(
        logits=wave(2, 5, a=0.5),
        image=[wave(2, 5, a=a) for a in (0.3, 0.5, 0.7, 0.9)],
        parts=[wave(2, 4, 5, a=a) for a in (0.3, 0.5, 0.7, 0.9)],
        scores=wave(2, 4, a=1.3),
        vectors=vectors,
        guesses=[wave(2, 6, a=0.7).requires_grad_() for _ in range(3)],
    )
    label = torch.tensor([1, 3])
    terms = module().losses(outputs, {"label": label})
    assert float(terms["rank"]) == pytest.approx(11.609724, abs=1e-5)
    assert float(terms["guess"]) == pytest.approx(3 * 0.209473, abs=1e-5)
    peaks = (0.7, 0.8, 0.9, 1.0)
    for name, labels in (("image", label), ("parts", label.repeat_interleave(4))):
        stages = zip(getattr(outputs, name), peaks, strict=True)
        expected = sum(peaked_cross_entropy(y.flatten(0, -2), labels, q) for y, q in stages)
        torch.testing.assert_close(terms[name], expected)
    terms["guess"].backward()
    assert vectors[0].grad.abs().sum() > 0  # the targets take part in the gradient


def test_sum_of_the_image_terms():
    net = module()
    outputs = P2POutput(
        wave(4, 5, a=0.7), [wave(4, 5, a=0.7)] * 4, [wave(4, 4, 5, a=0.7)] * 4,
        wave(4, 4, a=0.7), [wave(4, 6, a=0.7)] * 3, [wave(4, 6, a=0.7)] * 3,
    )  # fmt: skip
    terms = net.losses(outputs, {"label": LABEL})
    total = 1.638397 + 1.622298 + 1.606200 + 1.590101
    assert float(terms["image"]) == pytest.approx(total, abs=1e-5)


def test_memory_follows_the_published_sequence():
    memory = PoseMemory(4, 8)
    steps = {
        0.7: ([[0, 1, 2, 3]] * 2, (5.235960, 4.815646, 4.789135, 5.173345)),
        1.3: ([[2, 1, 0, 3], [0, 3, 2, 1]], (5.234670, 4.910680, 4.819835, 5.082799)),
        0.37: ([[1, 0, 3, 2]] * 2, (5.186174, 4.969498, 4.887308, 5.041922)),
    }
    for step, (a, (orders, sums)) in enumerate(steps.items()):
        assert memory(wave(2, 4, 8, a=a).abs()).tolist() == orders
        assert memory.centres.sum(1).tolist() == pytest.approx(sums, abs=1e-5)
        assert memory.count == 2 * (step + 1)
    before = memory.centres.clone()
    memory.eval()
    assert memory(wave(2, 4, 8, a=0.11).abs()).tolist() == [[1, 0, 3, 2], [1, 2, 3, 0]]
    assert memory.count == 6
    assert torch.equal(memory.centres, before)


def test_every_permutation_is_found_again():
    centres = torch.rand(4, 32, generator=torch.Generator().manual_seed(0))
    orders = torch.tensor(list(itertools.permutations(range(4))))
    shuffled = torch.stack([centres[order.argsort()] for order in orders])
    assert best_orders(centres, shuffled).tolist() == orders.tolist()


def test_orders_one_by_one():
    centres, parts = wave(3, 5, a=0.7).abs(), wave(2, 3, 5, a=1.3).abs()

    def similar(v):
        return v @ v.T / (v @ v.T).max()

    def agreement(order, image):
        own, wanted = similar(parts[image]), similar(centres)
        return sum(
            wanted[i, j] * own[order[i], order[j]] for i, j in itertools.product(range(3), repeat=2)
        )

    for image, found in enumerate(best_orders(centres, parts).tolist()):
        tried = itertools.permutations(range(3))
        assert tuple(found) == max(tried, key=lambda order: float(agreement(order, image)))


def test_vectors_without_length_keep_their_order():
    memory = PoseMemory(4, 8)
    assert memory(torch.zeros(2, 4, 8)).tolist() == [[0, 1, 2, 3]] * 2
    assert memory(torch.zeros(2, 4, 8)).tolist() == [[0, 1, 2, 3]] * 2
    assert memory.centres.isfinite().all()


def test_guesses_read_the_parts_in_the_order_of_the_memory():
    net = tiny(P2PNet, **SMALL)
    net.memory.centres.copy_(wave(4, 16, a=0.7).abs())
    net.memory.count.fill_(9)
    net.eval()
    image = wave(2, 3, 128, 128, a=0.7)
    outputs = net.train_outputs(image)
    crops = net.proposals(image, net.trunk(image)[-1]).crops
    pairs = zip(net.convs, net.trunk(crops), strict=True)
    stages = [conv(m).amax((2, 3)).view(2, 4, -1) for conv, m in pairs]
    order = best_orders(net.memory.centres, stages[-1])
    for stage, (guess, parts) in enumerate(zip(net.guess, stages, strict=True)):
        rows = [torch.cat([parts[b, i] for i in order[b]]) for b in range(2)]
        torch.testing.assert_close(outputs.guesses[stage], guess(torch.stack(rows)))
    assert net.memory.count == 9
    torch.testing.assert_close(outputs.logits, net(image).logits)


@pytest.mark.slow
def test_size():
    net = official(P2PNet, crop=32)
    assert size_of(net) == 61_474_677
    assert [size_of(conv) for conv in net.convs] == [4_983_808, 5_245_952, 5_770_240]
    heads = [
        size_of(neck) + size_of(linear)
        for neck, linear in zip(net.necks, net.classifiers, strict=True)
    ]
    assert heads == [630_472] * 3 + [1_683_144]
    assert [size_of(guess) for guess in net.guess] == [5_244_928] * 3
