"""Seconds a training step and peak memory of the prompt learners, over a plain CLIP forward.

Run by hand: ``python -m tests.benchmarks.prompts``. Unit = one forward of the image tower, without
gradients, over the images (ID-like: the views) of that step; the text tower is cropped to the
longest prompt, and ``uncropped`` shows what that saves. Random weights and images cost what real
ones cost. Memory is what a step adds to the resident memory of its own process (on a GPU: the peak
of what is allocated).
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import open_clip
import torch
from torch import Tensor

from ood_lab.clip import ClipModel, load_clip
from ood_lab.prompts import CoOp, IDLike, LoCoOp, PromptLearner, prompt_backbone

SGD = functools.partial(torch.optim.SGD, lr=2e-3)
Step = Callable[[], Tensor]


def model(name: str) -> ClipModel:
    if name == "tiny":
        return load_clip("tiny")
    torch.manual_seed(0)
    return ClipModel(open_clip.create_model(name), open_clip.get_tokenizer(name), name)


def build(method: str, clip: ClipModel, args: argparse.Namespace) -> tuple[Step, Tensor]:
    """One step of a method, and the images that it encodes."""
    names = [f"class {i}" for i in range(args.classes)]
    size = clip.data_config["input_size"][-1]
    images = torch.randn(args.batch, 3, size, size, device=clip.device)
    labels = torch.arange(args.batch, device=clip.device) % args.classes
    batch: dict[str, Any] = {"image": images, "label": labels, "index": labels}
    learner: PromptLearner
    if method == "idlike":
        views = torch.randn(1, 3, args.views * size, size, device=clip.device)
        learner = IDLike(
            prompt_backbone(clip, names, n_outliers=100), SGD, n_selected=args.views // 8
        )
        learner.to(clip.device)
        batch = {"image": views, "label": labels[:1]}
        images = views.unflatten(2, (-1, size)).transpose(1, 2).flatten(0, 1)
        return lambda: step(learner, learner._selected(batch)), images
    backbone = prompt_backbone(clip, names)
    learner = LoCoOp(backbone, SGD) if method == "locoop" else CoOp(backbone, SGD)
    if method == "coop, kept views":
        with torch.no_grad():
            learner._views = clip.encode_image(images)  # type: ignore[union-attr]
    if method == "coop, uncropped":
        plain = clip.text_from_embeddings
        clip.text_from_embeddings = lambda e, ids, crop: plain(e, ids)  # type: ignore[method-assign]
    return lambda: step(learner, batch), images


def step(learner: PromptLearner, batch: dict[str, Any]) -> Tensor:
    """Loss and gradients."""
    loss = torch.stack(list(learner.losses(learner.outputs(batch), batch).values())).sum()
    learner.zero_grad()
    loss.backward()
    return loss


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def peak(device: torch.device) -> float:
    """Bytes in MiB, since the process began."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def measure(method: str, args: argparse.Namespace) -> tuple[float, float, float]:
    """Seconds a step, seconds a forward, MiB that steps add."""
    torch.set_num_threads(args.threads)
    clip = model(args.model).to(args.device)
    work, images = build(method, clip, args)

    @torch.no_grad()
    def forward() -> None:
        for part in images.split(256):
            clip.encode_image(part)

    before = peak(clip.device)
    work()
    added = peak(clip.device) - before
    forward()
    times = [(seconds(work, clip.device), seconds(forward, clip.device)) for _ in range(args.n)]
    own, plain = (statistics.median(column) for column in zip(*times, strict=True))
    return own, plain, added


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny", help="tiny, or an open_clip model: ViT-B-16")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--classes", type=int, default=11)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--views", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-n", type=int, default=5)
    args = parser.parse_args()
    print(f"{args.model} on {args.device}, {args.classes} classes")
    print(f"{'method':20}{'s/step':>10}{'forwards':>10}{'+ MiB':>8}")
    # A process each, started anew, as the peak of a process never falls.
    context = multiprocessing.get_context("spawn")
    for method in ("coop", "coop, kept views", "coop, uncropped", "locoop", "idlike"):
        with context.Pool(1) as pool:
            own, plain, added = pool.apply(measure, (method, args))
        print(f"{method:20}{own:10.4f}{own / plain:10.2f}{added:8.0f}")


if __name__ == "__main__":
    main()
