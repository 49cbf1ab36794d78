"""Training under bf16-mixed, the neighbour search, and what happens where memory runs out."""

from pathlib import Path

import lightning
import pytest
import timm
import torch
from bank_extraction import extract
from cli import call

from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.detectors import checked_score
from ood_lab.detectors.support.compute_device import computing_on
from ood_lab.features.bank import FeatureBank
from ood_lab.models.loading.timm_networks import module_backbone
from ood_lab.neighbours import NeighbourSearch, exact_search

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]
MODELS = ("resnet10s", "nts", "sps", "p2p", "yourfl", "hrn", "akg")
PROMPTS = ("coop", "locoop", "idlike")  # CLIPN's weights are given, not trained
CHOICES = [*(f"model={name}" for name in MODELS), *(f"prompt={name}" for name in PROMPTS)]


@pytest.mark.parametrize("choice", CHOICES)
def test_every_method_trains_and_scores_in_bfloat16(choice, accelerator, tmp_path):
    """Two batches of every set and one epoch through the real script."""
    line = [choice, "debug=true", "logger=none", "detector=[]", f"paths.outputs={tmp_path}"]
    line += [f"trainer.accelerator={accelerator}", "trainer.precision=bf16-mixed"]
    if choice.startswith("model"):
        line[3] = "detector=[msp,odin]"
    assert call("train.py", *line) == 0
    assert list(tmp_path.rglob("results.csv"))  # a debug run is not marked as finished


@pytest.mark.parametrize("k", [1, 50, 1000])
def test_the_neighbour_search_is_exact(device, k):
    generator = torch.Generator().manual_seed(0)
    bank, queries = (torch.randn(n, 64, generator=generator) for n in (60_000, 300))
    found = NeighbourSearch(bank, k, device=device).product(queries)
    expected = (queries.double() @ bank.double().T).kthvalue(len(bank) - k + 1, dim=1).values
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


def test_a_bank_larger_than_the_gpu_is_searched_in_blocks(device, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    bank, queries = (torch.randn(n, 64, generator=generator) for n in (60_000, 300))
    monkeypatch.setattr(exact_search, "_fits", lambda *_: False)
    found = NeighbourSearch(bank, 50, device=device).product(queries)
    expected = (queries.double() @ bank.double().T).kthvalue(len(bank) - 49, dim=1).values
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    "name", ["dice", "fdbd", "mds", "nnguide", "openmax", "rmds", "she", "vim"]
)
def test_detectors_stay_below_a_limit_of_memory(device, name):
    """1 GiB for a bank of 3.1: blocks travel, and what is learned."""
    if device != "cuda":
        pytest.skip("only a GPU has a limit that can be set")
    generator = torch.Generator().manual_seed(0)
    n, d, classes = 400_000, 2048, 100
    weight, labels = torch.randn(classes, d, generator=generator) / d**0.5, torch.arange(n) % 100
    features = torch.randn(n, d, generator=generator).add_(10 * weight[labels]).relu_()
    logits = features @ weight.T
    bank = FeatureBank(features, logits, labels, torch.arange(n), weight, torch.zeros(classes))
    detector = chosen_detectors([name], "openood")[name]
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    with computing_on(device):
        checked_score(detector.fit(bank), bank.rows(torch.arange(10_000)))
    assert torch.cuda.max_memory_allocated() <= 2**30


class Noise(torch.utils.data.Dataset):
    name, identity, transform = "noise", "noise", "in memory"

    def __len__(self):
        return 512

    def __getitem__(self, index):
        image = torch.randn(3, 224, 224, generator=torch.Generator().manual_seed(index))
        return {"image": image, "index": index, "label": 0}


def test_extraction_stays_below_a_limit_of_memory(device, accelerator, tmp_path):
    """What does not fit is halved: 4 GiB for batches of 512, which would take 8."""
    if device != "cuda":
        pytest.skip("only a GPU has a limit that can be set")
    limit = 4 * 2**30
    torch.manual_seed(0)
    net = timm.create_model("resnet50", num_classes=10)
    backbone = module_backbone(
        net, "fc", input_size=224, mean=0.5, std=0.5, allow_transform_mismatch=True
    )
    trainer = lightning.Trainer(
        accelerator=accelerator, devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.set_per_process_memory_fraction(limit / total)
    try:
        bank = extract(trainer, backbone, Noise(), tmp_path, batch_size=512)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert len(bank) == 512
    assert torch.cuda.max_memory_allocated() <= limit
