"""The sets of weights in a checkpoint, and the one of them that is a network's."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from ood_lab.common.english import listed
from ood_lab.common.errors import UserError
from ood_lab.common.files import StrPath
from ood_lab.common.grouping import without_keys
from ood_lab.common.tensor_file import Tensors
from ood_lab.models.weights_formats import Checkpoint, read_weights, say, weight_lists, weight_sets

#: What training code puts before the names of the network's tensors, and not of another's.
_PREFIXES = {"", "module", "model", "net", "backbone"}
#: What torch.compile, FSDP and others put into names, between any two words.
_MARKS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module")
#: Words anywhere in a name that may be those of a wrapper.
_WRAPPERS = {"module", "model", "net", "network", "backbone", "encoder", "student", "_module"}
#: Where a checkpoint has its weights; the first of several is taken.
_USUAL = ("", "state_dict", "model_state_dict", "model", "net", "module")
#: Tensors of a network that are no parameters.
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
#: Names of averaged weights, which are the ones to evaluate.
_AVERAGED = re.compile(r"(?i)(^|[._])(ema|swa\w*|averag\w*|avg|polyak|shadow_params|ax)\d*($|[._])")


class WeightsFile(os.PathLike[str]):
    """A file of weights, and which of them are a network's.

    Args:
        path: the file.
        entry: name of one of its sets of weights; None = the averaged ones, if there are any.
        match: ``name``, or ``shape`` = a file that has the shapes of the network in the same order
            under other names is taken as well.
    """

    def __init__(
        self, path: StrPath, entry: str | None = None, match: Literal["name", "shape"] = "name"
    ) -> None:
        self.path, self.entry, self.match = Path(path), entry, match

    @classmethod
    def of(cls, file: StrPath) -> WeightsFile:
        """``file`` itself, or that of a path."""
        return file if isinstance(file, WeightsFile) else cls(file)

    def __fspath__(self) -> str:
        """The path."""
        return str(self.path)

    def __str__(self) -> str:
        """The path."""
        return str(self.path)


@dataclass(frozen=True)
class _Candidate:
    """A set of weights under the names of a network.

    Attributes:
        label: what the user calls it.
        place: of the set in the checkpoint.
        prefix: that its names had.
        tensors: by name.
        hits: names of the network that it has.
        fits: those whose tensors have the right shape, too.
    """

    label: str
    place: str
    prefix: str
    tensors: Tensors
    hits: int
    fits: int


def weights_of(
    file: WeightsFile, target: Tensors, headless: bool = False
) -> tuple[Checkpoint, Tensors]:
    """The whole checkpoint, and those of its weights that are a network's, under its names.

    The weights need not be complete: the caller checks that.

    Args:
        file: the file.
        target: the state dict of the network.
        headless: a file whose tensors are matched by shape may end with a head more.

    Raises:
        UserError: no weights, no set of the wanted name, or several of which none is preferred.
    """
    path = Path(file)
    checkpoint = read_weights(path)
    sets = weight_sets(checkpoint)
    candidates = [c for place, tensors in sets.items() for c in _candidates(place, tensors, target)]
    candidates += _unnamed_averages(checkpoint, candidates, target)
    if not candidates:
        raise UserError(_empty(checkpoint, path))
    labels = list(dict.fromkeys(c.label for c in candidates))
    if file.entry is not None:
        named = [c for c in candidates if file.entry in (c.label, c.place, c.prefix.rstrip("."))]
        if not named:
            raise UserError(
                f"model.weights_entry={file.entry}: {path} has {listed(labels[:8])}, "
                "name one of them"
            )
        candidates = named
    needed = [k for k in target if not k.endswith("num_batches_tracked")]
    complete = _distinct([c for c in candidates if all(k in c.tensors for k in needed)], needed)
    if complete:
        fitting = max(c.fits for c in complete)
        return checkpoint, _chosen([c for c in complete if c.fits == fitting], checkpoint, path)
    best = max(candidates, key=lambda c: (c.hits, c.place in _USUAL, -len(c.prefix)))
    if file.match == "shape":
        return checkpoint, _by_shape(candidates, target, path, headless)
    return checkpoint, best.tensors


def same_shapes(source: Tensors, target: Tensors) -> dict[str, str] | None:
    """Names in ``source`` by those in ``target``, where all shapes are alike, in the same order."""
    a, b = ([k for k in t if not k.endswith("num_batches_tracked")] for t in (source, target))
    alike = [source[k].shape for k in a] == [target[k].shape for k in b]
    return dict(zip(b, a, strict=True)) if alike else None


def _by_shape(candidates: list[_Candidate], target: Tensors, path: Path, headless: bool) -> Tensors:
    for candidate in sorted(candidates, key=lambda c: (not _averaged(c.label), len(c.prefix))):
        tensors = candidate.tensors
        for head in ([], _last_layer(tensors)) if headless else ([],):
            body = without_keys(tensors, head)
            if names := same_shapes(body, target):
                left = f"; its head '{', '.join(head)}' is dropped" if head else ""
                say(path, f"its {len(names)} tensors are taken in their order, by shape{left}")
                return {new: tensors[old] for new, old in names.items()}
    raise UserError(
        f"model.match=shape: no weights in {path} have the shapes of the network in the same order"
    )


def _last_layer(tensors: Tensors) -> list[str]:
    """The tensors of a linear layer, or a 1 x 1 convolution, at the end: a matrix and a bias."""
    last = [*tensors][-2:]
    shapes = [tensors[name].shape for name in last]
    return last if len(last) == 2 and shapes[0][:1] == shapes[1] and len(shapes[0]) > 1 else []


def _empty(checkpoint: Checkpoint, path: Path) -> str:
    keys = ", ".join(str(k) for k in list(checkpoint)[:5])
    if any("optim" in str(k) for k in checkpoint) or {"state", "param_groups"} <= set(checkpoint):
        return (
            f"{path} holds the state of an optimizer, not of a network (its entries: {keys}): give "
            "the file that was saved from net.state_dict()"
        )
    return f"{path} contains no state dict (its entries: {keys or 'none'})"


def _candidates(place: str, tensors: Tensors, target: Tensors) -> Iterator[_Candidate]:
    """One set of weights under the names of a network, by what the file has before these names.

    Words of wrappers do not count where names differ without them, too.
    """
    source = {_without(_MARKS, k): v for k, v in tensors.items()}
    by_name = {_without(_MARKS, k): k for k in target}
    by_words = {_without(_WRAPPERS, name): k for name, k in by_name.items()}
    unique = len(by_words) == len(by_name)

    def renamed(name: str) -> str:
        plain = by_words.get(_without(_WRAPPERS, name), name) if unique else name
        return by_name.get(name, plain)

    # A name of one word, such as ``weight``, is at the end of too many others to tell.
    ends = {name for name in [*target][:1] + [*target][-1:] if "." in name}
    prefixes = {""}
    for name in source:
        cuts = [dot.end() for dot in re.finditer(r"\.", name)]
        prefixes |= {name[:cut] for cut in cuts if renamed(name[cut:]) in ends}
    for prefix in sorted(prefixes, key=lambda prefix: (-len(prefix), prefix)):
        inside = {k.removeprefix(prefix): v for k, v in source.items() if k.startswith(prefix)}
        network = {renamed(k): v for k, v in inside.items()}
        if len(network) < len(inside):
            network = {by_name.get(k, k): v for k, v in inside.items()}
        yield _candidate(place, prefix, network, target)


def _unnamed_averages(
    checkpoint: Checkpoint, candidates: list[_Candidate], target: Tensors
) -> Iterator[_Candidate]:
    """Lists with the shapes of the parameters in their order; buffers are those of a named set."""
    lists = weight_lists(checkpoint)
    if not lists:
        return
    named = max(candidates, key=lambda c: c.fits).tensors if candidates else {}
    parameters = [k for k in target if not k.endswith(_BUFFERS)]
    for place, values in lists.items():
        for names in (parameters, list(target)):
            if [v.shape for v in values] == [target[k].shape for k in names]:
                tensors = named | dict(zip(names, values, strict=True))
                yield _candidate(place, "", tensors, target)
                break


def _candidate(place: str, prefix: str, tensors: Tensors, target: Tensors) -> _Candidate:
    hits = [k for k in target if k in tensors]
    fits = sum(tensors[k].shape == target[k].shape for k in hits)
    label = ".".join(filter(None, (place, prefix.rstrip(".")))) or "weights"
    return _Candidate(label, place, prefix, tensors, len(hits), fits)


def _without(left_out: Collection[str], name: str) -> str:
    """A name without some of its words."""
    return ".".join(word for word in name.split(".") if word not in left_out)


def _distinct(candidates: list[_Candidate], names: list[str]) -> list[_Candidate]:
    """Those with other values; of the same ones, the first."""
    kept: list[_Candidate] = []
    for one in candidates:
        pairs = (((one.tensors[k], other.tensors[k]) for k in names) for other in kept)
        if not any(
            all(a is b or (a.dtype == b.dtype and torch.equal(a, b)) for a, b in pair)
            for pair in pairs
        ):
            kept.append(one)
    return kept


def _averaged(label: str) -> bool:
    return _AVERAGED.search(label) is not None


def _chosen(candidates: list[_Candidate], checkpoint: Checkpoint, path: Path) -> Tensors:
    """The averaged weights, else those at the usual place; says what else there is."""
    averaged = [c for c in candidates if _averaged(c.label)]
    # Both have put the average under state_dict: MMEngine swaps the two when it saves.
    if "current_model_state" in checkpoint or "mmengine_version" in (checkpoint.get("meta") or {}):
        averaged = [c for c in candidates if c.place == "state_dict" and not _averaged(c.prefix)]
    pool = averaged or candidates
    places = [place for place in _USUAL if any(c.place == place for c in pool)]
    pool = [c for c in pool if c.place == places[0]] if places else pool
    usual = [c for c in pool if {*c.prefix.split(".")} <= _PREFIXES]
    taken, labels = (usual or pool)[0], [c.label for c in candidates]
    if len(candidates) == 1:
        return taken.tensors
    if len(usual or pool) > 1 and not usual:
        raise UserError(
            f"{path} holds several such networks, {listed([repr(label) for label in labels])}: "
            f"choose one with model.weights_entry=NAME, such as model.weights_entry={labels[0]}"
        )
    labels.remove(taken.label)
    why = "averaged (EMA) weights are preferred" if averaged else "at the usual place"
    say(
        path,
        f"'{taken.label}' is taken ({why}); the other weights in it that fit are "
        f"{listed(labels[:5])}: model.weights_entry={labels[0]} takes those",
    )
    return taken.tensors
