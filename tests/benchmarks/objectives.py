"""Losses and gradients of training objectives beside OpenOOD's trainers, on the same tensors.

Run by hand: ``python -m tests.benchmarks.objectives CHECKOUT``, of OpenOOD v1.5. One step of its
own trainer, on the CPU in float64, on a network of the features of both. The exit status is
1 where a loss or a gradient differs by more than 1e-6.

``cider`` and ``npos`` have OpenOOD's factor of compactness, temperature / 0.07. ``palm`` assigns to
all prototypes of a class: with fewer, OpenOOD takes those of the loss by the shares of the update.

Left out: ``mcd`` after its start (a softmax over the batch), ``vos`` (new random weights at every
call), ``udg`` and the third term of ``npos`` (faiss-gpu, other draws), ``mixup``, ``cutmix`` and
``regmixup`` (other draws); tests compare them with the formulas.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from ood_lab.models import Backbone, Objective, Output
from ood_lab.models.objectives.arpl import ARPL
from ood_lab.models.objectives.base import Step
from ood_lab.models.objectives.cider import CIDER
from ood_lab.models.objectives.conf_branch import ConfBranch
from ood_lab.models.objectives.godin import GODIN
from ood_lab.models.objectives.ish import ISH
from ood_lab.models.objectives.logit_norm import LogitNorm
from ood_lab.models.objectives.mcd import MCD
from ood_lab.models.objectives.mixoe import MixOE
from ood_lab.models.objectives.mos import MOS
from ood_lab.models.objectives.npos import NPOS
from ood_lab.models.objectives.outlier_exposure import OutlierExposure
from ood_lab.models.objectives.palm import PALM
from ood_lab.models.objectives.rotpred import RotPred
from ood_lab.models.objectives.t2fnorm import T2FNorm

MOST = 1e-6
N, C, D, K = 12, 6, 10, 3
GROUPS = [[0, 1], [2, 3, 4], [5]]
#: Gradients by name, and the loss.
Pass = tuple[Tensor, dict[str, Tensor]]


class OneBatch(list[dict[str, Tensor]]):
    """A loader that is its own iterator, and has a length."""

    def __iter__(self) -> OneBatch:  # type: ignore[override]
        return self

    def __next__(self) -> dict[str, Tensor]:
        return self[0]


class Features(nn.Module):
    """OpenOOD's kind of backbone: features are a layer and a ReLU."""

    def __init__(self, images: nn.Linear) -> None:
        super().__init__()
        self.images, self.fc, self.feature_size = images, nn.Linear(D, C), D

    def forward(self, image: Tensor, return_feature: bool = False) -> Any:
        """Logits, and features where OpenOOD takes them."""
        z = self.images(image.flatten(1)).relu()
        return (self.fc(z), z) if return_feature else self.fc(z)


class Network(Backbone):
    """The same features with a linear head."""

    def __init__(self, images: nn.Linear) -> None:
        super().__init__()
        self.images, self.head = images, nn.Linear(D, C)
        self.layer, self.widths = self.head, (D, C)
        self.data_config = {"input_size": (3, 4, 4)}

    def forward(self, image: Tensor) -> Output:
        """Logits and features."""
        z = self.images(image.flatten(1)).relu()
        return Output(self.layer(z), z)


def ours(objective: Objective, network: Network, batch: dict[str, Tensor], names: Any) -> Pass:
    """The loss, and gradients by the names that OpenOOD has for the parameters."""
    images = batch["data"], batch["label"], batch.get("outliers"), batch.get("views")
    loss = sum(objective(Step(network, *images)).terms.values(), 0)
    assert isinstance(loss, Tensor)
    gradients = torch.autograd.grad(loss, list(names.values()))
    return loss, dict(zip(names, gradients, strict=True))


