"""MCD: two heads, which disagree on what is not ID."""

from __future__ import annotations

from torch import Tensor, nn

from ood_lab.common.arguments import Positive, Share, with_settings
from ood_lab.models.backbone import Backbone
from ood_lab.models.objectives.base import Loss, Objective, Step, Weight
from ood_lab.models.output import Output


@with_settings
class MCD(Objective):
    r"""Cross-entropy of two heads, then their discrepancy on outliers (arXiv 1908.04951).

    .. math::
        \mathrm{CE}(f_1, y) + \mathrm{CE}(f_2, y) + \mathrm{weight} \cdot
        \mathrm{relu}\bigl(m - \mathrm{mean}\,[H(\tilde p_1) - H(\tilde p_2)]\bigr)

    with p = softmax(f) over the classes and its entropy H, of outliers in the last term, which
    begins when ``start`` of the epochs are over. The first head is the network's own. Score:
    ``‖p1 - p2‖₁``. (OpenOOD takes the softmax over the images of the batch.)

    Args:
        weight: of the last term.
        margin: m.
        start: share of the epochs before the last term.
    """

    own_score = "mcd"
    reads = "features"
    outliers_per_image = 1
    weight: Weight = 1.0
    margin: Positive = 1.2
    start: Share = 0.9

    def build(self, backbone: Backbone) -> None:
        """Adds the second head."""
        self.second = nn.Linear(backbone.num_features, backbone.num_classes)

    def forward(self, step: Step) -> Loss:
        """Two terms, later three."""
        outside = None
        if step.outliers is None or step.progress < self.start:
            inside = step.backbone(step.image)
        else:
            inside, outside = step.together(step.outliers)
        second = step.cross_entropy(self.second(inside.features))
        terms = {"ce": step.cross_entropy(inside.logits), "second": second}
        if outside is not None:
            gap = _entropy(outside.logits) - _entropy(self.second(outside.features))
            terms["discrepancy"] = self.weight * (self.margin - gap.mean()).relu()
        return Loss(inside.logits, terms)

    def score(self, backbone: Backbone, image: Tensor, output: Output) -> Tensor:
        """Distance of both predictions, from 0 to 2."""
        second = self.second(output.features).softmax(dim=1)
        return (output.logits.softmax(dim=1) - second).abs().sum(dim=1)


def _entropy(logits: Tensor) -> Tensor:
    log_p = logits.log_softmax(dim=1)
    return -(log_p.exp() * log_p).sum(dim=1)
