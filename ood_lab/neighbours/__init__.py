"""The one exact nearest-neighbour search: shift degrees and the KNN detector, CPU and GPU."""

from ood_lab.neighbours.exact_search import Groups, NeighbourSearch, Progress, check_k
from ood_lab.neighbours.nearest_row import nearest_rows
from ood_lab.neighbours.neighbour_count import neighbour_count, neighbours_in_words
from ood_lab.neighbours.row_blocks import Rows

__all__ = [
    "Groups",
    "NeighbourSearch",
    "Progress",
    "Rows",
    "check_k",
    "nearest_rows",
    "neighbour_count",
    "neighbours_in_words",
]
