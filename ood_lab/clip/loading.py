"""A CLIP by name, with weights from a tag, a file or a folder; offline unless told otherwise."""

from __future__ import annotations

import json
import logging
import re
import unicodedata
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

import open_clip
import torch
from open_clip.transform import PreprocessCfg
from torch import Tensor, nn

from ood_lab.clip import weight_sources
from ood_lab.clip.frozen_clip import PLAIN_TEMPLATES, ClipModel
from ood_lab.clip.weight_sources import (
    ABOUT,
    LOCAL_DIR,
    VOCABULARY,
    ClipSource,
    find_source,
    read_config,
    shipped_folder,
)
from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError, one_line, reported_as
from ood_lab.common.grouping import with_keys
from ood_lab.models.loading.hub_models import one_attempt

Precision = Literal["fp32", "fp16", "bf16", "pure_fp16", "pure_bf16"]
_IMAGE_KEYS = set(PreprocessCfg.__dataclass_fields__)


def load_clip(
    name: str,
    pretrained: str | None = None,
    quick_gelu: bool | None = None,
    cache_dir: str | None = None,
    download: bool = False,
    precision: Precision = "fp32",
) -> ClipModel:
    """Loads a frozen CLIP, without network unless ``download``.

    Weights of a tag and models in a folder bring the mean, standard deviation and resizing of
    their images along; a bare file gets OpenAI's. Weights trained with QuickGELU (OpenAI,
    MetaCLIP, DFN) run under the plain GELU without any error but with other features, so the two
    must agree: for a tag that is checked, for a file it has to be said.

    Args:
        name: an open_clip model (``ViT-B-16-quickgelu``), ``local-dir:DIR`` (a folder with
            ``open_clip_config.json`` and weights), or the shipped ``tiny``.
        pretrained: a tag of open_clip (``openai``) or a file of weights; OpenAI's own TorchScript
            archives are read too. None for a folder.
        quick_gelu: whether the weights were trained with QuickGELU; required for a file.
        cache_dir: where downloaded weights lie; None = the usual place.
        download: fetch what is missing.
        precision: of the towers.

    Raises:
        UserError: unknown name or tag, wrong path, missing files (all of them named), the other
            activation, weights of another architecture, or a tower that is not supported.
    """
    source = find_source(name, pretrained, cache_dir)
    quick = _activation(source, name, pretrained, quick_gelu)
    missing = source.missing(cache_dir)
    if missing and (source.folder or not download):
        remedy = (
            "put them there"
            if source.folder
            else "set clip.download=true once, or fetch them elsewhere and give "
            "clip.pretrained=FILE (clip.cache_dir=DIR names a filled cache)"
        )
        raise UserError(
            f"{len(missing)} files of {source.name} are missing: {', '.join(missing)}; {remedy}"
        )
    weights = source.weights or weight_sources.download(source, cache_dir)
    model = _build(source, weights, quick, precision)
    dtype = open_clip.get_input_dtype(precision)
    if source.folder is None:
        tokenizer = _named_tokenizer(source, cache_dir, download)
        return ClipModel(model, tokenizer, name, input_dtype=dtype)
    tokenizer = _folder_tokenizer(source.folder, source.config)
    about = folder_facts(source.folder)
    return ClipModel(model, tokenizer, name, about.templates, dtype, about.knows)


def missing_files(
    name: str, pretrained: str | None = None, cache_dir: str | None = None, **_: Any
) -> list[str]:
    """Files that :func:`load_clip` would need and that are not on this machine, all of them.

    Takes the arguments of :func:`load_clip`; loads nothing and asks no network.

    Raises:
        UserError: unknown name or tag, wrong path, or a tower that is not supported.
    """
    return find_source(name, pretrained, cache_dir).missing(cache_dir)


