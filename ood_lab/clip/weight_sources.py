"""Where the files of a CLIP lie, found out without network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import open_clip
from huggingface_hub import try_to_load_from_cache
from open_clip.pretrained import download_pretrained, get_pretrained_cfg

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.hints import nearest
from ood_lab.models.loading.hub_models import one_attempt

LOCAL_DIR = "local-dir:"
CONFIG, VOCABULARY, ABOUT = "open_clip_config.json", "vocabulary.txt", "about.json"
SHIPPED = Path(__file__).parent / "shipped"
_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")


@dataclass(frozen=True)
class ClipSource:
    """What a model is built from.

    Attributes:
        name: for open_clip: one of its models, or ``local-dir:DIR``.
        config: the architecture, as open_clip writes it.
        folder: of a model in a folder.
        weights: the file; None while it is missing.
        wanted: what the file is called where it comes from, for messages.
        preprocess: image settings that the weights bring along.
        tag: open_clip's record of published weights.
    """

    name: str
    config: Settings
    folder: Path | None
    weights: Path | None
    wanted: str
    preprocess: Settings
    tag: Settings | None = None

    @property
    def quick_gelu(self) -> bool:
        """Whether the architecture has the activation ``x sigmoid(1.702 x)``."""
        return bool(self.config.get("quick_gelu", False))

    def missing(self, cache_dir: str | None) -> list[str]:
        """Files that are not on this machine."""
        text = self.config.get("text_cfg", {})
        files = [] if self.weights else [self.wanted]
        tokenizer = text.get("hf_tokenizer_name")
        if (
            tokenizer
            and self.folder is None
            and not _cached(tokenizer, "tokenizer_config.json", cache_dir)
        ):
            files.append(f"{tokenizer}/tokenizer_config.json (and the files of that tokenizer)")
        return files


def find_source(name: str, pretrained: str | None, cache_dir: str | None) -> ClipSource:
    """Looks a model and its weights up.

    Raises:
        UserError: an unknown model or tag, a wrong path, or a tower that cannot be built offline.
    """
    if shipped := shipped_folder(name):
        name = f"{LOCAL_DIR}{shipped}"
    source = (
        _from_folder(Path(name.removeprefix(LOCAL_DIR)), pretrained)
        if name.startswith(LOCAL_DIR)
        else _from_name(name, pretrained, cache_dir)
    )
    _check_text_tower(source, name)
    return source


def read_config(folder: Path) -> Settings:
    """``{model_cfg, preprocess_cfg}`` of a model in a folder.

    Raises:
        UserError: no such folder, or no configuration in it.
    """
    file = folder / CONFIG
    if not folder.is_dir():
        raise UserError(f"clip.name={LOCAL_DIR}{folder}: there is no such folder")
    if not file.is_file():
        raise UserError(f"clip.name={LOCAL_DIR}{folder}: the folder has no {CONFIG}")
    with reported_as(f"{file} is not JSON: {{reason}}", ValueError):
        config = json.loads(file.read_text(encoding="utf-8"))
    if not {"embed_dim", "vision_cfg", "text_cfg"} <= set(config.get("model_cfg", {})):
        raise UserError(f"{file} must hold model_cfg with embed_dim, vision_cfg and text_cfg")
    return dict(config)


def download(source: ClipSource, cache_dir: str | None) -> Path:
    """Fetches published weights.

    Raises:
        UserError: they cannot be had.
    """
    failure = (
        f"{source.wanted} of {source.name} cannot be downloaded ({{reason}}): fetch it elsewhere "
        "and give clip.pretrained=FILE"
    )
    with reported_as(failure), one_attempt():
        return Path(download_pretrained(source.tag, cache_dir=cache_dir))


def _from_folder(folder: Path, pretrained: str | None) -> ClipSource:
    if pretrained is not None:
        raise UserError(
            f"clip.pretrained={pretrained} and clip.name={LOCAL_DIR}{folder} exclude each other: "
            "the folder has its own weights"
        )
    config = read_config(folder)
    files = sorted(f for f in folder.iterdir() if f.suffix in _SUFFIXES)
    # open_clip's own preference: safetensors first, and its own file names.
    files.sort(key=lambda f: (f.suffix != ".safetensors", not f.stem.startswith("open_clip")))
    return ClipSource(
        name=f"{LOCAL_DIR}{folder}",
        config=config["model_cfg"],
        folder=folder,
        weights=files[0] if files else None,
        wanted=str(folder / "open_clip_model.safetensors"),
        preprocess=config.get("preprocess_cfg", {}),
    )


def _from_name(name: str, pretrained: str | None, cache_dir: str | None) -> ClipSource:
    config = open_clip.get_model_config(name) if ":" not in name else None
    if config is None:
        shipped = [p.parent.name for p in SHIPPED.glob(f"*/{CONFIG}")]
        near = nearest(name, [*open_clip.list_models(), *shipped], 0.3)
        raise UserError(
            f"open_clip has no model '{name}'; nearest: {', '.join(near) or 'none'} "
            f"(a folder is named {LOCAL_DIR}DIR)"
        )
    tags = open_clip.list_pretrained_tags_by_model(name)
    if pretrained is None:
        raise UserError(
            f"{name} needs weights: give clip.pretrained=FILE or a tag of open_clip "
            f"({', '.join(tags) or 'it has none'})"
        )
    if tag := get_pretrained_cfg(name, pretrained):
        wanted, file = _published(tag, cache_dir)
        return ClipSource(name, config, None, file, wanted, tag, tag)
    file = Path(pretrained)
    if not file.is_file():
        siblings = [f.name for f in file.parent.iterdir()] if file.parent.is_dir() else []
        near = nearest(file.name, [*tags, *siblings], 0.4) or tags
        raise UserError(
            f"clip.pretrained={pretrained} is neither a file nor a tag of {name}; "
            f"nearest: {', '.join(near) or 'it has no tags, give a file'}"
        )
    return ClipSource(name, config, None, file, str(file), {})


def _published(tag: Settings, cache_dir: str | None) -> tuple[str, Path | None]:
    """What open_clip would download, and where it is if it has been."""
    if tag.get("hf_hub"):
        repository, _, filename = tag["hf_hub"].rpartition("/")
        filename = filename or "open_clip_pytorch_model.bin"
        safe = {"open_clip_pytorch_model.bin": "open_clip_model.safetensors"}.get(
            filename, str(Path(filename).with_suffix(".safetensors"))
        )
        files = [_cached(repository, f, cache_dir) for f in (safe, filename)]
        return f"{repository}/{filename}", next((f for f in files if f), None)
    folder = Path(cache_dir) if cache_dir else Path.home() / ".cache" / "clip"
    file = folder / tag["url"].rpartition("/")[2]
    return tag["url"], file if file.is_file() else None


def _cached(repository: str, filename: str, cache_dir: str | None) -> Path | None:
    file = try_to_load_from_cache(repository, filename, cache_dir=cache_dir)
    return Path(file) if isinstance(file, str) else None


def _check_text_tower(source: ClipSource, name: str) -> None:
    text = source.config["text_cfg"]
    if text.get("hf_model_name"):
        raise UserError(
            f"the text tower of {name} is a Hugging Face model ({text['hf_model_name']}), which "
            "has no prompts and cannot be built offline; choose a model with open_clip's own tower"
        )
    if text.get("hf_tokenizer_name") and find_spec("transformers") is None:
        raise UserError(
            f"the tokenizer of {name} ({text['hf_tokenizer_name']}) needs the package "
            "transformers: install it, or choose another model"
        )


def shipped_folder(name: str) -> Path | None:
    """The folder of a model that comes with this package; None for any other."""
    folder = SHIPPED / name
    return folder if (folder / CONFIG).is_file() else None
