"""The CLIPs that come with the package know only the builtin images: they cannot judge others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ood_lab.clip.loading import folder_facts
from ood_lab.clip.weight_sources import shipped_folder
from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError

_REAL = {
    "clip": "clip=vit_b32 (clip.download=true fetches it once)",
    "image_text": '"image_text=[clip]" image_text.clip.path=DIR, or "image_text=[open_clip]" with '
    "image_text.open_clip.clip.name and .pretrained",
}
#: The package of everything that makes builtin images.
_BUILTIN = "ood_lab.builtin."


def refuse_foreign(settings: Settings, images: tuple[str, ...], judges: tuple[str, ...]) -> None:
    """Rejects a shipped CLIP where images that are not builtin come before it.

    Nothing is loaded: the name of the CLIP and the target of the images' node decide.

    Args:
        settings: the configuration.
        images: groups that the images come from, ``annotations`` or ``generator``; one that the
            configuration leaves empty gives none.
        judges: groups of the CLIPs, ``clip`` or ``image_text``.

    Raises:
        UserError: such a CLIP, with a line that names a real one.
    """
    for group in images:
        if (node := settings.get(group)) and not is_builtin(node):
            name = node.get("name")
            refuse_shipped(settings, f"{group}={name}" if name else f"this {group}", judges)


def refuse_shipped(settings: Settings, source: str, judges: tuple[str, ...]) -> None:
    """Rejects a shipped CLIP.

    Args:
        settings: the configuration.
        source: of the images, which are not builtin.
        judges: groups of the CLIPs.

    Raises:
        UserError: see :func:`refuse_foreign`.
    """
    for group in judges:
        for label, knows in shipped_clips(settings, group):
            raise UserError(
                f"{label} comes with the package and knows {knows}: what it says of the images "
                f"of {source} means nothing. Choose a real one, such as {_REAL[group]}; "
                "task.foreign_clip=true takes it all the same, to try the pipeline"
            )


def shipped_clips(settings: Settings, group: str) -> Iterator[tuple[str, str]]:
    """What to call each CLIP of a group that comes with the package, and what it knows."""
    node = settings.get(group) or {}
    if group == "clip":
        clips = {f"clip.name={node.get('name')}": node}
    else:
        clips = {f"image_text={label}": model.get("clip") for label, model in node.items()}
    for label, clip in clips.items():
        folder = shipped_folder(str(clip.get("name"))) if isinstance(clip, Mapping) else None
        if knows := folder and folder_facts(folder).knows:
            yield label, str(knows)


def is_builtin(node: Settings) -> bool:
    """Whether a node of the configuration makes builtin images."""
    return str(node.get("_target_")).startswith(_BUILTIN)
