"""Hugging Face's hub, asked once whether it is there, and the models that are in its cache."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from huggingface_hub import constants
from huggingface_hub.utils import get_session

from ood_lab.common.errors import reported_as

#: Seconds to wait for an answer.
TIMEOUT = 10
#: How models are named on the hub, and which of their files are fetched.
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_FILES = ["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt", "*.py"]


def model_folder(name: str, setting: str, download: bool) -> Path:
    """The folder of a model: ``name`` itself, or where the model of that name is in the cache.

    A folder that does not exist is returned where ``name`` cannot be one of the hub.

    Args:
        name: a folder, or ``OWNER/NAME``.
        setting: where the user wrote it, such as ``model.path``.
        download: fetch a model that is not in the cache.

    Raises:
        UserError: such a model is not here, and is not to be fetched or cannot be.
    """
    place = Path(name)
    if place.exists() or not _HUB_ID.fullmatch(name):
        return place
    from huggingface_hub import snapshot_download

    if download:
        problem = "cannot be downloaded ({reason}): fetch it elsewhere, and name its folder"
    else:
        problem = (
            "is not a directory, and no model of that name is in the hub's cache: name the folder "
            f"of a model, or give {setting.partition('.')[0]}.download=true to fetch it"
        )
    with reported_as(f"{setting}={name} {problem}"), one_attempt() if download else nullcontext():
        return Path(snapshot_download(name, allow_patterns=_FILES, local_files_only=not download))


@contextmanager
def one_attempt() -> Iterator[None]:
    """Inside, the hub's files come only from its cache if the hub cannot be reached now.

    Its own client tries a host that is not there for a minute and more, file by file, cached or
    not.
    """
    offline = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = offline or not _reachable()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = offline


def _reachable() -> bool:
    try:
        get_session().head(constants.ENDPOINT, timeout=TIMEOUT)
    except Exception:  # requests' in older versions of the hub's client, httpx's in newer ones
        return False
    return True
