"""The extraction pass as Lightning sees it: one forward per chunk, everything read from it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn import functional as F

from ood_lab.common.tensor_file import Tensors
from ood_lab.features.chunk_choice import Chunk, ChunkSearch, chunk_search, memory_format_of
from ood_lab.features.extraction_hooks import BankColumn, GradientColumn, input_gradients
from ood_lab.models.backbone import Backbone
from ood_lab.models.output import Output
from ood_lab.models.trial_passes import kept_state


@contextmanager
def frozen(backbone: Backbone) -> Iterator[None]:
    """Puts the backbone into eval mode without parameter gradients, and back afterwards."""
    gradients = {parameter: parameter.requires_grad for parameter in backbone.parameters()}
    with kept_state(backbone):
        backbone.eval().requires_grad_(False)
        try:
            yield
        finally:
            for parameter, required in gradients.items():
                parameter.requires_grad_(required)


class _Stopwatch:
    """Seconds that a device works, from when it has finished earlier work.

    On a CPU they are those of the processor, in this thread or, if that is more, in each of the
    threads that share the work: other programs, for which all wait, then do not count.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._start = device, self._now(device)

    @staticmethod
    def _now(device: torch.device) -> tuple[float, ...]:
        if device.type == "cpu":
            return time.thread_time(), time.process_time() / torch.get_num_threads()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return (time.perf_counter(),)

    def seconds(self) -> float:
        now = self._now(self._device)
        return max(end - start for start, end in zip(self._start, now, strict=True))


_BASE = ("features", "logits")