def untrained_clip(name: str) -> ClipModel:
    """A CLIP with fresh weights.

    Args:
        name: an architecture of open_clip, which runs with the plain GELU; ``local-dir:DIR``, or a
            shipped model.

    Raises:
        UserError: there is no such architecture, or the folder lacks something.
    """
    folder = shipped_folder(name) or Path(name.removeprefix(LOCAL_DIR))
    if str(folder) != name:
        tokenizer = _folder_tokenizer(folder, read_config(folder)["model_cfg"])
        model = create(f"{LOCAL_DIR}{folder}", load_weights=False)
        return ClipModel(model, tokenizer, folder.name, folder_facts(folder).templates)
    if open_clip.get_model_config(name) is None:
        raise UserError(f"open_clip has no model '{name}': set clip.name=ViT-B-16 or ViT-B-32")
    model = create(name, load_weights=False, quick_gelu=False)
    return ClipModel(model, open_clip.get_tokenizer(name), name)


def _folder_tokenizer(folder: Path, config: Settings) -> Any:
    """The tokenizer of a model in a folder: its own vocabulary if it has one."""
    if (folder / VOCABULARY).is_file():
        tokens = (folder / VOCABULARY).read_text(encoding="utf-8").split()
        return WordTokenizer(tokens, config["text_cfg"]["context_length"])
    with _quiet():
        return open_clip.get_tokenizer(f"local-dir:{folder}")


def _named_tokenizer(source: ClipSource, cache_dir: str | None, download: bool) -> Any:
    foreign = source.config["text_cfg"].get("hf_tokenizer_name")
    offline = {"local_files_only": not download} if foreign else {}
    problem = (
        f"the tokenizer {foreign} of {source.name} is not whole in the cache: set "
        "clip.download=true once, or clip.cache_dir=DIR to a filled cache"
    )
    with (
        reported_as(problem, OSError),
        _quiet(),
        one_attempt() if foreign and download else nullcontext(),
    ):
        return open_clip.get_tokenizer(source.name, cache_dir=cache_dir, **offline)


class _FolderFacts(NamedTuple):
    """What a model in a folder says of itself.

    Attributes:
        templates: texts like those that it was trained on.
        knows: what it was trained on, where that is not the world at large.
    """

    templates: tuple[str, ...]
    knows: str | None


def folder_facts(folder: Path) -> _FolderFacts:
    """Reads ``about.json``, which a folder need not have."""
    about = folder / ABOUT
    facts = json.loads(about.read_text()) if about.is_file() else {}
    return _FolderFacts(tuple(facts.get("templates") or PLAIN_TEMPLATES), facts.get("knows"))


def _activation(
    source: ClipSource, name: str, pretrained: str | None, quick_gelu: bool | None
) -> bool:
    """Whether to build with QuickGELU."""
    words = {True: "QuickGELU", False: "plain GELU"}
    built = source.quick_gelu if quick_gelu is None else quick_gelu
    if source.tag is not None:
        trained = bool(source.tag.get("quick_gelu", False))
        if built != trained:
            base = source.name.removesuffix("-quickgelu")
            other = f"{base}-quickgelu" if trained else base
            raise UserError(
                f"QuickGELU mismatch: the weights '{pretrained}' of {name} were trained with "
                f"{words[trained]}, the model would run with {words[built]}; "
                f"set clip.name={other} or clip.quick_gelu={str(trained).lower()}"
            )
    elif source.folder is None and quick_gelu is None:
        raise UserError(
            f"QuickGELU or not? The file {pretrained} cannot tell: set clip.quick_gelu=true "
            "(OpenAI, MetaCLIP, DFN) or clip.quick_gelu=false (LAION-2B, DataComp)"
        )
    return built


def _build(source: ClipSource, weights: Path, quick_gelu: bool, precision: str) -> nn.Module:
    archive = _is_torchscript(weights)
    if archive and not quick_gelu:
        raise UserError(
            f"QuickGELU mismatch: {weights} is an archive of OpenAI, trained with QuickGELU; "
            "set clip.quick_gelu=true"
        )
    return create(
        source.name,
        pretrained=None if source.folder else str(weights),
        precision=precision,
        quick_gelu=quick_gelu,
        preprocess=with_keys(source.preprocess, _IMAGE_KEYS),
        weights_only=not archive,
    )


