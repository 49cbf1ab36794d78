"""A network and a detector as an ONNX file: the scores are PyTorch's, or one line says why not."""

import json

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from tiny_net import TinyNet
from torch import nn

import ood_lab
from ood_lab.common.errors import UserError
from ood_lab.detectors import MSP, CalibratedDetector, Detector
from ood_lab.models import exported_backbone
from ood_lab.models.loading.headless_networks import nearest_mean_head
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.scripts import CONF

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

#: Those that read more than one pass gives, or use what ONNX does not have.
OTHERS = {
    **dict.fromkeys(["adascale_a", "adascale_l", "gram", "iodin"], "gradients or inner layers"),
    **dict.fromkeys(["mds_ensemble", "odin", "rankfeat"], "gradients or inner layers"),
    **dict.fromkeys(["cfood", "openmax"], "PyTorch makes no ONNX graph of it"),
}


@pytest.fixture(scope="module")
def images():
    """Three colours, with noise."""
    labels = torch.arange(600) % 3
    noise = torch.randn(600, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    return noise + 2 * nn.functional.one_hot(labels)[:, :, None, None], labels


@pytest.fixture(scope="module")
def net(images):
    """It knows the colours."""
    net = TinyNet().eval()
    with torch.no_grad():
        features = net.conv(images[0]).relu().mean((2, 3))
    weight, bias = nearest_mean_head(features, images[1], 3)
    net.fc.weight.data, net.fc.bias.data = 20 * weight.float(), 20 * bias.float()
    return net


@pytest.fixture(scope="module")
def detectors():
    register_resolvers()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        nodes = OmegaConf.to_container(compose("eval", ["detector=all"]).detector, resolve=True)
    found = {name: instantiate(node, _convert_="all") for name, node in nodes.items()}
    for name, detector in found.items():
        detector.name = name
    return found


def calibrated(detector, bank):
    scores = detector.fit(bank).score(bank)
    facts = {"weights_sha256": "a" * 64, "transform": "none", "classes": ["r", "g", "青"]}
    return CalibratedDetector.of(detector, scores, 0.05, **facts)


@pytest.mark.parametrize("name", OmegaConf.load(CONF / "detector" / "all.yaml").defaults)
def test_the_graph_gives_the_scores_of_the_detector(name, net, images, detectors, tmp_path):
    detector, file = detectors[name], tmp_path / "it.onnx"
    new = images[0].roll(1, dims=1) * torch.linspace(0.2, 3, 600)[:, None, None, None]
    hook = detector.extraction_hook
    if hook is not None and not hook.traceable:
        held = CalibratedDetector(detector, torch.arange(50.0), 0.05, [], "", "")
        with pytest.raises(UserError, match=f"{name} .*{OTHERS[name]}"):
            ood_lab.export_onnx(file, held, net, new[:5])
        return
    inside = {name: detector} if hook else ()
    held = calibrated(detector, ood_lab.extract_features(net, *images, detectors=inside))
    if name in OTHERS:
        with pytest.raises(UserError, match=f"{name} .*{OTHERS[name]}"):
            ood_lab.export_onnx(file, held, net, new[:5])
        assert not file.exists()
        return
    ood_lab.export_onnx(file, held, net, new[:1])
    session = onnxruntime.InferenceSession(file)
    logits, scores = session.run(["logits", "score"], {"image": new.numpy()})
    bank = ood_lab.extract_features(net, new, detectors=inside)
    torch.testing.assert_close(torch.from_numpy(logits), bank.logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.from_numpy(scores), held.score(bank), rtol=1e-4, atol=1e-4)
    facts = session.get_modelmeta().custom_metadata_map
    assert (float(facts["threshold"]), facts["alpha"]) == (held.threshold, "0.05")
    assert json.loads(facts["classes"]) == ["r", "g", "青"]
    assert facts["detector"].startswith(f"{name} ")


class OfTheBatch(Detector):
    """What no graph for any number of images gives: its batch decides."""

    name = "mine"

    def score(self, bank):
        return bank.features[:, 0].double() - float(bank.features.mean())

    def describe(self):
        return {}


def test_a_graph_with_other_scores_is_refused(net, images, tmp_path):
    held = calibrated(OfTheBatch(), ood_lab.extract_features(net, *images))
    with pytest.raises(UserError, match=r"its score .* by up to \d+% of their spread"):
        ood_lab.export_onnx(tmp_path / "it.onnx", held, net, images[0][:50])
    assert not (tmp_path / "it.onnx").exists()


class OfTheTracedClass(Detector):
    """Right for the class of the traced images alone; all scores are far from 0."""

    name = "mine"

    def score(self, bank):
        own = bank.logits.argmax(dim=1)
        steps = sum(0.01 * (c + 1) * (own == c).double() for c in set(own.tolist()))
        return 1000 + steps + 0.001 * bank.features[:, 0].double()

    def describe(self):
        return {}


def test_images_of_one_class_are_varied(net, images, tmp_path):
    bank = ood_lab.extract_features(net, *images)
    held = calibrated(OfTheTracedClass(), bank)
    alike = images[0][bank.logits.argmax(dim=1) == 1][:8]
    with pytest.raises(UserError, match=r"differs from PyTorch's by up to \d+% of their spread"):
        ood_lab.export_onnx(tmp_path / "it.onnx", held, net, alike)


def test_the_largest_deviation_is_said(net, images, tmp_path, caplog):
    held = calibrated(MSP(), ood_lab.extract_features(net, *images))
    with caplog.at_level("INFO"):
        ood_lab.export_onnx(tmp_path / "it.onnx", held, net, images[0][:8])
    (said,) = [r.getMessage() for r in caplog.records if "of the spread of held-out" in r.msg]
    assert float(said.split("at most ")[1].split()[0]) < 1e-2


@pytest.mark.filterwarnings("ignore")  # of PyTorch, that TorchScript is old
def test_an_exported_file_is_not_exported_again(images, tmp_path):
    torch.jit.save(torch.jit.script(TinyNet().eval()), tmp_path / "a.pt")
    backbone = exported_backbone(tmp_path / "a.pt", num_classes=3, input_size=16, mean=0.5, std=0.5)
    held = calibrated(MSP(), ood_lab.extract_features(backbone, *images))
    with pytest.raises(
        UserError, match=r"msp cannot be exported: a\.pt is an exported file itself"
    ):
        ood_lab.export_onnx(tmp_path / "it.onnx", held, backbone, images[0])
