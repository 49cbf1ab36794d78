"""What a detector declares is what it reads; each kind of head serves what the table says."""

import importlib
from dataclasses import replace

import pytest
import torch
from cli import ROOT
from test_contract import CACHED, EVERY, build
from torch import nn

import ood_lab
from ood_lab.common.errors import UserError
from ood_lab.models import exported_backbone
from ood_lab.models.head_kind import WORDS, HeadKind

#: Banks without a part that a detector may read.
WITHOUT = {
    "features": lambda bank: replace(bank, features=bank.features[:, :0]),
    "logits": lambda bank: replace(bank, logits=bank.logits[:, :0]),
    "level": lambda bank: replace(bank, logits=bank.logits.log_softmax(dim=1)),
    # What was worked out from the rows does not know of another head.
    "head": lambda bank: replace(
        bank, head_weight=torch.zeros(0, 0), head_bias=torch.zeros(0), derived=None
    ),
    "labels": lambda bank: replace(bank, labels=torch.full_like(bank.labels, -1)),
    "own_classes": lambda bank: replace(bank, label_classes=bank.num_classes),
}


def scores(name, blobs, part=None):
    change = WITHOUT.get(part, lambda bank: bank)
    detector = build(name)
    if detector.fit_split:
        detector.fit(change(getattr(blobs, detector.fit_split)))
    return detector.score(change(blobs.ood))


@pytest.mark.parametrize("name", CACHED)
def test_a_detector_reads_what_it_declares(name, blobs):
    whole, reads = scores(name, blobs), build(name).reads
    for part in WITHOUT:
        try:
            found = scores(name, blobs, part)
        except (UserError, RuntimeError, IndexError, ValueError, ArithmeticError):
            found = None
        same = found is not None and torch.allclose(found, whole, rtol=1e-4, atol=1e-4)
        # Residual takes the origin of a linear head where there is one; a head gives logits.
        # The patterns of SHE are those of predicted classes where labels name none of the head.
        excepted = {("residual", "head"), ("she", "own_classes")}
        if (name, part) not in excepted and not (part == "logits" and "head" in reads):
            assert same == (part not in reads), part


class Staged(nn.Module):
    """Two stages of maps, their mean, a linear layer with all classes, and what follows it."""

    def __init__(self, last: nn.Module):
        super().__init__()
        self.early = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.late = nn.Sequential(nn.Conv2d(6, 9, 3, stride=2, padding=1), nn.ReLU())
        self.fc = nn.Linear(9, 4)
        self.last = nn.Identity()
        with torch.no_grad():
            self.fc.weight *= 20
            self.fc.bias -= self.eval()(IMAGES).mean(dim=0)
        self.last = last

    def forward(self, image):
        return self.last(self.fc(self.late(self.early(image)).mean(dim=(2, 3))))


IMAGES = torch.randn(160, 3, 8, 8, generator=torch.Generator().manual_seed(1)).abs()


def network(kind, folder):
    """A network of this kind."""
    shares = nn.Sequential(nn.Tanh(), nn.Softmax(dim=1))
    last = {HeadKind.BLACK_BOX: nn.Tanh(), HeadKind.PROBABILITIES: shares}
    torch.manual_seed(0)
    net = Staged(last.get(kind, nn.Identity()))
    if kind == HeadKind.FEATURES:
        net.fc = nn.Identity()
    if kind == HeadKind.LOGITS:
        torch.jit.script(net).save(str(folder / "net.pt"))
        return exported_backbone(folder / "net.pt", num_classes=4, input_size=8, mean=0, std=1)
    return net


def column(kind):
    """Of the table in the docs: by detector what is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "site"))
        made = importlib.import_module("detector_pages").head_kinds()
    head, _, *rows = [line.strip("| ").split(" | ") for line in made.split("\n")]
    return {row[0].strip("`"): row[head.index(kind)] for row in rows}


@pytest.mark.slow
@pytest.mark.parametrize("kind", HeadKind)
def test_the_table_is_what_runs(kind, tmp_path):
    net, table = network(kind, tmp_path), column(kind)
    served = [name for name, cell in table.items() if cell == "✓"]
    head = "none" if kind == HeadKind.FEATURES else None

    def bank(rows, labels=None):
        images, options = IMAGES[rows], {"head": head, "detectors": served}
        if kind == HeadKind.OTHER_CLASSES:
            options["label_classes"] = 5  # one more than the head
        return ood_lab.extract_features(net, images, labels, **options)

    labels = bank(slice(120)).predictions.clamp(min=0)
    labels[::3] = torch.arange(40) % (5 if kind == HeadKind.OTHER_CLASSES else 4)
    train = bank(slice(120), labels)
    assert train.kind == kind
    banks = {"train": train, "val": train, "test": bank(slice(120, 140))}
    far = {"far": bank(slice(140, 160))}
    found = ood_lab.evaluate(**banks, ood=far, detectors=EVERY, n_bootstrap=10)
    assert list(table) == EVERY
    assert sorted(found.skipped) == sorted(set(EVERY) - set(served))
    for name, reason in found.skipped.items():
        missing = table[name].removeprefix("no ").split(", ")
        # Of arrays, what works inside the pass says how a pass is made.
        says = [WORDS.get(part, part) for part in missing] + ["extract_features"]
        assert any(words in reason for words in says), reason
    head = [r for r in found.verdict.remarks if r.startswith(("The head", "The network"))]
    assert len(head) == (kind != HeadKind.LINEAR)
