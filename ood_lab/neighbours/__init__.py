"""The one exact nearest-neighbour search: shift degrees and the KNN detector, CPU and GPU."""

from ood_lab.neighbours.nearest import nearest_rows
from ood_lab.neighbours.rows import Rows
from ood_lab.neighbours.search import Groups, NeighbourSearch, Progress, check_k

__all__ = ["Groups", "NeighbourSearch", "Progress", "Rows", "check_k", "nearest_rows"]