def theirs(
    trainer: str, net: Any, batches: list[dict[str, Any]], *loaders: Any, **settings: Any
) -> Pass:
    """One step of a trainer; what it returns as loss is 0.2 of it where it is a mean over steps."""
    optimizer = {"lr": 1e-9, "momentum": 0.9, "nesterov": True, "weight_decay": 0, "num_epochs": 1}
    optimizer |= {"cosine": True, "warm": True, "lr_decay_rate": 0.1, "mlp_decay_rate": 1}
    data = {"name": "", "num_classes": C, "train": {"batch_size": N}}
    nodes = {"optimizer": optimizer, "trainer": settings, "dataset": data}
    numbers = {"num_classes": C, "baseline": False, "num_gpus": 1, "num_machines": 1}
    config = OmegaConf.create({**nodes, **numbers, "network": {"feat_dim": D}})
    module = importlib.import_module(f"openood.trainers.{trainer}_trainer")
    (name,) = [k for k in vars(module) if k.lower() == f"{trainer.replace('_', '')}trainer"]
    _, metrics = getattr(module, name)(net, OneBatch(batches), *loaders, config).train_epoch(1)
    loss = torch.as_tensor(metrics["loss"]) * (1 if trainer == "conf_branch" else 5)
    nets = net.values() if isinstance(net, dict) else [net]
    named = [pair for one in nets for pair in one.named_parameters()]
    return loss, {key: p.grad for key, p in named if p.grad is not None}