def create(
    name: str,
    *,
    pretrained: str | None = None,
    load_weights: bool = True,
    precision: str = "fp32",
    quick_gelu: bool | None = None,
    preprocess: Settings | None = None,
    weights_only: bool = True,
) -> nn.Module:
    """``open_clip.create_model`` without its chatter.

    Raises:
        UserError: the weights are damaged or do not fit.
    """
    changes = {} if quick_gelu is None else {"quick_gelu": quick_gelu}
    try:
        with _quiet():
            model = open_clip.create_model(
                name,
                pretrained=pretrained,
                load_weights=load_weights,
                precision=precision,
                force_preprocess_cfg=preprocess,
                pretrained_text=False,
                weights_only=weights_only,
                **changes,
            )
    except Exception as error:  # a foreign file can break the readers in many ways
        refused = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"pickled objects ({refused[1]})" if refused else one_line(error)
        raise UserError(
            f"{pretrained or name} does not fit {name} or cannot be read: {reason[:200]}"
        ) from error
    # Convolutions are up to twice as fast in this layout, on CPUs and tensor cores alike.
    return model.to(memory_format=torch.channels_last)


@contextmanager
def _quiet() -> Iterator[None]:
    """Only errors are logged meanwhile: open_clip tells the root logger whatever it does."""
    logger = logging.getLogger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return any(name.rpartition("/")[2] == "constants.pkl" for name in archive.namelist())


#: Words with their hyphens, or one other character.
_WORD = re.compile(r"[a-z]+(?:-[a-z]+)*|\S")
_ARTICLES = {"an": "a"}
#: Marks the tokens that spell unknown words.
_LETTER = "+"
_UNKNOWN, _START, _END = "<unknown>", "<start>", "<end>"


class WordTokenizer:
    """Maps texts to ids as the tokenizers of open_clip do: ``<start> words <end> 0 0 ...``.

    One id a known word; an unknown word is spelled, one id a letter or digit, and any other
    character becomes ``<unknown>``: every text can be encoded, but spelled words mean nothing to
    a model that was trained on known ones. Case and accents are dropped, ``an`` is read as ``a``.
    The end has the largest id, so that pooling at ``ids.argmax`` finds it.

    Args:
        vocabulary: the tokens in the order of their ids, which start at 1 (0 = padding);
            ``<unknown>``, ``+a`` ... (letters) and words; ``<start>`` and ``<end>`` come last.
        context_length: length of the ids of a text.
    """

    def __init__(self, vocabulary: Sequence[str], context_length: int) -> None:
        self.ids = {token: i for i, token in enumerate(vocabulary, start=1)}
        self.context_length = context_length
        self.vocab_size = len(vocabulary) + 1
        self.sot_token_id = self.ids[_START]
        self.eot_token_id = self.ids[_END]

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without start, end and padding."""
        plain = unicodedata.normalize("NFKD", text.lower())
        plain = "".join(c for c in plain if not unicodedata.combining(c))
        return [i for word in _WORD.findall(plain) for i in self._word(word)]

    def _word(self, word: str) -> list[int]:
        word = _ARTICLES.get(word, word)
        if word in self.ids:
            return [self.ids[word]]
        if "-" in word:
            return [i for part in word.split("-") if part for i in self._word(part)]
        return [self.ids.get(_LETTER + c, self.ids[_UNKNOWN]) for c in word]

    def __call__(self, texts: str | Sequence[str], context_length: int | None = None) -> Tensor:
        """Ids ``[N, context_length] int64``; longer texts are cut, and still end with the end."""
        length = context_length or self.context_length
        texts = [texts] if isinstance(texts, str) else texts
        result = torch.zeros(len(texts), length, dtype=torch.long)
        for row, text in zip(result, texts, strict=True):
            ids = [self.sot_token_id, *self.encode(text)[: length - 2], self.eot_token_id]
            row[: len(ids)] = torch.tensor(ids)
        return result
