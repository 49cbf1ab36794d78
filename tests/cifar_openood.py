"""CIFAR-10 against OpenOOD v1.5: reference values, and the runs that are compared with them.

The images and weights are no part of the project (``../shared/data``).
"""

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
from cli import call, run_folders

SHARED = Path(__file__).parents[2] / "shared" / "data"
ARCHIVE = SHARED / "cifar10_imagenet32.tar.gz"
WEIGHTS = SHARED / "resnet20_cifar10.pt"

# AUROC, FPR95 with OOD positive, FPR95 with ID positive, in percent: OpenOOD v1.5 on these images.
REFERENCE = {
    "msp": ((81.89, 49.9, 74.1), (89.19, 38.6, 52.5)),
    "ebo": ((86.51, 45.2, 61.1), (93.25, 34.8, 30.8)),
    "mls": ((86.47, 45.2, 59.8), (93.16, 34.8, 30.7)),
    "klm": ((73.44, 89.1, 76.5), (81.73, 89.1, 62.2)),
    "openmax": ((84.62, 50.4, 68.3), (90.77, 37.2, 41.3)),
    "gradnorm": ((79.88, 64.2, 67.5), (94.52, 33.2, 22.4)),
    "knn": ((84.64, 52.4, 63.2), (94.84, 31.1, 22.5)),
    "mds": ((50.51, 91.8, 94.6), (67.25, 81.6, 86.9)),
    "vim": ((84.58, 46.2, 67.4), (93.57, 26.9, 34.1)),
    "dice": ((80.91, 57.5, 68.3), (94.41, 33.3, 23.5)),
    "react": ((86.12, 48.6, 60.3), (94.10, 27.3, 30.1)),
    "ash": ((82.34, 55.1, 68.8), (95.52, 26.5, 20.9)),
    # With OpenOOD's sigma for CIFAR-10; this network was trained with ImageNet's.
    "odin": ((87.04, 44.6, 59.0), (94.10, 30.9, 27.5)),
    "rankfeat": ((59.68, 84.5, 93.8), (77.47, 63.6, 82.0)),
}
# A detector of its own for every row of the file below: class, settings, row.
MORE_FILE = SHARED.parent / "reference" / "detectors_more.json"
MORE = json.loads(MORE_FILE.read_text())["methods"] if MORE_FILE.exists() else {}
VARIANTS = {
    "rmds": ("RMDS", "", "RMDS"),
    "she": ("SHE", "", "SHE"),
    "she_cosine": ("SHE", "metric:cosine", "SHE_cosine"),
    "she_euclidean": ("SHE", "metric:euclidean", "SHE_euclidean"),
    "gen": ("GEN", "", "GEN"),
    "gen_3": ("GEN", "m:3", "GEN_M3"),
    "entropy": ("Entropy", "", "Entropy"),
    "temp_scaling": ("TempScaling", "", "TempScaling"),
    "nnguide_100": ("NNGuide", "k:100", "NNGuide_k100"),
    "nnguide_10": ("NNGuide", "k:10", "NNGuide_k10"),
    "scale_85": ("SCALE", "percentile:85", "SCALE_85"),
    "scale_65": ("SCALE", "percentile:65", "SCALE_65"),
    "lts_65": ("LTS", "percentile:65", "LTS_65"),
    "lts_85": ("LTS", "percentile:85", "LTS_85"),
    "lts_95": ("LTS", "percentile:95", "LTS_95"),
    "fdbd": ("FDBD", "", "fDBD"),
    "fdbd_norm": ("FDBD", "distance_as_normalizer:false", "fDBD_norm"),
    "relation_1": ("Relation", "power:1", "Relation_1"),
    "relation_4": ("Relation", "power:4", "Relation_4"),
    "relation_8": ("Relation", "power:8", "Relation_8"),
    "vra_openood": (
        "VRA",
        "low:10,high:90,per_feature:false,below:clip,fit_split:val",
        "VRA_OpenOOD",
    ),
    "vra": ("VRA", "low:60,high:90", "VRA"),
    "vra_plus": ("VRA", "low:60,high:95,gamma:0.6", "VRA_plus"),
    "residual": ("Residual", "dim:32", "Residual"),
    "residual_val": ("Residual", "dim:32,fit_split:val", "Residual_val"),
    "nci_4": ("NCI", "alpha:0.0001", "NCI_0.0001"),
    "nci_3": ("NCI", "alpha:0.001", "NCI_0.001"),
    "nci_2": ("NCI", "alpha:0.01", "NCI_0.01"),
    "nci_1": ("NCI", "alpha:0.1", "NCI_0.1"),
    "gmm_full": ("GMM", "covariance:full", "GMM_full"),
    "gmm_tied": ("GMM", "covariance:tied", "GMM_tied"),
    "pnml": ("PNML", "", "PNML"),
    "cfood": ("CFOOD", "", "CFOOD"),
    "grood": ("GROOD", "", "GROOD_protomean"),
    "neco_10": ("NECO", "dim:10,max_logit:false", "NECO_10"),
    "neco_10_max": ("NECO", "dim:10", "NECO_10_maxlogit"),
    "neco_20": ("NECO", "dim:20,max_logit:false", "NECO_20"),
    "neco_20_max": ("NECO", "dim:20", "NECO_20_maxlogit"),
    "grad_uncertainty": ("GradUncertainty", "", "GradUncertainty_head"),
    "odin_own": ("ODIN", "", "ODIN_own_sigma"),
    "iodin": ("IODIN", "", "iODIN"),
    # OpenOOD takes int(64 · 1%) = 0 features of the shift; here that takes k2 = 0.
    "adascale_a": ("AdaSCALEA", "k2:0", "AdaSCALE_A"),
    "adascale_l": ("AdaSCALEL", "k2:0", "AdaSCALE_L"),
    "adascale_a_5": ("AdaSCALEA", "k2:5", "AdaSCALE_A_k2_5"),
    "mds_ensemble": (
        "MDSEnsemble",
        "layers:[net.act1,net.layer1,net.layer2,net.layer3]",
        "MDSEns_4_noise0",
    ),
}
NETWORK = {"odin_own", "iodin", "adascale_a", "adascale_l", "adascale_a_5"}
CONVOLUTIONS = ["net.conv1"] + [
    f"net.layer{stage}.{block}.conv{conv}"
    for stage in (1, 2, 3)
    for block in range(3)
    for conv in (1, 2)
]

