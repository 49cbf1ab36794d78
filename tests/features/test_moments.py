"""Moments against their definitions in numpy, merged, kept beside a bank, and of two processes."""

import functools
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from bank_extraction import extract
from feature_toys import PRIME, TinyBackbone, TinyImages, make_trainer

from ood_lab.detectors import MDS, NCI, PNML, RMDS, SHE, ViM
from ood_lab.features import moments as module
from ood_lab.features.bank import FeatureBank
from ood_lab.features.moments import MOMENTS, PARTS, Moments

N, D, C = 301, 7, 5


@pytest.fixture
def rows():
    """Far from the origin, one class late, one absent, a tenth without a label."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(N) % (C - 2)
    labels[N // 2 :: 9] = C - 2
    labels[::10] = -1
    centers = 3 * torch.randn(C + 1, D, generator=generator) + 300
    features = centers[labels] + 0.1 * torch.randn(N, D, generator=generator)
    return features, torch.randn(N, C, generator=generator), labels


def gathered(rows, parts=PARTS):
    moments = Moments(parts)
    moments.update(*rows)
    return moments.gathered()


def close(ours, expected):
    assert ours.shape == expected.shape
    scale = np.abs(expected).max()
    np.testing.assert_allclose(ours.numpy(), expected, rtol=1e-9, atol=1e-9 * scale)


def check(moments, rows):
    x, z, y = (each.numpy() for each in rows)
    x = x.astype(np.float64)
    known, right = y >= 0, z.argmax(1) == y
    means = np.stack([x[y == c].mean(0) if (y == c).any() else np.zeros(D) for c in range(C)])
    assert moments.labelled.tolist() == [int((y == c).sum()) for c in range(C)]
    assert moments.right.tolist() == [int((right & (y == c)).sum()) for c in range(C)]
    close(moments.class_means, means)
    for c in np.flatnonzero(moments.right.numpy()):
        close(moments.right_means[c], x[right & (y == c)].mean(0))
    close(moments.mean(), x.mean(0))
    close(moments.mean(labelled=True), x[known].mean(0))
    assert moments.mean_square == pytest.approx((x[known] ** 2).sum(1).mean(), rel=1e-12)
    assert moments.mean_largest == pytest.approx(z.max(1).astype(np.float64).mean(), rel=1e-12)
    away = x[known] - means[y[known]]
    close(moments.within, away.T @ away / known.sum())
    for labelled, of in ((False, x), (True, x[known])):
        for u in (of.mean(0), np.arange(D)):
            expected = (of - u).T @ (of - u) / len(of)
            close(moments.about(torch.from_numpy(u), labelled), expected)
    h = np.hstack([np.ones((N, 1)), x / np.linalg.norm(x, axis=1, keepdims=True)])
    close(moments.gram, h.T @ h / N)


@pytest.mark.parametrize("block", [1, 40, N])
def test_moments_are_their_definitions(rows, monkeypatch, block):
    monkeypatch.setattr(module, "BLOCK_BYTES", 8 * D * block)
    check(gathered(rows), rows)


def test_moments_of_parts_are_merged(rows):
    ends = [0, 3, 100, N]
    parts = [gathered([r[a:b] for r in rows]) for a, b in pairwise(ends)]
    check(functools.reduce(Moments.merged, parts), rows)


def test_labels_beyond_the_classes_of_the_head(rows):
    x, z, y = rows
    more = torch.where(y == 1, C + 3, y)
    moments = Moments(PARTS)
    moments.update(x[:50], z[:50], y[:50])
    moments.update(x[50:], z[50:], more[50:])
    both = torch.cat([y[:50], more[50:]])
    moments.gathered()
    assert moments.labelled.tolist() == both[both >= 0].bincount(minlength=C + 4).tolist()
    close(moments.class_means[C + 3], x[both == C + 3].double().numpy().mean(0))


DETECTORS = (MDS, RMDS, ViM, NCI, SHE, PNML)


def undecided(images):
    """A network that predicts every class now and then."""
    backbone = TinyBackbone().eval()
    with torch.no_grad():
        features = backbone(images.images).features
        logits = features @ backbone.head.weight.T
        backbone.head.weight /= logits.std(0)[:, None]
        backbone.head.bias.copy_(-logits.mean(0) / logits.std(0))
    return backbone


@pytest.mark.parametrize("devices", [1, 2])
def test_an_extraction_gathers_what_fits_read(tmp_path, monkeypatch, devices):
    trainer = make_trainer(devices=devices, strategy="ddp_fork" if devices > 1 else "auto")
    images = TinyImages(200 + PRIME)
    bank = extract(trainer, undecided(images), images, tmp_path, batch_size=16, moments=PARTS)
    plain = FeatureBank(
        bank.features, bank.logits, bank.labels, bank.index, bank.head_weight, bank.head_bias
    )
    folder = tmp_path / bank.record.key
    assert sorted(path.name for path in folder.glob("mom*")) == [MOMENTS]
    expected = {kind: kind().fit(plain).score(plain) for kind in DETECTORS}
    monkeypatch.setattr(Moments, "update", None)  # whoever gathers again fails
    for kind, scores in expected.items():
        ours = kind().fit(bank).score(bank)
        torch.testing.assert_close(ours, scores, rtol=1e-9, atol=1e-9)


def test_an_older_bank_is_gathered_once_and_kept(tmp_path, caplog, monkeypatch):
    def bank():
        return extract(make_trainer(), TinyBackbone(), TinyImages(), tmp_path)

    mean = NCI().fit(bank()).fitted["mean"]
    (file,) = tmp_path.glob(f"*/{MOMENTS}")
    with monkeypatch.context() as patch:
        patch.setattr(Moments, "update", None)
        again = bank()
        assert torch.equal(NCI().fit(again).fitted["mean"], mean)
        with pytest.raises(TypeError):
            MDS().fit(again)
    MDS().fit(bank())  # adds what it needs to what is there
    with monkeypatch.context() as patch:
        patch.setattr(Moments, "update", None)
        MDS().fit(bank())
    content = bytearray(file.read_bytes())
    content[-3] ^= 64
    file.write_bytes(content)
    assert torch.equal(NCI().fit(bank()).fitted["mean"], mean)
    assert "is damaged or of other features: made again" in caplog.text


def test_other_rows_have_moments_of_their_own(rows):
    x, z, y = rows
    bank = FeatureBank(x, z, y, torch.arange(N), torch.randn(C, D), torch.zeros(C))
    mean = NCI().fit(bank).fitted["mean"]
    same = replace(bank, columns={"a": x})
    assert same.derived is bank.derived
    other = replace(bank, features=x + 1)
    assert (NCI().fit(other).fitted["mean"] - mean - 1).abs().max() < 1e-4
    assert torch.equal(bank.rows(y == 0).predictions, bank.predictions[y == 0])
