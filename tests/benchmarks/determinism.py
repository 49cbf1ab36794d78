"""Whether ordinary networks pass the check that a network is a function of one image, and its time.

    python -m tests.benchmarks.determinism [NAME ...]     # default: all of FAMILIES and TORCHVISION

Each network has random weights, once with the statistics that its BatchNorm layers begin with, and
once with those of two batches. A line tells the time of the check and its share of a short run:
building the network and one pass over 512 images. The last line tells its share of ``eval.py`` on
the bundled data. The exit status is 1 where a network is refused or a share exceeds 5%.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import runpy
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
import torchvision
from torch import nn

from ood_lab.common.errors import UserError
from ood_lab.models import WrappedBackbone, check_determinism
from ood_lab.models.loading.head_search import reading_of
from ood_lab.models.output import logits_of
from ood_lab.models.trial_passes import evaluating, random_batch
from ood_lab.run.building import networks

ROOT = Path(__file__).resolve().parents[2]
BOUND = 0.05
#: Images of the pass, and how many of them are timed.
IMAGES, TIMED = 512, 8
#: The smallest network of each of timm's 40 smallest families, by parameters (timm 1.0.31).
FAMILIES = (
    *("test_convnext", "test_efficientnet", "test_vit", "test_nfnet", "test_mambaout"),
    *("test_byobnet", "test_resnet", "starnet_s050", "test_coatnet", "test_vit_relpos"),
    *("mobilevit_xxs", "edgenext_xx_small", "mobilenetv3_small_050", "ese_vovnet19b_slim_dw"),
    *("repghostnet_050", "efficientvit_m0", "ghostnet_050", "cspnext_tiny", "iformer_t"),
    *("xcit_nano_12_p8_224", "cs3darknet_focus_s", "efficientvit_b0", "swiftformer_xs"),
    *("efficientformerv2_s0", "pvt_v2_b0", "fasternet_t0", "fastvit_t8", "lcnetv2_small"),
    *("inception_next_atto", "rexnet_100", "pit_ti_224", "hardcorenas_b", "repvit_m0_9"),
    *("coat_tiny", "eva02_tiny_patch14_224", "convit_tiny", "deit_tiny_patch16_224"),
    *("gmlp_ti16_224", "hgnetv2_b0", "shvit_s1"),
)
TORCHVISION = (
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s"),
    *("googlenet", "inception_v3", "maxvit_t", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_small"),
    *("regnet_y_400mf", "resnet18", "resnext50_32x4d", "shufflenet_v2_x0_5", "squeezenet1_1"),
    *("swin_t", "swin_v2_t", "vgg11", "vgg11_bn", "vit_b_32", "wide_resnet50_2"),
)


def built(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A network with random weights, and the size of its images."""
    torch.manual_seed(0)
    if name in TORCHVISION:
        extra = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
        net = torchvision.models.get_model(name, weights=None, **extra)
        return net, (3, 299, 299) if name == "inception_v3" else (3, 224, 224)
    net = timm.create_model(name)
    return net, tuple(net.default_cfg["input_size"])


class AsFeatures(WrappedBackbone):
    """Networks without a linear head, such as SqueezeNet: their logits are the features, too."""

    def __init__(self, net: nn.Module, width: int, name: str) -> None:
        super().__init__(nn.Sequential(net, nn.Linear(width, 3)), "1", name)


def look(name: str) -> float:
    """Checks a network twice, prints a line, and returns the larger share of a short run."""
    start = time.perf_counter()
    net, size = built(name)
    net.eval()
    building = time.perf_counter() - start
    image = random_batch(net, size)
    heads = reading_of(net, image, name).names
    width = logits_of(net(image)).shape[1]  # type: ignore[union-attr]
    backbone = WrappedBackbone(net, heads[-1], name) if heads else AsFeatures(net, width, name)
    backbone.data_config = {"input_size": size}
    share = 0.0
    for statistics in ("first", "of two batches"):
        if statistics != "first":
            net.train()
            with torch.no_grad():
                for _ in range(2):
                    net(torch.randn(4, *size))
            net.eval()
        start = time.perf_counter()
        check_determinism(backbone)
        checking = time.perf_counter() - start
        with evaluating(backbone):
            start = time.perf_counter()
            backbone(torch.randn(TIMED, *size))
            passing = (time.perf_counter() - start) * IMAGES / TIMED
        share = max(share, checking / (building + passing))
    print(f"{name:28} {checking:6.2f} s  {share:6.1%} of a short run", flush=True)
    return share


def share_of_a_run() -> float:
    """The check's share of ``eval.py`` on the bundled data with a small network."""
    spent = []

    def timed(check: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return check(*args, **kwargs)
            finally:
                spent.append(time.perf_counter() - start)

        return call

    networks.check_determinism = timed(networks.check_determinism)
    with tempfile.TemporaryDirectory() as folder:
        words = ["model=timm", "model.name=resnet10t", "model.backbone.num_classes=10"]
        words += ["trainer=cpu", "logger=none", f"paths.outputs={folder}", "detector=[msp,knn]"]
        words += ["model.backbone.input_size=64", "debug=true"]
        sys.argv = [str(ROOT / "train.py"), *words]
        os.chdir(ROOT)
        start = time.perf_counter()
        try:
            runpy.run_path(sys.argv[0], run_name="__main__")
        except SystemExit as stop:
            if stop.code:
                raise
        whole = time.perf_counter() - start
    return sum(spent) / whole


def main() -> None:
    """Prints a line per network."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[*FAMILIES, *TORCHVISION])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    refused, slow = [], []
    for name in given.names:
        try:
            if look(name) > BOUND:
                slow.append(name)
        except UserError as error:
            refused.append(name)
            print(f"{name:28} refused: {error}", flush=True)
        gc.collect()
    share = share_of_a_run()
    print(f"{len(given.names)} networks, refused: {refused}, above {BOUND:.0%}: {slow}")
    print(f"share of train.py debug=true: {share:.2%}")
    sys.exit(bool(refused or slow or share > BOUND))


if __name__ == "__main__":
    main()