def compared(checkout: Path) -> dict[str, tuple[Pass, Pass]]:
    """Both passes of every objective."""
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    batch = {"data": torch.randn(N, 3, 4, 4), "label": torch.arange(N) % C}
    results = {}

    def pair(objective: Objective) -> tuple[Network, Features]:
        network = Network(nn.Linear(48, D))
        objective.attach(network)
        objective.double()
        features = Features(nn.Linear(48, D))
        features.images.load_state_dict(network.images.state_dict())
        return network, features

    def add(name: str, module: str, kind: str, objective: Any, layers: Callable[..., Any]) -> None:
        network, features = pair(objective)
        make = vars(importlib.import_module(f"openood.networks.{module}"))[kind]
        net = make(features, D, C) if name == "godin" else make(features, C)
        names = {"backbone.images": network.images} | layers(network, objective)
        for key, layer in names.items():
            net.get_submodule(key).load_state_dict(layer.state_dict())
        parameters = {f"{k}.{n}": p for k, m in names.items() for n, p in m.named_parameters()}
        settings: dict[str, Any] = {"lmbda": 0.1, "budget": 0.3, "eps": 1e-12, "baseline": False}
        if name == "mcd":
            settings |= {"lambda_oe": 1, "margin": 1.2, "start_epoch_ft": 90}
        other = theirs(name, net, [batch], *[None][: name == "mcd"], **settings)
        results[name] = ours(objective, network, batch, parameters), other

    hinted = torch.arange(N)[:, None] % 2
    with (
        mock.patch.object(torch, "bernoulli", lambda x: hinted.to(x)),
        mock.patch.object(torch, "rand_like", lambda x: 1 - hinted.to(x)),
    ):
        add(
            *("conf_branch", "conf_branch_net", "ConfBranchNet", ConfBranch()),
            lambda n, o: {"fc": n.layer, "confidence": o.confidence},
        )
    add(
        *("rotpred", "rot_net", "RotNet", RotPred()),
        lambda n, o: {"fc": n.layer, "rot_fc": o.turn},
    )
    add("mcd", "mcd_net", "MCDNet", MCD(), lambda n, o: {"fc1": n.layer, "fc2": o.second})
    add(
        *("godin", "godin_net", "GodinNet", GODIN()),
        lambda n, o: {"h.h": o.h, "g.0": o.g[0], "g.1": o.g[1]},
    )

    objective: Any = ARPL()
    network, features = pair(objective)
    layer = importlib.import_module("openood.networks.arpl_net").ARPLayer(D, C)
    layer.points.data.copy_(objective.points.data)
    other = theirs("arpl", {"netF": features, "criterion": layer}, [batch])
    names = {"points": objective.points, "radius": objective.radius}
    names |= {f"images.{k}": p for k, p in network.images.named_parameters()}
    results["arpl"] = ours(objective, network, batch, names), other

    objective = MOS(GROUPS)
    network, _ = pair(objective)
    module = importlib.import_module("openood.trainers.mos_trainer")
    places = {"layer.weight": objective.layer.weight, "images.weight": network.images.weight}
    order = [i for k, group in enumerate(GROUPS) for i in (C + k, *group)]  # others come first
    logits = objective.layer(network(batch["data"]).features)[:, order]
    label = torch.tensor(
        [[g.index(c) + 1 if c in g else 0 for g in GROUPS] for c in batch["label"].tolist()]
    )
    slices = module.get_group_slices([len(group) for group in GROUPS])
    loss = module.calc_group_softmax_loss(nn.CrossEntropyLoss(), logits, label, slices)
    gradients = torch.autograd.grad(loss, list(places.values()))
    other = loss, dict(zip(places, gradients, strict=True))
    results["mos"] = ours(objective, network, batch, places), other

    for name, objective in {"logit_norm": LogitNorm(), "ish": ISH(prune=True)}.items():
        network, _ = pair(objective)
        places = {f"layer.{k}": p for k, p in network.layer.named_parameters()}
        places |= {"images.weight": network.images.weight}
        mine = ours(objective, network, batch, places)
        criterion: Callable[..., Tensor] = nn.CrossEntropyLoss()
        if name == "logit_norm":
            module = importlib.import_module("openood.trainers.logitnorm_trainer")
            criterion = module.LogitNormLoss()
            logits = network.layer(network(batch["data"]).features)
        else:
            module = importlib.import_module("openood.trainers.ish_trainer")
            features_ = network(batch["data"]).features
            reshaper = module.ISHReshaper("minksample_expscale", 0.85)
            logits = module._linear_forward(
                features_, network.layer.weight, network.layer.bias, reshaper
            )
        loss = criterion(logits, batch["label"])
        gradients = torch.autograd.grad(loss, list(places.values()))
        results[name] = mine, (loss, dict(zip(places, gradients, strict=True)))

    outliers = {"data": torch.randn(N, 3, 4, 4)}
    share = torch.tensor(0.3)
    for name, objective in {
        "oe": OutlierExposure(),
        "mixoe": MixOE(cut=False),
        "t2fnorm": T2FNorm(),
    }.items():
        network, features = pair(objective)
        features.fc.load_state_dict(network.layer.state_dict())
        net, more, key = features, ([outliers],), ""
        settings: dict[str, Any] = {"lambda_oe": objective.weight} if name != "t2fnorm" else {}
        settings |= {"alpha": 0.1, "beta": 1, "mix_op": "mixup", "trainer_args": {"tau": 0.1}}
        if name == "t2fnorm":
            module = importlib.import_module("openood.networks.t2fnorm_net")
            net, more, key = module.T2FNormNet(features, C), (), "backbone."
        layers = {f"{key}images": network.images, f"{key}fc": network.layer}
        names = {f"{k}.{n}": p for k, m in layers.items() for n, p in m.named_parameters()}
        batches = [batch] * (2 if name == "mixoe" else 1)  # it leaves out the last one
        with (
            mock.patch.object(torch.distributions.Beta, "sample", return_value=share),
            mock.patch("numpy.random.beta", return_value=float(share)),
        ):
            mine = ours(objective, network, batch | {"outliers": outliers["data"]}, names)
            results[name] = mine, theirs(name, net, batches, *more, **settings)

    views = {"data": [batch["data"], torch.randn(N, 3, 4, 4)], "label": batch["label"]}
    arguments = {"temp": 0.1, "proto_m": 0.9, "w": 2, "w_disp": 0.5, "w_comp": 1, "loss_weight": 1}
    arguments |= {"nviews": 2, "n_proto": K, "k": K, "epsilon": 0.05, "sinkhorn_iter": 3}
    arguments |= {"lambda_pcon": 1, "sample_number": 1000, "start_epoch_KNN": 40}
    of_faiss = ("sample_from", "K", "select", "cov_mat", "pick_nums", "ID_points_num")
    arguments |= dict.fromkeys(of_faiss, 1)
    for name, objective in {
        "cider": CIDER(2 * 0.1 / 0.07, momentum=0.9, width=D),
        "npos": NPOS(compact=0.1 / 0.07, momentum=0.9, width=D),
        "palm": PALM(prototypes_per_class=K, assigned=K, momentum=0.9, width=D),
    }.items():
        network, features = pair(objective)
        kind = vars(importlib.import_module(f"openood.networks.{name}_net"))[f"{name.upper()}Net"]
        net, more = kind(features, "mlp", D, C), ([batch],)
        net.head.load_state_dict(objective.project.state_dict())
        protos = torch.rand(K * C, D)
        with torch.no_grad():
            means = net(batch["data"]).unflatten(0, (-1, C)).mean(0)
        objective.prototypes = nn.functional.normalize(means, dim=1)
        if name == "palm":  # theirs lie by number, then by class
            objective.prototypes = nn.functional.normalize(
                protos.unflatten(0, (K, C)).transpose(0, 1).flatten(0, 1), dim=1
            )
            more = ()
        layers = {"backbone.images": network.images, "head": objective.project}
        names = {f"{k}.{n}": p for k, m in layers.items() for n, p in m.named_parameters()}
        seen = batch | {"views": views["data"][1][:, None]}
        mine = ours(objective, network, seen, names)
        with mock.patch.object(torch, "rand", return_value=protos):
            results[name] = mine, theirs(name, net, [views], *more, trainer_args=arguments)
    return results


