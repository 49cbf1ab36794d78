"""Semantic and covariate shift of data from an ID set: LAID, shift degrees, levels.

Works on plain feature tensors of any CLIP; texts are encoded by a callable.
"""

from ood_lab.shift.dataset_shift import shift_results, summarise_degrees
from ood_lab.shift.decomposition_files import load_decomposition, save_decomposition
from ood_lab.shift.image_statistics import VERSION as STATISTICS_VERSION
from ood_lab.shift.image_statistics import StatisticsDistance, image_statistics
from ood_lab.shift.label_texts import (
    check_templates,
    imagenet21k_labels,
    imagenet_templates,
    read_texts,
)
from ood_lab.shift.laid import Decomposition, polar_factor, undecomposed
from ood_lab.shift.laid_training import LaidTraining
from ood_lab.shift.level_cells import cell_counts, present_cells, write_imglist
from ood_lab.shift.level_edges import (
    LEVELS,
    Edges,
    assign_levels,
    load_edges,
    pool_edges,
    save_edges,
)
from ood_lab.shift.pca import pca_decomposition
from ood_lab.shift.rulers import CLASS_UNITS, RATIO, SEVERITY, Reading, Ruler, Sample, read_ruler
from ood_lab.shift.separability import Separability, bhattacharyya, fit_projection, separability
from ood_lab.shift.shift_degree import ShiftDegrees, ShiftMeter
from ood_lab.shift.text_grid import EncodedGrid, FeatureGrid, encode_grid
from ood_lab.shift.triplets import Triplets, orthogonality_error, triplet_distances, triplet_losses

__all__ = [
    "CLASS_UNITS",
    "LEVELS",
    "RATIO",
    "SEVERITY",
    "STATISTICS_VERSION",
    "Decomposition",
    "Edges",
    "EncodedGrid",
    "FeatureGrid",
    "LaidTraining",
    "Reading",
    "Ruler",
    "Sample",
    "Separability",
    "ShiftDegrees",
    "ShiftMeter",
    "StatisticsDistance",
    "Triplets",
    "assign_levels",
    "bhattacharyya",
    "cell_counts",
    "check_templates",
    "encode_grid",
    "fit_projection",
    "image_statistics",
    "imagenet21k_labels",
    "imagenet_templates",
    "load_decomposition",
    "load_edges",
    "orthogonality_error",
    "pca_decomposition",
    "polar_factor",
    "pool_edges",
    "present_cells",
    "read_ruler",
    "read_texts",
    "save_decomposition",
    "save_edges",
    "separability",
    "shift_results",
    "summarise_degrees",
    "triplet_distances",
    "triplet_losses",
    "undecomposed",
    "write_imglist",
]
