"""Semantic and covariate shift of data from an ID set: LAID, shift degrees, levels.

Works on plain feature tensors of any CLIP; texts are encoded by a callable.
"""

from ood_lab.shift.dataset_shift import shift_results as shift_results
from ood_lab.shift.dataset_shift import summarise_degrees as summarise_degrees
from ood_lab.shift.image_statistics import STATISTICS_VERSION as STATISTICS_VERSION
from ood_lab.shift.image_statistics import StatisticsDistance as StatisticsDistance
from ood_lab.shift.image_statistics import image_statistics as image_statistics
from ood_lab.shift.laid import Decomposition as Decomposition
from ood_lab.shift.laid import ShiftDegrees as ShiftDegrees
from ood_lab.shift.laid import ShiftMeter as ShiftMeter
from ood_lab.shift.laid import load_decomposition as load_decomposition
from ood_lab.shift.laid import pca_decomposition as pca_decomposition
from ood_lab.shift.laid import polar_factor as polar_factor
from ood_lab.shift.laid import save_decomposition as save_decomposition
from ood_lab.shift.laid import undecomposed as undecomposed
from ood_lab.shift.laid_training import LaidTraining as LaidTraining
from ood_lab.shift.laid_training import Triplets as Triplets
from ood_lab.shift.laid_training import hinge_loss as hinge_loss
from ood_lab.shift.laid_training import orthogonality_error as orthogonality_error
from ood_lab.shift.laid_training import triplet_distances as triplet_distances
from ood_lab.shift.level_edges import LEVELS as LEVELS
from ood_lab.shift.level_edges import Edges as Edges
from ood_lab.shift.level_edges import cell_counts as cell_counts
from ood_lab.shift.level_edges import load_edges as load_edges
from ood_lab.shift.level_edges import pool_edges as pool_edges
from ood_lab.shift.level_edges import save_edges as save_edges
from ood_lab.shift.rulers import CLASS_UNITS as CLASS_UNITS
from ood_lab.shift.rulers import RATIO as RATIO
from ood_lab.shift.rulers import SEVERITY as SEVERITY
from ood_lab.shift.rulers import Ruler as Ruler
from ood_lab.shift.rulers import RulerReading as RulerReading
from ood_lab.shift.rulers import Sample as Sample
from ood_lab.shift.rulers import read_ruler as read_ruler
from ood_lab.shift.separability import SetSeparability as SetSeparability
from ood_lab.shift.separability import bhattacharyya as bhattacharyya
from ood_lab.shift.separability import fit_projection as fit_projection
from ood_lab.shift.separability import separability as separability
from ood_lab.shift.text_grid import FeatureGrid as FeatureGrid
from ood_lab.shift.text_grid import encode_grid as encode_grid
from ood_lab.shift.text_grid import imagenet21k_labels as imagenet21k_labels
from ood_lab.shift.text_grid import imagenet_templates as imagenet_templates
from ood_lab.shift.text_grid import read_texts as read_texts