#: The run of REFERENCE: with the layers that Gram's authors read, and OpenOOD's sigma of ODIN.
OWN_RUN = (
    f"detector.gram.layers=[{','.join(CONVOLUTIONS)}]",
    "detector.odin.std=[0.2470,0.2435,0.2616]",
)
#: The run of VARIANTS.
FURTHER_RUN = (
    "detector=[]",
    *(
        f"+detector.more_{name}={{_target_:ood_lab.detectors.{kind}{',' * bool(given)}{given}}}"
        for name, (kind, given, _) in VARIANTS.items()
    ),
    "name=further",
    "task.report=false",
)


def evaluation(place: Path, n_bootstrap: int) -> Callable[..., Path]:
    """``evaluate(*overrides)`` runs eval.py on the unpacked images and returns the run folder."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    data = [f"data.id.{split}={place}/id/{split}" for split in ("train", "val", "test")]
    sets = {"inet32": "imagenet32", "crops": "imagenet_crops"}
    data += [f"data.ood.{name}={place}/ood/{folder}" for name, folder in sets.items()]
    model = [
        "model=module",
        "model.net._target_=cifar_resnet.ResNet20",
        "model.head=linear",
        f"model.weights={WEIGHTS}",
        "model.backbone.input_size=32",
    ]
    rest = [f"metrics.n_bootstrap={n_bootstrap}", "logger=none", f"paths.outputs={place}/outputs"]

    def run(*overrides: str) -> Path:
        assert call("eval.py", "data=folder", *data, *model, *rest, *overrides) == 0
        return run_folders(place / "outputs")[-1]

    return run


def percents(folder: Path) -> Callable[..., float]:
    """``values(detector, ood, metric)`` of a run folder."""
    results = pd.read_parquet(folder / "results.parquet")
    rows = results[
        (results.kind == "detection") & results.dataset.notna()
    ]  # the verdict repeats some
    table = rows.set_index(["detector", "dataset", "metric"])["value"]
    return lambda *key: 100 * table[key]
