"""CLIPN (arXiv:2308.12213): a CLIP with a second text tower that says what an image is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from open_clip.transformer import TextTransformer
from torch import Tensor, nn

from ood_lab.clip import ClipModel, untrained_clip, zero_shot_weights
from ood_lab.clip.backbone import ClipImages, checked_names
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.grouping import without_keys
from ood_lab.common.tensor_file import Tensors
from ood_lab.detectors.base import DetectorRefusal, with_settings
from ood_lab.detectors.support.network_scores import NetworkDetector
from ood_lab.features.bank import FeatureBank
from ood_lab.features.extraction_hooks import BankColumn
from ood_lab.models.backbone import Backbone
from ood_lab.models.head_check import check_contract
from ood_lab.models.output import Output
from ood_lab.models.weights import saved_entry
from ood_lab.shift import imagenet_templates

#: Tensors of the second tower, as the authors name them.
_NO = ("transformer_no", "token_embedding_no", "positional_embedding_no", "ln_final_no",
       "text_projection_no")  # fmt: skip
_PROMPT = "prompt_no"
#: The authors fix the logit scale.
_SCALE = 100.0


class NoTexts(nn.Module):
    """The second text tower, whose features say that a text does not fit.

    Its learned prompt ``[16, L, w]`` is averaged and added at all positions before the
    transformer: that is a shift of the positional embedding, and done there.

    Args:
        tower: with the weights and the shifted positions.
        tokenizer: of the CLIP.
        templates: see :class:`ClipModel`.
    """

    def __init__(self, tower: TextTransformer, tokenizer: Any, templates: tuple[str, ...]) -> None:
        super().__init__()
        self.tower = tower
        self.tokenizer = tokenizer
        self.templates = templates
        self.requires_grad_(False).eval()

    def encode_text(self, texts: Sequence[str]) -> Tensor:
        """Maps N texts to features ``[N, d]``, normalised, without gradients."""
        with torch.no_grad():
            parts = [self.tower(ids) for ids in self.tokenizer(list(texts)).split(512)]
        return F.normalize(torch.cat(parts).float(), dim=-1)


class CLIPNBackbone(ClipImages):
    """``logits = 100 T f`` with class texts ``T [C, d]``, and ``no_head`` with the texts of "no".

    Args:
        clip: the CLIP of the checkpoint.
        no_texts: its second text tower.
        classnames: words for the classes.
        templates: with ``{}``; the same texts go through both towers.
    """

    head: nn.Linear

    def __init__(
        self,
        clip: ClipModel,
        no_texts: NoTexts,
        classnames: Sequence[str],
        templates: Sequence[str],
    ) -> None:
        super().__init__(clip)
        self.name = f"CLIPN ({clip.name})"
        self.classnames = list(classnames)
        self.head = _head(zero_shot_weights(clip, classnames, templates))
        self.no_head = _head(zero_shot_weights(no_texts, classnames, templates))


def clipn_backbone(
    name: str,
    checkpoint_path: str | Path,
    classes: Sequence[str],
    classnames: Sequence[str] | None = None,
    templates_file: str | Path | None = None,
    num_classes: int | None = None,
) -> CLIPNBackbone:
    """CLIPN from a checkpoint of its authors, for the classes of the data.

    Args:
        name: the open_clip architecture, ``ViT-B-16`` or ``ViT-B-32`` (or ``local-dir:DIR``); all
            weights are in the checkpoint.
        checkpoint_path: their ``epoch_10.pt``.
        classes: names of the ID classes in the data.
        classnames: words for them, in the same order; None = the names themselves.
        templates_file: their ``prompt.txt``, one template with ``{}`` a line, read unchanged
            (its quotes are part of the texts); None = OpenAI's 80 templates for ImageNet, with
            which the numbers are not the published ones.
        num_classes: expected number of classes, checked.

    Raises:
        UserError: the file is missing, is no CLIPN, or is one of another architecture.
    """
    names = checked_names(classes, classnames, num_classes, "model.backbone.classnames")
    templates = _templates(templates_file)
    clip, no_texts = load_clipn(name, checkpoint_path)
    backbone = CLIPNBackbone(clip, no_texts, names, templates)
    check_contract(backbone)
    return backbone


def load_clipn(name: str, checkpoint_path: str | Path) -> tuple[ClipModel, NoTexts]:
    """The CLIP and the second text tower of a checkpoint; see :func:`clipn_backbone`."""
    path = Path(checkpoint_path)
    saved = saved_entry(path, "state_dict")
    if saved is None:
        raise UserError(f"{path} contains no state_dict: give the epoch_10.pt of CLIPN's authors")
    state = {key.removeprefix("module."): value for key, value in saved.items()}
    if lacking := [n for n in (*_NO, _PROMPT) if not any(key.startswith(n) for key in state)]:
        raise UserError(f"{path} is not a checkpoint of CLIPN: it has no {lacking[0]}")
    prompt = state.pop(_PROMPT)
    no = {key: value for key, value in state.items() if key.startswith(_NO)}
    clip = untrained_clip(name)
    _fill(clip.model, without_keys(state, no), path, name)
    tower = _no_tower(clip, no)
    _fill(tower, {key.replace("_no", "", 1): value for key, value in no.items()}, path, name)
    with torch.no_grad():
        tower.positional_embedding += prompt.mean(dim=0)
    return clip, NoTexts(tower, clip.tokenizer, clip.templates)


def _no_tower(clip: ClipModel, no: Tensors) -> TextTransformer:
    """A text tower of the shape of the tensors; the number of heads is the first tower's."""
    blocks: Any = clip.model.transformer.resblocks  # type: ignore[union-attr]
    vocabulary, width = no["token_embedding_no.weight"].shape
    return TextTransformer(
        context_length=len(no["positional_embedding_no"]),
        vocab_size=vocabulary,
        width=width,
        heads=blocks[0].attn.num_heads,
        layers=len(blocks),
        output_dim=no["text_projection_no"].shape[1],
    )


