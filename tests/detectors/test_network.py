"""Detectors with columns: what the extraction pass computes, and scores read from it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from network_toys import STD, TimmNet, extract, noise
from pytorch_ood.detector import ODIN as PytorchODIN
from torch import Tensor
from torch.nn import functional as F

from ood_lab.common.errors import UserError
from ood_lab.detectors import rankfeat
from ood_lab.detectors.adascale import AdaSCALEA, AdaSCALEL
from ood_lab.detectors.base import DetectorRefusal, check_memory
from ood_lab.detectors.gram import Gram, gram_vectors
from ood_lab.detectors.iodin import IODIN
from ood_lab.detectors.odin import ODIN
from ood_lab.detectors.rankfeat import RankFeat, top_component
from ood_lab.models.backbone import Backbone

# ODIN


def odin_reference(backbone: Backbone, image: Tensor, t: float, epsilon: float) -> Tensor:
    """Image by image, with the cross-entropy as the paper writes it."""
    scores = []
    for one in image.split(1):
        x = one.clone().requires_grad_()
        z = backbone(x).logits / t
        F.cross_entropy(z, z.argmax(1)).backward()
        sigma = torch.tensor(STD).view(3, 1, 1)
        moved = one - epsilon / sigma * torch.where(x.grad >= 0, 1.0, -1.0)
        scores.append(-(backbone(moved).logits.double() / t).softmax(1).amax(1).log())
    return torch.cat(scores).detach()


@pytest.mark.parametrize(("t", "epsilon"), [(1000.0, 0.0014), (10.0, 0.02), (1.0, 0.0)])
def test_odin_equals_two_forwards_image_by_image(tiny, t, epsilon):
    image, detector = noise(12), ODIN(t, epsilon)
    score = detector.score(extract(tiny, image, detector))
    expected = odin_reference(tiny, image, t, epsilon)
    # At T = 1000 scores differ in the fourth digit only, so their spread sets the scale.
    torch.testing.assert_close(score, expected, rtol=0, atol=1e-5 * float(expected.std()))


def test_odin_without_epsilon_moves_nothing(tiny):
    still, moved = ODIN(epsilon=0.0), ODIN(epsilon=0.05)
    bank = extract(tiny, noise(12), still, moved)
    # A step towards the predicted class raises its softmax.
    assert (moved.score(bank) < still.score(bank)).all()


def test_odin_needs_the_deviations_of_the_images(tiny):
    del tiny.data_config["std"]
    with pytest.raises(DetectorRefusal, match=r"std=\[r,g,b\]"):
        ODIN().extraction_hook.layers(tiny)
    assert ODIN(std=STD).extraction_hook.layers(tiny) == []


@pytest.mark.slow
def test_odin_ranks_like_pytorch_ood_given_the_same_std(resnet):
    image, detector = noise(10, 64), ODIN(epsilon=0.02)
    score = detector.score(extract(resnet, image, detector))
    other = PytorchODIN(lambda x: resnet(x).logits.double(), eps=0.02, norm_std=STD)
    torch.testing.assert_close((-score).exp(), -other.predict(image), rtol=2e-7, atol=0)
    without = PytorchODIN(lambda x: resnet(x).logits.double(), eps=0.02).predict(image)
    assert not torch.allclose((-score).exp(), -without, rtol=2e-7, atol=0)
    one, detector = noise(10, 64), ODIN(epsilon=0.02, std=[1, 1, 1])
    score = detector.score(extract(resnet, one, detector))
    torch.testing.assert_close((-score).exp(), -without, rtol=2e-7, atol=0)


def test_odin_keeps_close_images_apart_at_high_temperature(tiny):
    image, detector = noise(1) + 1e-2 * noise(300, seed=2), ODIN(1e6)
    score = detector.score(extract(tiny, image, detector))
    softmax = (tiny(image).logits / 1e6).softmax(1).amax(1)
    assert score.dtype == torch.float64
    assert len(score.unique()) > 290 > 100 * len(softmax.unique())


def test_odin_leaves_image_and_parameters_alone(tiny):
    tiny.requires_grad_(True)
    image, detector = noise(4), ODIN()
    before, key = image.clone(), detector.extraction_hook.key
    column = extract(tiny, image, detector).columns[key]
    assert torch.equal(image, before)
    assert all(p.requires_grad and p.grad is None for p in tiny.parameters())
    assert not column.requires_grad


def test_odin_refuses_by_name(tiny):
    with pytest.raises(UserError, match=r"detector\.odin\.temperature=0"):
        ODIN(temperature=0)
    with pytest.raises(DetectorRefusal, match="odin: the features were extracted without"):
        ODIN(10.0).score(extract(tiny, noise(2), ODIN(20.0)))
    del tiny.data_config["std"]
    with pytest.raises(DetectorRefusal, match=r"detector\.odin\.std"):
        ODIN().extraction_hook.layers(tiny)


# iODIN


def test_iodin_moves_one_element(tiny):
    image, detector = noise(6), IODIN(10.0, 0.05)
    expected = []
    for one in image.split(1):
        x = one.clone().requires_grad_()
        z = tiny(x).logits / 10
        F.cross_entropy(z, z.argmax(1)).backward()
        channel, row, column = np.unravel_index(x.grad.abs().argmax(), x.shape[1:])
        moved = one.clone()
        moved[0, channel, row, column] -= (
            0.05 / STD[channel] * x.grad.sign()[0, channel, row, column]
        )
        expected.append(-(tiny(moved).logits.double() / 10).log_softmax(1).amax())
    score = detector.score(extract(tiny, image, detector))
    torch.testing.assert_close(score, torch.stack(expected), rtol=1e-5, atol=1e-6)


def backward_passes(monkeypatch, backbone: Backbone, *detectors) -> int:
    calls, grad = [], torch.autograd.grad
    monkeypatch.setattr(torch.autograd, "grad", lambda *a, **k: calls.append(1) or grad(*a, **k))
    extract(backbone, noise(4), *detectors)
    return len(calls)


@pytest.mark.parametrize(
    ("detectors", "passes"),
    [
        ([ODIN(), IODIN()], 1),
        ([ODIN(), IODIN(10.0)], 2),
        ([ODIN(), IODIN(), AdaSCALEA(), AdaSCALEL(k2=0)], 2),
    ],
)
def test_equal_directions_share_a_backward_pass(tiny, monkeypatch, detectors, passes):
    assert backward_passes(monkeypatch, tiny, *detectors) == passes


# AdaSCALE


def adascale_reference(backbone: Backbone, image: Tensor, k1: int, k2: int, o: float) -> list:
    """C_o and Q, image by image."""
    found = []
    for one in image.split(1):
        x = one.clone().requires_grad_()
        output = backbone(x)
        output.logits.amax().backward()
        flat = x.grad.flatten()
        weakest = flat.abs().argsort()[: int(len(flat) * o)]
        moved = one.flatten().clone()
        moved[weakest] += 0.5 * flat[weakest].sign()
        f, g = (v.features.detach()[0] for v in (output, backbone(moved.view_as(one))))
        order = f.argsort(descending=True)
        found.append((g.relu()[order[:k1]].sum(), (f - g).abs()[order[:k2]].sum()))
    return torch.tensor(found).double()


@pytest.mark.parametrize("kind", [AdaSCALEA, AdaSCALEL])
def test_adascale_by_loops(tiny, kind):
    # Of 9 features, 50% are 4 and 1% is still one.
    detector = kind(percentiles=(20, 80), k1=50, k2=1, weight=3, o=0.2)
    val, image = noise(40), 1.5 * noise(12, seed=2)
    bank = extract(tiny, image, detector)
    detector.fit(extract(tiny, val, detector))
    fit, own = (adascale_reference(tiny, images, 4, 1, 0.2) for images in (val, image))
    torch.testing.assert_close(
        bank.columns[detector.extraction_hook.key].double(), own, rtol=1e-4, atol=1e-6
    )
    fit, own = fit @ torch.tensor([1.0, 3]).double(), own @ torch.tensor([1.0, 3]).double()
    expected = []
    for value, x, z in zip(own, bank.features.double(), bank.logits.double(), strict=True):
        percent = 20 + (1 - (fit <= value).double().mean()) * 60
        k = max(1, 9 - round(9 * percent.item() / 100))
        r = x.sum() / x.sort(descending=True).values[:k].sum()
        scaled = r**2 * z
        if kind is AdaSCALEA:
            scaled = tiny.head.weight.double() @ (x * r.exp()) + tiny.head.bias.double()
        expected.append(-scaled.logsumexp(0))
    torch.testing.assert_close(detector.score(bank), torch.stack(expected), rtol=1e-6, atol=1e-6)


def test_adascale_keeps_the_shift_of_few_features(tiny):
    columns = {k2: AdaSCALEA(k2=k2) for k2 in (0, 1)}
    bank = extract(tiny, noise(5), *columns.values())
    shift = {k2: bank.columns[d.extraction_hook.key][:, 1] for k2, d in columns.items()}
    assert (shift[0] == 0).all()
    assert (shift[1] > 0).any()
    assert AdaSCALEA().extraction_hook.key == AdaSCALEL().extraction_hook.key


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"percentiles": (85, 75)}, r"adascale_a\.percentiles=\[85, 75\]: give two, the lower"),
        ({"percentiles": (0.7, 85)}, r"percentiles=\(0\.7, 85\): give a percentile from 0"),
        ({"o": 2}, r"o=2: give a number up to 1"),
        ({"k1": 0}, r"k1=0: give a number above 0"),
        ({"k2": -1}, r"k2=-1: give a number from 0 on"),
    ],
)
def test_adascale_refuses_by_key(settings, message):
    with pytest.raises(UserError, match=message):
        AdaSCALEA(**settings)


# Gram


def gram_reference(map_: Tensor, p: int) -> Tensor:
    power = map_.double() ** p
    sums = torch.einsum("bip,bjp->bij", power, power).sum(2)
    return sums.sign() * sums.abs() ** (1 / p)


def test_gram_vectors_equal_the_full_matrix():
    map_, powers = noise(70, 40).flatten(2)[:, :, :900].reshape(70, 9, 300), [1, 2, 5]
    expected = torch.cat([gram_reference(map_, p) for p in powers], dim=1)
    torch.testing.assert_close(gram_vectors(map_, powers).double(), expected, rtol=2e-4, atol=1e-3)


@pytest.mark.parametrize("scale", [5e3, 1e-6])
def test_gram_vectors_stand_large_and_small_activations(scale):
    map_ = scale * torch.rand(3, 8, 50, generator=torch.Generator().manual_seed(0))
    expected = gram_reference(map_, 10)
    assert not torch.isfinite((map_ * 1e3) ** 20).all() or scale < 1
    torch.testing.assert_close(gram_vectors(map_, [10]).double(), expected, rtol=1e-5, atol=0)
    assert torch.equal(gram_vectors(torch.zeros(2, 3, 4), [1, 10]), torch.zeros(2, 6))


def gram_score_reference(
    vectors: list[Tensor], logits: Tensor, kept: Tensor, held: Tensor, test: list[Tensor], z: Tensor
) -> Tensor:
    """Loops over images, layers and channels."""

    def deviation(values: list[Tensor], row: int, logit: Tensor) -> Tensor:
        c, total = logit.argmax(), []
        for layer, fit in zip(values, vectors, strict=True):
            same = fit[kept][logits[kept].argmax(1) == c]
            low, high = same.min(0).values, same.max(0).values
            value = layer[row]
            delta = 0.0
            for g, a, b in zip(value, low, high, strict=True):
                delta += max(a - g, 0) / abs(a + 1e-6) + max(g - b, 0) / abs(b + 1e-6)
            total.append(delta / logit.softmax(0).max())
        return torch.tensor(total, dtype=torch.float64)

    expected = torch.stack([deviation(vectors, i, logits[i]) for i in held.tolist()]).mean(0)
    return torch.stack([(deviation(test, i, z[i]) / expected).sum() for i in range(len(z))])


def test_gram_equals_loops_over_images_and_channels(tiny):
    detector = Gram(layers=["early", "late"], powers=[1, 3], held_out=0.25, seed=3)
    fit, test = noise(60), 1.5 * noise(7, seed=2)
    detector.fit(extract(tiny, fit, detector))
    score = detector.score(extract(tiny, test, detector))

    def vectors(image: Tensor) -> list[Tensor]:
        with tiny.capture(["early", "late"]) as maps, torch.no_grad():
            tiny(image)
        maps = {name: map_.flatten(2) for name, map_ in maps.items()}
        return [torch.cat([gram_reference(maps[k], p) for p in (1, 3)], 1) for k in maps]

    order = torch.randperm(60, generator=torch.Generator().manual_seed(3))
    z_fit, z = tiny(fit).logits.double(), tiny(test).logits.double()
    expected = gram_score_reference(vectors(fit), z_fit, order[15:], order[:15], vectors(test), z)
    assert set(z.argmax(1).tolist()) <= set(z_fit[order[15:]].argmax(1).tolist())
    torch.testing.assert_close(score, expected, rtol=1e-3, atol=1e-6)
    assert (score > 0).any()


def test_gram_finds_layers(tiny, resnet):
    def names(layers: str, backbone: Backbone) -> list[str]:
        return Gram(layers).extraction_hook.layers(backbone)

    assert names("stages", tiny) == ["early", "late"]
    assert names("conv", tiny) == ["stem", "early.0", "late.0"]
    assert names("stages", resnet) == ["net.act1", *(f"net.layer{i}" for i in (1, 2, 3, 4))]
    assert len(names("conv", resnet)) == 20
    vit = TimmNet("vit_tiny_patch16_224", 32, img_size=32, depth=8, embed_dim=24).eval()
    assert names("stages", vit) == [f"net.blocks.{i}" for i in (1, 3, 5, 7)]


def test_gram_takes_tokens_and_channels_last_maps():
    for name, channels in (("vit_tiny_patch16_224", 24 * 4), ("swin_tiny_patch4_window7_224", 24)):
        options = {"img_size": 32, "embed_dim": 24, "depth": 4}
        if name.startswith("swin"):
            options = {"img_size": 64, "embed_dim": 24, "depths": (1, 1), "num_heads": (2, 2)}
            channels += 48
        backbone = TimmNet(name, options["img_size"], **options).eval()
        detector = Gram(powers=[1, 2])
        bank = extract(backbone, noise(20, options["img_size"]), detector)
        column = bank.columns[detector.extraction_hook.key]
        layers = 4 if name.startswith("vit") else 2
        assert column.shape == (20, 2 * channels + layers + 1)
        assert column.shape[1] == detector.extraction_hook.width
        assert detector.fit(bank).score(bank).isfinite().all()


def test_gram_scores_a_class_that_no_fit_image_had(tiny):
    detector = Gram(powers=[1])
    bank = extract(tiny, noise(40), detector)
    bank.logits[:, 2] -= 100  # nothing is predicted as class 2 in the fit split
    detector.fit(bank)
    assert detector.describe()["classes_without_fit_images"] >= 1
    bank.logits[:, 2] += 200
    score = detector.score(bank)
    assert score.isfinite().all()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    assert (score[order[4:]] == 0).all()  # they lie within the range over all fit images


def test_gram_estimates_its_memory(tiny):
    detector = Gram(powers=[1, 2])
    detector.extraction_hook.layers(tiny)
    width = 2 * (6 + 9) + 3
    grown = detector.fit_memory(n=1000, d=9, c=400) - detector.fit_memory(n=0, d=9, c=0)
    assert grown == 4 * width * (2 * 400 + 100)
    with pytest.raises(UserError, match=r"Gram takes .* and 400 classes; .* give fewer layers"):
        check_memory(detector, n=1000, d=9, c=400, limit_bytes=1000)


def test_gram_refuses_by_name(tiny):
    for wrong in ({"powers": []}, {"powers": [0]}, {"powers": [1.5]}, {"held_out": 1.0}):
        with pytest.raises(UserError, match=r"detector\.gram\.(powers|held_out)="):
            Gram(**wrong)
    with pytest.raises(DetectorRefusal, match=r"'layer9' is no sub-module .* maps have: stem"):
        Gram(["layer9"]).extraction_hook.layers(tiny)
    with pytest.raises(DetectorRefusal, match="'head' is no sub-module with a feature map"):
        Gram(["head"]).extraction_hook.layers(tiny)
    with pytest.raises(UserError, match=r"detector\.gram\.layers=stage: give 'stages' or 'conv'"):
        Gram("stage")
    with pytest.raises(DetectorRefusal, match="2 fit images"):
        Gram().fit(extract(tiny, noise(2), Gram()))


# RankFeat


def svd_part(map_: Tensor) -> Tensor:
    u, s, vh = torch.linalg.svd(map_.flatten(2).double(), full_matrices=False)
    part = s[:, :1, None] * u[:, :, :1] * vh[:, :1]
    return part.view(map_.shape)


@pytest.mark.parametrize("shape", [(16, 9, 16), (16, 40, 9)])
@pytest.mark.parametrize("positive", [True, False])
def test_top_component_equals_the_svd(shape, positive):
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    matrix = matrix.relu() if positive else matrix + 0.5 * torch.randn(16, 1, shape[2])
    # Where two singular values nearly meet, the vectors are not defined to any accuracy.
    s = torch.linalg.svdvals(matrix)
    clear = s[:, 1] / s[:, 0] < 0.95
    assert clear.sum() > 5
    a, b = top_component(matrix)
    expected = svd_part(matrix[..., None])[..., 0]
    torch.testing.assert_close(
        (a[:, :, None] * b[:, None]).double()[clear], expected[clear], rtol=0, atol=2e-3
    )
    a, b = top_component(torch.zeros(2, 3, 4))
    assert torch.equal(a[:, :, None] * b[:, None], torch.zeros(2, 3, 4))


def rankfeat_reference(backbone, image, stages, last, fusion) -> Tensor:
    with torch.no_grad(), backbone.capture(stages) as maps:
        backbone(image)
    top, previous = maps[stages[1]], maps[stages[0]]
    z = backbone.head((top - svd_part(top)).float().mean((2, 3)))
    if fusion:
        again = last((previous - svd_part(previous)).float()).mean((2, 3))
        z = (z + backbone.head(again)) / 2
    return -z.double().logsumexp(1)


@pytest.mark.parametrize("fusion", [True, False])
def test_rankfeat_equals_the_svd_and_a_second_forward(tiny, resnet, fusion, monkeypatch):
    monkeypatch.setattr(rankfeat, "SQUARINGS", 9)
    for backbone, size, prefix in ((tiny, 8, ""), (resnet, 64, "net.")):
        stages = [f"{prefix}{s}" for s in (("layer3", "layer4") if prefix else ("early", "late"))]
        image, detector = noise(9, size), RankFeat(fusion=fusion)
        score = detector.score(extract(backbone, image, detector))
        last = backbone.get_submodule(stages[1])
        expected = rankfeat_reference(backbone, image, stages, last, fusion).detach()
        torch.testing.assert_close(score, expected, rtol=0, atol=1e-4)
        assert detector.describe()["stages"] == stages[-2 if fusion else -1 :]


def test_rankfeat_temperature_scales_inside_and_outside(tiny):
    warm = RankFeat(temperature=3.0)
    bank = extract(tiny, noise(5), warm)
    z = bank.columns[warm.extraction_hook.key].double().mean(1)
    torch.testing.assert_close(warm.score(bank), -3 * torch.logsumexp(z / 3, 1))


def test_rankfeat_runs_the_modules_between_siblings():
    backbone = TimmNet("densenet121", 64, block_config=(2, 2, 2, 2), growth_rate=8).eval()
    assert RankFeat().extraction_hook.layers(backbone) == [
        "net.features.denseblock3",
        "net.features.norm5",
    ]


def test_rankfeat_refuses_by_name(tiny):
    vit = TimmNet("vit_tiny_patch16_224", 32, img_size=32, depth=4, embed_dim=24).eval()
    with pytest.raises(DetectorRefusal, match=r"not the spatial mean of 'net\.blocks\.3'"):
        RankFeat().extraction_hook.layers(vit)
    with pytest.raises(DetectorRefusal, match=r"cannot be run on only the output of 'early\.0'"):
        RankFeat(stages=["early.0", "late"]).extraction_hook.layers(tiny)
    assert RankFeat(stages=["stem", "late"]).extraction_hook.layers(tiny) == ["stem", "late"]
    with pytest.raises(DetectorRefusal, match="'layer3' is no sub-module"):
        RankFeat(stages=["layer3", "late"]).extraction_hook.layers(tiny)
    with pytest.raises(DetectorRefusal, match="'late' chooses 1 of 2 layers"):
        RankFeat(stages=["late"]).extraction_hook.layers(tiny)
    assert RankFeat(stages=["late"], fusion=False).extraction_hook.layers(tiny) == ["late"]


# All three


@pytest.mark.parametrize(
    "make",
    [
        IODIN,  # ODIN's gradient, and one of its own
        AdaSCALEA,
        Gram,
        *(pytest.param(each, marks=pytest.mark.slow) for each in (ODIN, AdaSCALEL, RankFeat)),
    ],
)
def test_scores_do_not_depend_on_the_batch(resnet, make):
    image, detector = noise(12, 64), make()
    banks = [extract(resnet, image, detector, batch_size=b) for b in (12, 5, 1)]
    if detector.fit_split:
        # Other images: one ranked among numbers that hold its own would move with its last bit.
        detector.fit(extract(resnet, noise(12, 64, seed=2), detector))
    scores = [detector.score(bank) for bank in banks]
    # Convolutions of another batch size round differently, which can turn a few signs.
    spread = float(scores[0].std())
    torch.testing.assert_close(scores[1], scores[0], rtol=1e-3, atol=1e-2 * spread)
    torch.testing.assert_close(scores[2], scores[0], rtol=1e-3, atol=1e-2 * spread)


def test_columns_share_a_pass_and_half_precision(resnet):
    detectors = [ODIN(epsilon=0.02), Gram(), RankFeat(), ODIN(10.0), IODIN(10.0), AdaSCALEA()]
    image = noise(6, 64)
    together = extract(resnet, image, *detectors)
    for detector in detectors:
        alone = extract(resnet, image, detector)
        key = detector.extraction_hook.key
        torch.testing.assert_close(together.columns[key], alone.columns[key], rtol=1e-4, atol=1e-5)
    with torch.autocast("cpu", torch.bfloat16):
        half = extract(resnet, image, *detectors)
    for detector in detectors:
        value = half.columns[detector.extraction_hook.key]
        assert value.dtype == torch.float32
        assert value.isfinite().all()


def test_finding_layers_leaves_the_backbone_as_it_was(tiny):
    tiny.train()
    tiny.late.eval()
    state = {key: value.clone() for key, value in tiny.state_dict().items()}
    for detector in (ODIN(), Gram(), RankFeat()):
        detector.extraction_hook.layers(tiny)
    assert all(torch.equal(value, state[key]) for key, value in tiny.state_dict().items())
    assert tiny.early.training
    assert not tiny.late.training
