"""Features, network columns and scores from a GPU are those from the CPU."""

import lightning
import pytest
import timm
import torch
from bank_extraction import extract
from torch.utils.data import Dataset
from torchmetrics.functional.classification import binary_auroc

from ood_lab.api.detector_settings import chosen_detectors
from ood_lab.clip import load_clip
from ood_lab.detectors.base import DetectorRefusal, checked_score
from ood_lab.detectors.support.compute_device import computing_on
from ood_lab.models.loading.timm_networks import module_backbone
from ood_lab.prompts import prompt_backbone

pytestmark = pytest.mark.gpu

SIDE, CLASSES = 64, 5
# One pair of images moves an AUROC by 3e-6. ViM leaves 256 dimensions out: more images span some.
SIZES = {"train": 320, "val": 60, "test": 600, "ood": 600}
#: Largest difference of AUROC between devices in float32, and between bfloat16 and float32.
SAME, ROUNDED = 1e-4, 0.05


class Blotches(Dataset):
    """Colours of the class in large blotches under noise; OOD: the blotches are finer."""

    def __init__(self, name: str, n: int, seed: int) -> None:
        self.name, self.identity, self.transform = name, f"{name}/{n}", "in memory"
        generator = torch.Generator().manual_seed(seed)
        ood = name == "ood"
        self.labels = torch.full((n,), -1) if ood else torch.arange(n) % CLASSES
        colours = torch.randn(CLASSES, 3, 1, 1, generator=torch.Generator().manual_seed(0))
        small = torch.randn(n, 3, 16 if ood else 4, 16 if ood else 4, generator=generator)
        noise = torch.randn(n, 3, SIDE, SIDE, generator=generator)
        blotches = torch.nn.functional.interpolate(small, size=(SIDE, SIDE), mode="bilinear")
        self.images = blotches + 0.2 * noise + colours[self.labels % CLASSES] * (not ood)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> dict:
        return {"image": self.images[index], "index": index, "label": int(self.labels[index])}


def detectors():
    """Every detector, with OpenOOD's settings."""
    return chosen_detectors("all", "openood")


@pytest.fixture(scope="module")
def backbone():
    torch.manual_seed(0)
    net = timm.create_model("resnet18", num_classes=CLASSES).eval()
    return module_backbone(
        net, "fc", input_size=SIDE, mean=0.5, std=0.5, allow_transform_mismatch=True
    )


@pytest.fixture(scope="module")
def sets():
    return {name: Blotches(name, n, seed) for seed, (name, n) in enumerate(SIZES.items())}


def make_trainer(kind, precision="32-true"):
    return lightning.Trainer(
        accelerator=kind, devices=1, precision=precision, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def banks(backbone, sets, accelerator, tmp_path_factory):
    """Banks of all sets with the columns of all detectors, on either device."""
    columns = []
    for detector in detectors().values():
        try:
            if detector.extraction_hook is not None:
                detector.extraction_hook.layers(backbone)
                columns.append(detector.extraction_hook)
        except DetectorRefusal:
            continue

    def of(kind, precision="32-true"):
        trainer, root = make_trainer(kind, precision), tmp_path_factory.mktemp("banks")
        return {
            name: extract(trainer, backbone, data, root, columns, batch_size=32)
            for name, data in sets.items()
        }

    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = False
    try:
        yield {"cpu": of("cpu"), "gpu": of(accelerator), "bf16": of(accelerator, "bf16-mixed")}
    finally:
        torch.backends.cudnn.allow_tf32 = before


def scored(detector, banks, device):
    with computing_on(device):
        if detector.fit_split:
            detector.fit(banks[detector.fit_split])
        return [checked_score(detector, banks[name]) for name in ("test", "ood")]


def auroc(detector, banks, device="cpu"):
    scores = scored(detector, banks, device)
    truth = torch.arange(2).repeat_interleave(torch.tensor([len(part) for part in scores]))
    ranks = torch.cat(scores).argsort().argsort()  # in [0, 1] they pass without a sigmoid
    return float(binary_auroc(ranks / len(ranks), truth))


def test_features_and_columns_are_those_of_the_cpu(banks):
    for name, bank in banks["cpu"].items():
        other = banks["gpu"][name]
        torch.testing.assert_close(other.features, bank.features, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(other.logits, bank.logits, rtol=1e-4, atol=1e-4)
        assert torch.equal(other.labels, bank.labels)
        for key, values in bank.columns.items():
            if key.startswith("odin"):
                # A gradient next to 0 may step the other way, on a few pixels.
                torch.testing.assert_close(other.columns[key], values, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", sorted(detectors()))
def test_every_detector_ranks_as_on_the_cpu(banks, device, name):
    """The same features, fitted and scored on either device; then the GPU's features too."""
    try:
        expected = auroc(detectors()[name], banks["cpu"])
    except DetectorRefusal as refusal:
        pytest.skip(str(refusal))
    detector = detectors()[name]
    assert auroc(detector, banks["cpu"], device) == pytest.approx(expected, abs=SAME)
    assert all(value.device.type == "cpu" for value in detector.fitted.values())
    whole = auroc(detectors()[name], banks["gpu"], device)
    assert whole == pytest.approx(expected, abs=SAME)


def test_odin_scores_are_those_of_the_cpu(banks, device):
    """Its column comes from a gradient on the GPU; one next to 0 may step the other way."""
    expected, found = (scored(detectors()["odin"], banks[k], device) for k in ("cpu", "gpu"))
    torch.testing.assert_close(torch.cat(found), torch.cat(expected), rtol=1e-2, atol=1e-2)


def test_a_network_stays_on_its_device(device, accelerator, sets, tmp_path):
    """A user's network is on the GPU already, where a trainer of Lightning would not leave it."""
    torch.manual_seed(0)
    net = timm.create_model("resnet18", num_classes=CLASSES).eval().to(device)
    backbone = module_backbone(
        net, "fc", input_size=SIDE, mean=0.5, std=0.5, allow_transform_mismatch=True
    )
    images = sets["val"].images[:4].to(device)
    with torch.no_grad():
        before = backbone(images).logits
        extract(make_trainer(accelerator), backbone, sets["val"], tmp_path, batch_size=32)
        torch.testing.assert_close(backbone(images).logits, before)
    assert {tensor.device.type for tensor in backbone.state_dict().values()} == {device}


def test_prompts_are_where_their_clip_is(device):
    backbone = prompt_backbone(load_clip("tiny").to(device), ["ding", "gui"], n_outliers=100)
    assert {tensor.device.type for tensor in backbone.state_dict().values()} == {device}


@pytest.mark.parametrize("name", ["msp", "ebo", "knn", "vim", "odin"])
def test_bfloat16_ranks_as_float32(banks, name):
    rounded, whole = (auroc(detectors()[name], banks[kind]) for kind in ("bf16", "gpu"))
    assert rounded == pytest.approx(whole, abs=ROUNDED)