class Extractor(LightningModule):
    """Computes features, logits and columns of a batch; use it inside :func:`frozen`.

    A batch goes through the network in chunks, see :class:`ChunkSearch`; each leaves nothing but
    its rows behind.

    ``predict_step`` returns ``index [B]``, ``columns {key: [B, ...]}`` and, with ``base``,
    ``features [B, D] float32``, ``logits [B, C] float32``, ``labels [B]``.

    Args:
        backbone: the network.
        columns: what else to compute.
        base: whether features, logits and labels are wanted.
        batch_size: of the loader; no chunk is larger.
        description: what the progress bar shows.
        processes: that share the memory of this machine.
        choices: folder of the chunks that earlier runs have found; None = each finds its own.

    Raises:
        UserError: the backbone cannot serve a column.
    """

    def __init__(
        self,
        backbone: Backbone,
        columns: Sequence[BankColumn] = (),
        base: bool = True,
        batch_size: int = 256,
        description: str = "Extracting",
        processes: int = 1,
        choices: Path | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.base = base
        self.batch_size = batch_size
        self.description = description
        self.processes = processes
        self.choices = choices
        self.needs_input_grad = any(column.needs_input_grad for column in columns)
        self._columns = list(columns)
        self._layers = {column.key: column.layers(backbone) for column in columns}
        self._maps: Tensors = {}
        self._hooks = ExitStack()
        self._search: ChunkSearch | None = None
        self._arranged = self._own_format = memory_format_of(backbone)

    def progress(self, share: float) -> str:
        """Says what has been done with a share of the images."""
        return f"features of '{self.description}': {share:.0%} extracted"

    @property
    def column_keys(self) -> list[str]:
        """Keys of the columns that ``predict_step`` computes."""
        return [column.key for column in self._columns]

    @property
    def chunk(self) -> Chunk | None:
        """The fastest so far; None before the first batch."""
        return self._search.best if self._search else None

    @property
    def told(self) -> str:
        """The fastest so far, for the end of a line of the log; empty before the first batch."""
        chosen = "{chunk} at a time, {memory_format}"
        return f", {chosen.format(**self.chunk.describe())}" if self.chunk else ""

    def keep_chunk(self) -> None:
        """Writes the chunk down for the next run."""
        if self._search:
            self._search.keep()

    def on_predict_start(self) -> None:
        """Places the hooks once, in the process that predicts: they cannot travel to another."""
        layers = sorted({layer for layers in self._layers.values() for layer in layers})
        if layers:
            self._maps = self._hooks.enter_context(self.backbone.capture(layers))

    def seconds(self, image: Tensor) -> float:
        """Seconds of wall time that images take, the less of two runs, without a trainer."""
        times = []
        self.on_predict_start()
        try:
            with frozen(self.backbone):
                for _ in range(2):
                    start = time.perf_counter()
                    self._compute(image.clone())
                    if image.device.type == "cuda":
                        torch.cuda.synchronize(image.device)
                    times.append(time.perf_counter() - start)
        finally:
            self.close()
        return min(times)

    def outputs(self, image: Tensor) -> Tensors:
        """Features and logits of some images, by name, without a trainer."""
        return self._compute(image)

    def close(self) -> None:
        """Leaves the backbone as it was; also needed after a pass that failed."""
        self._hooks.close()
        self._maps = {}
        self._arrange(self._own_format)

    def _arrange(self, memory_format: torch.memory_format) -> None:
        """Lays the weights out in memory.

        Those in that order are unchanged: of a 1 x 1 convolution even the order of strides
        that mean nothing decides which kernel PyTorch takes, and so the last digit.
        """
        if memory_format != self._arranged:
            # Weights made in inference mode could never be trained again.
            with torch.inference_mode(False):
                self.backbone.to(memory_format=memory_format)
            self._arranged = memory_format

    def predict_step(self, batch: Tensors, batch_idx: int) -> dict[str, Any]:
        """Computes what the class says of one batch of ``image``, ``index``, ``label``."""
        image = batch["image"]
        if self._search is None:
            work = (self.base, *self.column_keys)
            self._search = chunk_search(
                self.backbone,
                image,
                self.batch_size,
                self.needs_input_grad,
                work,
                self.processes,
                self.choices,
            )
        rows: list[Tensors] = []
        done = 0
        while done < len(image):
            part = image[done : done + self._search.chunk.size]
            computed = self._attempt(part, self._search)
            if computed is not None:
                rows.append(computed)
                done += len(part)
        joined = {key: torch.cat([row[key] for row in rows]) for key in rows[0]} if rows else {}
        base = {key: joined.pop(key) for key in _BASE} if self.base else {}
        labels = {"labels": batch["label"]} if self.base else {}
        return {"index": batch["index"], **base, **labels, "columns": joined}

    def _attempt(self, image: Tensor, search: ChunkSearch) -> Tensors | None:
        """The rows of a chunk; None where it did not fit into memory and will be halved."""
        chosen = search.chunk.memory_format
        self._arrange(chosen)
        image = image.contiguous(memory_format=chosen)
        watch = _Stopwatch(image.device)
        try:
            rows = self._compute(image)
        except torch.OutOfMemoryError:
            if not search.halve():
                raise
            rows = None
        if rows is None:  # outside the handler, whose traceback holds the tensors of the attempt
            torch.cuda.empty_cache()
            return None
        search.record(len(image), watch.seconds())
        return rows

    def _compute(self, image: Tensor) -> Tensors:
        """Features and logits, where they are wanted, and all columns, by name."""
        output, maps = self._forward(image, self.needs_input_grad)
        base: Tensors = {}
        if self.base:
            features = output.features.detach().float()
            base = {"features": features, "logits": self._logits(output.logits.detach(), features)}
        return base | self._compute_columns(image, output, maps)

    def _forward(self, image: Tensor, graph: bool) -> tuple[Output, Tensors]:
        if not graph:
            with torch.inference_mode():
                return self.backbone(image), dict(self._maps)
        with torch.enable_grad():
            output = self.backbone(image.requires_grad_())
        # A column may run the network again, which overwrites what the hooks collected.
        return output, dict(self._maps)

    def _logits(self, logits: Tensor, features: Tensor) -> Tensor:
        """Logits that agree with the stored features where autocast has rounded the head."""
        head = self.backbone.head
        if logits.dtype == torch.float32 or head is None:
            return logits.float()
        with torch.autocast(features.device.type, enabled=False):
            bias = None if head.bias is None else head.bias.float()
            return F.linear(features, head.weight.float(), bias)

    def _compute_columns(self, image: Tensor, output: Output, maps: Tensors) -> Tensors:
        plain_output = Output(output.logits.detach(), output.features.detach())
        plain_maps = {layer: value.detach() for layer, value in maps.items()}
        by_gradient = [c for c in self._columns if isinstance(c, GradientColumn)]
        values: Tensors = {}
        for column in self._columns:
            if not column.needs_input_grad:
                with torch.inference_mode():
                    value = column.compute(self.backbone, image.detach(), plain_output, plain_maps)
                values[column.key] = value
        if by_gradient:
            gradients = input_gradients(by_gradient, image, output.logits)
            for shared in by_gradient:
                gradient = gradients[shared.direction_key]
                with torch.inference_mode():
                    values[shared.key] = shared.of_gradient(
                        self.backbone, image.detach(), plain_output, gradient
                    )
        values |= self._on_graphs(image, output, maps, fresh=not by_gradient)
        return {
            key: value.detach().float() if value.is_floating_point() else value.detach()
            for key, value in values.items()
        }

    def _on_graphs(self, image: Tensor, output: Output, maps: Tensors, fresh: bool) -> Tensors:
        """The columns that need a graph of their own; ``fresh``: that of ``output`` is unused."""
        values: Tensors = {}
        for column in self._columns:
            if isinstance(column, GradientColumn) or not column.needs_input_grad:
                continue
            # A backward pass frees the graph; the next column needs its own.
            if not fresh:
                output, maps = self._forward(image, graph=True)
            fresh = False
            with torch.enable_grad():
                values[column.key] = column.compute(self.backbone, image, output, maps)
        return values
