"""Features of a network are not those of another one that has the same weights and layers."""

from __future__ import annotations

import functools
import importlib
import logging
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bank_extraction import extract
from feature_toys import TinyImages, make_trainer
from torch import nn

import ood_lab
from ood_lab.models import module_backbone

IMAGES = torch.rand(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
SETTINGS = types.SimpleNamespace(factor=1.0)


class Net(nn.Module):
    """Its features are multiplied by what it is given, which its layers and weights do not show."""

    def __init__(self, factor: Any = 1.0) -> None:
        super().__init__()
        self.factor = factor
        self.fc = nn.Linear(3, 2)
        nn.init.eye_(self.fc.weight), nn.init.zeros_(self.fc.bias)

    def times(self) -> Any:
        """The factor."""
        return self.factor

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits ``[B, 2]``."""
        return self.fc(image.mean((2, 3)) * self.times())


class Nested(Net):
    """The factor is the first number in what it is given."""

    def times(self) -> Any:
        """The factor."""
        value = self.factor
        while not isinstance(value, float | torch.Tensor):
            value = vars(value) if isinstance(value, types.SimpleNamespace) else value
            value = next(iter(value.values() if isinstance(value, dict) else value))
        return value


class Called(Net):
    """The factor is what a function gives."""

    def times(self) -> Any:
        """The factor."""
        return self.factor()


class Buffered(Net):
    """The factor is a buffer that is not stored with the weights."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        del self.factor
        self.register_buffer("factor", torch.tensor(factor), persistent=False)


class Hooked(Net):
    """The factor is in a hook."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.fc.register_forward_pre_hook(lambda _, inputs: (inputs[0] * factor,))


class Replaced(Net):
    """The factor is in a forward method of this object."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.forward = lambda image: self.fc(image.mean((2, 3)) * factor)  # type: ignore[method-assign]


class Global(Net):
    """The factor is a setting of the module."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        SETTINGS.factor = factor

    def times(self) -> Any:
        """The factor."""
        return SETTINGS.factor


class OfClass(Net):
    """The factor is an attribute of the class."""

    _scale = 1.0

    def __init__(self, factor: float) -> None:
        super().__init__()
        type(self)._scale = factor

    def times(self) -> Any:
        """The factor."""
        return self._scale


class Unlisted(Net):
    """Another network is in a list, where PyTorch does not look for it."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.others = [Net(factor)]

    def times(self) -> Any:
        """The factor."""
        return self.others[0].factor


def typed(factor: float) -> nn.Module:
    """A network whose code was typed at a prompt: no file has it."""
    space: dict[str, Any] = {"nn": nn, "Net": Net, "__name__": "__main__"}
    text = "class Typed(Net):\n    def times(self):\n        return FACTOR"
    exec(text.replace("FACTOR", str(factor)), space)
    network: nn.Module = space["Typed"]()
    return network


def scaled(value: float, factor: float) -> float:
    """A function for :func:`functools.partial`."""
    return value * factor


def _enclosed(factor: float) -> Callable[[], float]:
    return lambda: factor


NETWORKS: dict[str, Callable[[float], nn.Module]] = {
    "argument": Net,
    "tensor": lambda f: Net(torch.tensor(f)),
    "array": lambda f: Net(np.float32(f)),
    "list": lambda f: Nested([torch.tensor(f)]),
    "dictionary": lambda f: Nested({"scale": {"first": (torch.tensor(f),)}}),
    "object": lambda f: Nested(types.SimpleNamespace(scale=[f])),
    "closure": lambda f: Called(_enclosed(f)),
    "partial": lambda f: Called(functools.partial(scaled, 1.0, factor=f)),
    "default": lambda f: Called(lambda value=f: value),
    "buffer": Buffered,
    "hook": Hooked,
    "forward": Replaced,
    "global": Global,
    "class": OfClass,
    "network in a list": Unlisted,
    "typed": typed,
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_what_only_the_forward_pass_reads_tells_networks_apart(kind: str) -> None:
    make = NETWORKS[kind]
    one, again, other = (ood_lab.extract_features(make(f), IMAGES) for f in (1.0, 1.0, 2.0))
    assert not torch.allclose(one.logits, other.logits)
    assert one.network == again.network != other.network


def test_what_passes_leave_in_a_network_does_not_tell_it_apart() -> None:
    class Keeps(Net):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            self.last, self.calls = image, getattr(self, "calls", 0) + 1
            return super().forward(image)

    network = Keeps()
    names = {ood_lab.extract_features(network, batch).network for batch in (IMAGES, IMAGES[:3])}
    assert names == {ood_lab.extract_features(Keeps(), IMAGES).network}


def test_weights_of_quantised_layers_tell_networks_apart() -> None:
    kinds = {nn.Linear}
    names = set()
    for factor in (1.0, 2.0, 1.0):
        network = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
        nn.init.constant_(network[2].weight, factor), nn.init.zeros_(network[2].bias)
        eight_bits = torch.ao.quantization.quantize_dynamic(network.eval(), kinds)
        names.add(ood_lab.extract_features(eight_bits, IMAGES).network)
    assert len(names) == 2


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], nn.Module]:
    """A network in a package whose helper has a constant, and which reads a file at each pass."""
    package, file = tmp_path / "code" / "mine", tmp_path / "factor"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "net.py").write_text(
        "import importlib, pathlib\n"
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(3, 2)\n"
        "    def forward(self, image):\n"
        "        from .helper import FACTOR\n"
        f"        read = float(pathlib.Path({str(file)!r}).read_text())\n"
        "        return self.fc(image.mean((2, 3)) * FACTOR * read)\n"
    )
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def make(constant: float, read: float) -> nn.Module:
        helper = package / "helper.py"
        helper.write_text(f"FACTOR = {constant}\n")
        os.utime(helper, (0, 0))
        file.write_text(str(read))
        for name in [name for name in sys.modules if name.startswith("mine")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        torch.manual_seed(0)
        network: nn.Module = importlib.import_module("mine.net").Net()
        return network

    return make


def test_cached_features_follow_the_code_and_what_it_reads(
    module: Callable[[float, float], nn.Module],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "ood_lab")
    images = TinyImages()

    def logits(constant: float, read: float) -> tuple[torch.Tensor, str]:
        caplog.clear()
        network = module(constant, read)
        backbone = module_backbone(
            network, "fc", data_config={"input_size": (3, 8, 8), "mean": (0,) * 3, "std": (1,) * 3}
        )
        bank = extract(make_trainer(), backbone, images, tmp_path / "banks")
        assert bank is not None
        with torch.no_grad():
            torch.testing.assert_close(bank.logits, network(images.images))
        return bank.logits, caplog.text

    first, told = logits(1.0, 1.0)
    assert "images passed" in told
    again, told = logits(1.0, 1.0)
    assert "read from the cache" in told
    assert torch.equal(first, again)
    assert "images passed" in logits(2.0, 1.0)[1]  # the same size and time of the file
    assert "extracting again" in logits(2.0, 3.0)[1]  # nothing says that a file is read
    assert "read from the cache" in logits(2.0, 3.0)[1]
