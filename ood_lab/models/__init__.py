"""Backbones, their weights and transforms, and the module that trains them."""

from ood_lab.models.backbone import Backbone
from ood_lab.models.determinism_check import check_determinism
from ood_lab.models.dropout_sample import dropout_sample
from ood_lab.models.head_check import check_contract
from ood_lab.models.image_transforms import train_transform
from ood_lab.models.loading.exported_file import exported_backbone
from ood_lab.models.loading.headless_networks import FITTED
from ood_lab.models.loading.huggingface_networks import hf_backbone
from ood_lab.models.loading.onnx_file import onnx_backbone, onnx_session, require_onnx
from ood_lab.models.loading.openood_resnet import ResNet18For32
from ood_lab.models.loading.timm_networks import module_backbone, timm_backbone
from ood_lab.models.loading.torch_hub import torch_hub_backbone
from ood_lab.models.loading.torchvision_networks import torchvision_backbone
from ood_lab.models.loading.wrapped_network import WrappedBackbone
from ood_lab.models.output import Output
from ood_lab.models.training.checkpoint_files import WholeCheckpointIO
from ood_lab.models.training.classifier import Classifier
from ood_lab.models.training.epoch_seed import EpochSeed
from ood_lab.models.training.foreign_module import OwnTraining, own_steps
from ood_lab.models.training.losses import LogitNorm, OutlierExposure
from ood_lab.models.training.progress_bar import TrainingProgressBar
from ood_lab.models.training.training_length import epochs_for
from ood_lab.models.training.training_log import TrainingLog, total_steps
from ood_lab.models.weights import load_weights, saved_entry, saved_labels, weights_sha256
from ood_lab.models.weights_entries import WeightsFile

__all__ = [
    "FITTED",
    "Backbone",
    "Classifier",
    "EpochSeed",
    "LogitNorm",
    "OutlierExposure",
    "Output",
    "OwnTraining",
    "ResNet18For32",
    "TrainingLog",
    "TrainingProgressBar",
    "WeightsFile",
    "WholeCheckpointIO",
    "WrappedBackbone",
    "check_contract",
    "check_determinism",
    "dropout_sample",
    "epochs_for",
    "exported_backbone",
    "hf_backbone",
    "load_weights",
    "module_backbone",
    "onnx_backbone",
    "onnx_session",
    "own_steps",
    "require_onnx",
    "saved_entry",
    "saved_labels",
    "timm_backbone",
    "torch_hub_backbone",
    "torchvision_backbone",
    "total_steps",
    "train_transform",
    "weights_sha256",
]
