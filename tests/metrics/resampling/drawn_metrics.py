"""Draws of metrics, of scores in any shape."""

from ood_lab.common.random_streams import Resampling
from ood_lab.metrics.record import OF_SETS
from ood_lab.metrics.resampling.stratified_bootstrap import drawn_metrics, score_matrix


def bootstrap(id_scores, ood_scores, *, draws=1000, seed=0, **options):
    """``[D, G, B]`` by the name of each metric, see ``drawn_metrics``."""
    blocks = [score_matrix(scores, f"ood_scores[{g}]") for g, scores in enumerate(ood_scores)]
    defaults = {
        "resampling": Resampling(draws, seed),
        "aupr_method": "trapezoid",
        "metrics": OF_SETS,
        "copies": None,
        "wanted": range(len(blocks)),
    }
    return drawn_metrics(score_matrix(id_scores, "id_scores"), blocks, **defaults | options)
