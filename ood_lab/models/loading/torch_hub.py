"""Networks of torch.hub, from a folder, its cache or GitHub."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Unpack

import torch.hub
from torch import nn

from ood_lab.common.arguments import Settings
from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath
from ood_lab.models.loading.timm_networks import NetworkSettings, module_backbone
from ood_lab.models.loading.wrapped_network import WrappedBackbone

#: Branches that torch.hub takes where none is named.
_BRANCHES = ("main", "master")


def torch_hub_backbone(
    repo: str,
    name: str,
    source: Literal["github", "local"] = "github",
    download: bool = False,
    kwargs: Settings | None = None,
    weights: StrPath | None = None,
    data_config: Settings | None = None,
    **settings: Unpack[NetworkSettings],
) -> WrappedBackbone:
    """Makes a backbone of what a ``hubconf.py`` offers, whose code is run.

    Args:
        repo: ``OWNER/NAME[:BRANCH]``, or a folder with ``source="local"``.
        name: one of its functions.
        source: ``github`` or ``local``.
        download: fetch code and weights that are not in torch.hub's cache.
        kwargs: arguments of the function.
        weights: a file for the network, before any head is fitted.
        data_config: transform settings of the checkpoint that will be loaded next.
        settings: see :func:`~ood_lab.models.loading.timm_networks.module_backbone`.

    Raises:
        UserError: code or weights are not here, no such function, or a network without a head.
    """
    net = _load(repo, name, source, download, dict(kwargs or {}))
    return module_backbone(
        net,
        weights=weights,
        data_config=data_config,
        name=name,
        remedy="eval.py scores it unchanged; "
        f"model.kwargs={{num_classes: {settings.get('num_classes')}}} builds one for them if the "
        "function takes that",
        **settings,
    )


def _load(repo: str, name: str, source: str, download: bool, arguments: Settings) -> nn.Module:
    folder = Path(repo) if source == "local" else _cached(repo)
    if source == "local" and not Path(repo, "hubconf.py").is_file():
        raise UserError(f"model.repo={repo} holds no hubconf.py: name the folder of a clone")
    if folder is None and not download:
        raise UserError(
            f"model.repo={repo} is not in the cache of torch.hub ({torch.hub.get_dir()}): give "
            "model.download=true to fetch it, or model.source=local and the folder of a clone"
        )
    failure = f"model.name={name} of {repo} cannot be made: {{kind}}: {{reason}}"
    with reported_as(failure), _allowed(download, name):
        if folder is None:
            options = {"source": "github", "skip_validation": True, "trust_repo": True}
            net = torch.hub.load(repo, name, verbose=False, **options, **arguments)
        else:
            net = torch.hub.load(str(folder), name, source="local", **arguments)
    if not isinstance(net, nn.Module):
        raise UserError(f"model.name={name} of {repo} is a {type(net).__name__}, not an nn.Module")
    return net


def _cached(repo: str) -> Path | None:
    """The folder in torch.hub's cache; None where it is not there."""
    place, _, branch = repo.partition(":")
    stem = place.replace("/", "_")
    branches = (branch.replace("/", "_"),) if branch else _BRANCHES
    folders = [Path(torch.hub.get_dir()) / f"{stem}_{branch}" for branch in branches]
    return next((path for path in folders if (path / "hubconf.py").is_file()), None)


@contextmanager
def _allowed(download: bool, name: str) -> Iterator[None]:
    """Inside, torch.hub fetches weights that are not in its cache only with ``download``."""

    def refuse(url: str, place: str, *_: Any, **__: Any) -> None:
        raise UserError(
            f"the weights of {name} are not in the cache of torch.hub: give model.download=true, "
            f"or fetch {url} elsewhere and put it at {place}"
        )

    fetch = torch.hub.download_url_to_file
    vars(torch.hub)["download_url_to_file"] = fetch if download else refuse
    try:
        yield
    finally:
        vars(torch.hub)["download_url_to_file"] = fetch
