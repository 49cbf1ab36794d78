"""Backbones, their weights and transforms, and the module that trains them."""

from ood_lab.models.backbone import Backbone
from ood_lab.models.build import module_backbone, timm_backbone
from ood_lab.models.classifier import Classifier
from ood_lab.models.contract import check_contract
from ood_lab.models.epoch_seed import EpochSeed
from ood_lab.models.headless import FITTED
from ood_lab.models.hf import hf_backbone
from ood_lab.models.length import epochs_for
from ood_lab.models.losses import LogitNorm, OutlierExposure
from ood_lab.models.onnx_file import onnx_backbone, onnx_session, require_onnx
from ood_lab.models.openood import ResNet18For32
from ood_lab.models.output import Output
from ood_lab.models.own_training import OwnTraining, own_steps
from ood_lab.models.progress_bar import TrainingProgressBar
from ood_lab.models.torch_hub import torch_hub_backbone
from ood_lab.models.training_log import TrainingLog, total_steps
from ood_lab.models.transform import train_transform
from ood_lab.models.tv import torchvision_backbone
from ood_lab.models.weights import load_weights, saved_entry, saved_labels, weights_sha256
from ood_lab.models.wrapped import WrappedBackbone

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
    "WrappedBackbone",
    "check_contract",
    "epochs_for",
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
