"""The one exact nearest-neighbour search: shift degrees and the KNN detector, CPU and GPU."""

from ood_lab.neighbours.exact_search import Groups as Groups
from ood_lab.neighbours.exact_search import NeighbourSearch as NeighbourSearch
from ood_lab.neighbours.exact_search import largest_products as largest_products
from ood_lab.neighbours.exact_search import nearest_rows as nearest_rows
from ood_lab.neighbours.exact_search import neighbour_count as neighbour_count
from ood_lab.neighbours.near_copies import near_copies as near_copies
from ood_lab.neighbours.row_blocks import Rows as Rows