def stubbed(checkout: Path) -> None:
    """Makes files of the checkout importable without the rest of OpenOOD, and without a GPU."""
    for name in ("openood", "openood.trainers", "openood.networks", "openood.losses"):
        package = types.ModuleType(name)
        package.__path__ = [str(checkout / name.replace(".", "/"))]
        sys.modules[name] = package
    utils, comm = types.ModuleType("openood.utils"), types.ModuleType("openood.utils.comm")
    members = {"is_main_process": lambda: False, "gather": lambda value: [value]}
    vars(comm).update(members)
    vars(utils).update(comm=comm, Config=dict)
    vars(sys.modules["openood"]).update(utils=utils)
    sys.modules |= {"openood.utils": utils, "openood.utils.comm": comm}
    torch.Tensor.cuda = lambda self, *_, **__: self  # type: ignore[method-assign, assignment]
    nn.Module.cuda = lambda self, *_: self  # type: ignore[method-assign, assignment]
    to = torch.Tensor.to
    cuda = ("cuda",), (torch.device("cuda"),)
    torch.Tensor.to = lambda self, *a, **k: self if a in cuda else to(self, *a, **k)  # type: ignore
    sys.modules |= {name: mock.MagicMock() for name in ("faiss", "faiss.contrib")}
    sys.modules["faiss.contrib.torch_utils"] = mock.MagicMock()


def main() -> int:
    """Prints the largest differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout
    stubbed(checkout)
    worst = 0.0
    for name, ((loss, mine), (other, other_gradients)) in compared(checkout).items():
        of_loss = abs(float(loss.detach()) - float(other.detach()))
        gaps = [float((value - other_gradients[key]).abs().max()) for key, value in mine.items()]
        print(f"{name:12} loss {of_loss:.1e}, {len(gaps)} gradients {max(gaps):.1e}")
        worst = max(worst, of_loss, *gaps)
    return int(worst > MOST)


if __name__ == "__main__":
    sys.exit(main())