def _fill(module: nn.Module, state: Tensors, path: Path, name: str) -> None:
    with reported_as(
        f"{path} does not fit {name}, set clip.name to its own: {{reason}}", RuntimeError
    ):
        module.load_state_dict(state)


def _templates(file: str | Path | None) -> list[str]:
    if file is None:
        return imagenet_templates()
    path = Path(file)
    if not path.is_file():
        raise UserError(f"model.backbone.templates_file={file}: there is no such file")
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def _head(texts: Tensor) -> nn.Linear:
    head = nn.Linear(texts.shape[1], len(texts), bias=False).requires_grad_(False)
    head.weight.copy_(_SCALE * texts)
    return head


Rule = Literal["atd", "ctw"]


def competing_to_win(logits: Tensor, no_logits: Tensor) -> Tensor:
    """CTW: log-odds of yes against no of the likeliest class, ``[B, C], [B, C] -> [B]``.

    ``l_c - l'_c`` at ``c = argmax l``. Its sigmoid is CLIPN's confidence.
    """
    best = logits.argmax(dim=1, keepdim=True)
    return (logits - no_logits).gather(1, best)[:, 0]


def agreeing_to_differ(logits: Tensor, no_logits: Tensor) -> Tensor:
    """ATD: ``log Σ_c softmax(l)_c sigmoid(l'_c - l_c)``, the mass of "none", ``[B]``.

    CLIPN's confidence is 1 minus its exponential.
    """
    none = F.logsigmoid(no_logits - logits)
    return (logits.log_softmax(dim=1) + none).logsumexp(dim=1)


class CLIPNColumn(BankColumn):
    """:func:`competing_to_win` and :func:`agreeing_to_differ` of an image, ``[B, 2]``."""

    key = "clipn(ctw,atd)"

    def layers(self, backbone: Backbone) -> list[str]:
        """None: both heads run on the features.

        Raises:
            DetectorRefusal: the backbone has no "no" texts.
        """
        if not isinstance(backbone, CLIPNBackbone):
            raise DetectorRefusal("clipn needs its own text towers: choose prompt=clipn")
        return []

    def compute(self, backbone: Backbone, image: Tensor, output: Output, maps: Tensors) -> Tensor:
        """Both numbers, computed in float64."""
        assert isinstance(backbone, CLIPNBackbone)
        features = output.features.double()
        heads = (backbone.head, backbone.no_head)
        yes, no = (features @ head.weight.double().T for head in heads)
        return torch.stack([competing_to_win(yes, no), agreeing_to_differ(yes, no)], dim=1)


@with_settings
class CLIPNScore(NetworkDetector):
    r"""How much the texts say "no" (CLIPN, arXiv:2308.12213).

    With ``p_c = sigmoid(l_c - l'_c)``, the probability of yes for class c:

    .. math::
        \text{ATD: } s = \log \sum_c (1 - p_c)\,\mathrm{softmax}(l)_c, \qquad
        \text{CTW: } s = l'_c - l_c, \; c = \arg\max l

    Both order images as the authors' confidences ``Σ_c p_c softmax(l)_c`` and ``p_c`` do, from
    the least to the most certain, but do not tie where those are 1 in float32.

    Args:
        rule: ``atd`` (agreeing to differ, which the authors report) or ``ctw`` (competing to win).
    """

    name = "clipn"
    extraction_hook = CLIPNColumn()

    rule: Rule = "atd"

    def score(self, bank: FeatureBank) -> Tensor:
        """The mass of "none" in logarithm, or the log-odds of no, ``[N]``."""
        won, none = self.values(bank).double().unbind(dim=1)
        return none if self.rule == "atd" else -won
