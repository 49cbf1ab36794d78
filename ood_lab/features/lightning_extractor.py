"""The extraction pass as Lightning sees it: one forward per chunk, everything read from it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain
from typing import Any
from weakref import WeakKeyDictionary

import psutil
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from torch import Tensor, nn
from torch.nn import functional as F

from ood_lab.common.progress import Pace
from ood_lab.common.tensor_arithmetic import full_precision
from ood_lab.common.tensor_file import Batch, Tensors
from ood_lab.features.extraction_hooks import Columns, GradientColumn, input_gradients
from ood_lab.models.backbone import Backbone
from ood_lab.models.forward_hooks import hooked
from ood_lab.models.output import Output
from ood_lab.models.trial_passes import evaluating, kept_state
from ood_lab.schema.run_record import Facts

#: Share of the free memory that the activations of a chunk may take.
MEMORY_SHARE = 0.25
#: Images of a chunk, by kind of work; they serve all passes of a network, halved ones too.
_CHUNKS: WeakKeyDictionary[Backbone, dict[Hashable, int]] = WeakKeyDictionary()


def chunk_size(backbone: Backbone, image: Tensor, graph: bool, processes: int) -> int:
    """How many images go through a network together.

    As many as a share of the free memory holds, by the activations of one image, and at most
    :func:`most_images`.

    Args:
        backbone: the network.
        image: some images, ``[B, 3, H, W]``, on their device.
        graph: the work keeps activations for a backward pass.
        processes: that share the memory of this machine.
    """
    if image.device.type == "cuda":
        unused = torch.cuda.memory_reserved(image.device) - torch.cuda.memory_allocated(
            image.device
        )
        free = torch.cuda.mem_get_info(image.device)[0] + unused
    else:
        free = psutil.virtual_memory().available // processes
    fitting = int(MEMORY_SHARE * free) // max(1, activation_bytes(backbone, image[:1], graph))
    most = most_images(image.device.type, image.shape[2], image.shape[3])
    return max(1, min(most, fitting))


def most_images(device: str, height: int, width: int) -> int:
    """Images of a chunk where memory is no bound, a power of two.

    On a CPU 2¹¹ over the side of an image (64 images of 32 x 32 pixels, 8 of 224 x 224): layers of
    that many stay in its caches, and those of small images have enough to do. On a GPU about 2²³
    pixels.
    """
    pixels = height * width
    images = 2**11 / math.sqrt(pixels) if device == "cpu" else 2**23 / pixels
    return 2 ** int(math.log2(max(1, images)))


def is_convolutional(backbone: Backbone) -> bool:
    """Whether most layers are convolutions: such a network is fastest in ``channels_last``.

    ConvNeXt, Swin and ViT, whose layers are mostly linear, gain nothing by it or lose.
    """
    convolutions = sum(isinstance(module, nn.Conv2d) for module in backbone.modules())
    return convolutions > sum(isinstance(module, nn.Linear) for module in backbone.modules())


def memory_format_of(backbone: Backbone) -> torch.memory_format:
    """How the weights of convolutions lie."""
    plain = all(weight.is_contiguous() for weight in backbone.parameters() if weight.ndim == 4)
    return torch.contiguous_format if plain else torch.channels_last


def activation_bytes(backbone: Backbone, image: Tensor, graph: bool) -> int:
    """Bytes of activations of ``image [1, 3, H, W]``.

    With a graph all that autograd keeps for the backward pass, each storage once (a layer and the
    activation that works in its place share one), and the largest once more; without a graph three
    times the largest, as inputs and outputs of a layer and a shortcut live at the same time.
    """
    kept: dict[int, int] = {}
    largest = 0
    weights = {
        w.untyped_storage().data_ptr() for w in chain(backbone.parameters(), backbone.buffers())
    }

    def keep(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return value

    def note(module: nn.Module, inputs: object, output: object) -> None:
        nonlocal largest
        if isinstance(output, Tensor):
            largest = max(largest, output.nbytes)

    leaves = [module for module in backbone.modules() if not list(module.children())]
    handles = [leaf.register_forward_hook(note) for leaf in leaves]
    with (
        evaluating(backbone),
        hooked(handles),
        torch.set_grad_enabled(graph),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value),
    ):
        # The graph lives until all is counted: no address is then given out twice.
        output = backbone(image.detach().clone().requires_grad_(graph))
    del output
    return sum(kept.values()) + largest if graph else 3 * largest


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


class Extractor(LightningModule):
    """Computes features, logits and columns of a batch; use it inside :func:`frozen`.

    A batch goes through the network in chunks of :func:`chunk_size` images, halved where memory
    runs out; each leaves nothing but its rows behind.

    Images may be tiles ``[B, T, 3, H, W]``: their features and logits are the mean over the tiles.

    ``predict_step`` returns ``index [B]``, ``labels [B]``, ``features [B, D] float32``,
    ``logits [B, C] float32``, ``finite`` (both, everywhere) and ``columns {key: [B, ...]}``.
    Nothing in it reads a value from the device.

    Args:
        backbone: the network.
        columns: what else to compute.
        batch_size: of the loader; no chunk is larger.
        description: what the progress bar shows.
        processes: that share the memory of this machine.

    Raises:
        UserError: the backbone cannot serve a column.
    """

    def __init__(
        self,
        backbone: Backbone,
        columns: Columns = (),
        batch_size: int = 256,
        description: str = "Extracting",
        processes: int = 1,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.batch_size = batch_size
        self.description = description
        self.processes = processes
        self.chunk: int | None = None  # known from the first batch on
        self._columns = list(columns)
        self._by_gradient = [column for column in columns if isinstance(column, GradientColumn)]
        self._layers = {column.key: column.layers(backbone) for column in columns}
        self._maps: Tensors = {}
        self._hooks = ExitStack()
        self._arranged = self._own_format = memory_format_of(backbone)
        linear = not is_convolutional(backbone)
        self.memory_format = self._own_format if linear else torch.channels_last

    @property
    def chunk_facts(self) -> Facts:
        """The chunk, for the record of a bank."""
        if self.chunk is None:  # other processes had the images
            return {}
        return {"chunk": self.chunk, "memory_format": str(self.memory_format).split(".")[-1]}

    def on_predict_start(self) -> None:
        """Places hooks and weights once, in the process that predicts: hooks cannot travel."""
        self._arrange(self.memory_format)
        layers = sorted({layer for layers in self._layers.values() for layer in layers})
        if layers:
            self._maps = self._hooks.enter_context(self.backbone.capture(layers))

    def outputs(self, image: Tensor) -> Tensors:
        """Features, logits and columns of some images, by name, without a trainer."""
        return self._of_images(self._compute(image.flatten(0, -4)), image)

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

    def transfer_batch_to_device(
        self, batch: Batch, device: torch.device, dataloader_idx: int
    ) -> Batch:
        """The batch itself: its images are there (:mod:`ood_lab.features.extraction_pass`)."""
        return batch

    def predict_step(self, batch: Batch, batch_idx: int) -> Batch:
        """Computes what the class says of ``image``, ``index``, ``label``; nothing of no images."""
        if "image" not in batch:
            return {}
        image = batch["image"].flatten(0, -4)
        sizes, key = _CHUNKS.setdefault(self.backbone, {}), self._kind_of_work(image)
        if key not in sizes:
            graph = bool(self._by_gradient)
            sizes[key] = chunk_size(self.backbone, image, graph, self.processes)
        rows: list[Tensors] = []
        done = 0
        while done < len(image):
            self.chunk = min(sizes[key], max(self.batch_size, len(image)))
            part = image[done : done + self.chunk]
            computed = self._attempt(part)
            if computed is None:
                sizes[key] = self.chunk // 2
            else:
                rows.append(computed)
                done += len(part)
        joined = {key: torch.cat([row[key] for row in rows]) for key in rows[0]}
        joined = self._of_images(joined, batch["image"])
        base = {key: joined.pop(key) for key in ("features", "logits")}
        finite = torch.stack([torch.isfinite(values).all() for values in base.values()]).all()
        passed = {"index": batch["index"], "labels": batch["label"], "finite": finite}
        return {**base, **passed, "columns": joined}

    def _of_images(self, rows: Tensors, image: Tensor) -> Tensors:
        """The rows of images, of those of their tiles ``[B, T, 3, H, W]``, if they have any."""
        if image.ndim < 5:
            return rows
        kept = {column.key for column in self._columns if column.of_tiles}

        def of_image(key: str, values: Tensor) -> Tensor:
            values = values.unflatten(0, image.shape[:2])
            if key in kept:
                return values
            return values.mean(1) if values.is_floating_point() else values.mode(1).values

        return {key: of_image(key, values) for key, values in rows.items()}

    def _kind_of_work(self, image: Tensor) -> Hashable:
        autocast = torch.is_autocast_enabled(image.device.type)
        return (*self._layers, image.shape[1:], image.device, autocast, self.processes)

    def _attempt(self, image: Tensor) -> Tensors | None:
        """The rows of a chunk; None where it does not fit into memory."""
        try:
            return self._compute(image.contiguous(memory_format=self.memory_format))
        except torch.OutOfMemoryError:
            if len(image) == 1:
                raise
        # Outside the handler, whose traceback holds the tensors of the attempt.
        torch.cuda.empty_cache()
        return None

    def _compute(self, image: Tensor) -> Tensors:
        """Features, logits and all columns, by name."""
        graph = bool(self._by_gradient)
        with torch.enable_grad() if graph else torch.inference_mode():
            output = self.backbone(image.requires_grad_(graph))
        # A column may run the network again, which overwrites what the hooks collect.
        maps = dict(self._maps)
        features = output.features.detach().float()
        base = {"features": features, "logits": self._logits(output.logits.detach(), features)}
        return base | self._compute_columns(image, output, maps)

    def _logits(self, logits: Tensor, features: Tensor) -> Tensor:
        """Logits that agree with the stored features where autocast has rounded the head."""
        head = self.backbone.head
        if logits.dtype == torch.float32 or head is None:
            return logits.float()
        with full_precision(features):
            bias = None if head.bias is None else head.bias.float()
            return F.linear(features, head.weight.float(), bias)

    def _compute_columns(self, image: Tensor, output: Output, maps: Tensors) -> Tensors:
        gradients = input_gradients(self._by_gradient, image, output.logits, maps)
        image, output = image.detach(), Output(output.logits.detach(), output.features.detach())
        maps = {layer: value.detach() for layer, value in maps.items()}
        values: Tensors = {}
        with torch.inference_mode():
            for column in self._columns:
                if isinstance(column, GradientColumn):
                    gradient = gradients[column.direction_key]
                    value = column.of_gradient(self.backbone, image, output, maps, gradient)
                else:
                    value = column.compute(self.backbone, image, output, maps)
                values[column.key] = value.float() if value.is_floating_point() else value
        return values


class ExtractionProgressBar(RichProgressBar):
    """A ``RichProgressBar`` that says whose features a pass computes."""

    @property
    def predict_description(self) -> str:
        """``test`` instead of ``Predicting`` while the images of ``test`` pass."""
        return str(self.trainer.lightning_module.description)


class ExtractionLog(Callback):
    """Logs the progress about once a minute, for those who see no bar."""

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Looks at the clock."""
        self._pace = Pace(int(sum(trainer.num_predict_batches)))

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        *_: Any,
    ) -> None:
        """Logs the share done and the time left, on the main process."""
        if trainer.is_global_zero and self._pace.total and self._pace.due:
            done = batch_idx + 1
            share, left = done / self._pace.total, self._pace.left(done)
            text = f"'{pl_module.description}': {share:.0%} of the images passed"
            self._pace.line(", ".join(filter(None, (text, left))))
