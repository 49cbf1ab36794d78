"""Outputs that have names are those of the classes with these names."""

import pytest
import torch
from torch import nn

from ood_lab.models import WrappedBackbone
from ood_lab.models.image_transforms import of_unit_range
from ood_lab.models.loading.wrapped_network import Reading


class Colours(nn.Module):
    """Logits of red, green and blue; without a head, their cubes."""

    def __init__(self, linear):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        nn.init.eye_(self.fc.weight), nn.init.zeros_(self.fc.bias)
        self.linear = linear

    def forward(self, image):
        logits = self.fc(image.mean((2, 3)))
        return logits if self.linear else logits**3


@pytest.mark.parametrize("linear", [True, False])
def test_outputs_are_matched_by_name(linear, caplog):
    backbone = WrappedBackbone(Colours(linear), "fc" if linear else Reading())
    backbone.outputs = ["Light red", "green", "blue"]
    image = torch.rand(2, 3, 4, 4)
    before = backbone(image)
    backbone.match_outputs(["blue", "green", "light_red"])
    assert "by name" in caplog.text
    after = backbone(image)
    assert torch.equal(after.logits, before.logits[:, [2, 1, 0]])
    if linear:
        assert torch.equal(backbone.head(after.features), after.logits)
    backbone.match_outputs(["blue", "green", "light_red"])  # as they are now
    assert torch.equal(backbone(image).logits, after.logits)


def test_other_names_are_said(caplog):
    backbone = WrappedBackbone(Colours(True), "fc")
    backbone.outputs = ["red", "green", "blue"]
    backbone.match_outputs(["cat", "dog", "owl"])
    assert "output i is taken as class i" in caplog.text
    assert torch.equal(backbone.net.fc.weight, torch.eye(3))


def test_mean_and_deviation_of_pixels_up_to_255(caplog):
    assert of_unit_range((0.5,), (1.0,)) == ((0.5,), (1.0,))
    mean, std = of_unit_range((127.5, 51.0), (255.0, 1.0))
    assert (mean, std) == ((0.5, 0.2), (1.0, round(1 / 255, 9)))
    assert "divided by 255" in caplog.text
