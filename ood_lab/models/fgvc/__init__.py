"""Fine-grained classifiers, one short file per method."""

from ood_lab.models.fgvc.akg import AKG, AKGNet
from ood_lab.models.fgvc.hrn import HRN, HRNNet
from ood_lab.models.fgvc.nts import NTS, NTSNet
from ood_lab.models.fgvc.p2p import P2P, P2PNet
from ood_lab.models.fgvc.sps import SPS, SPSNet
from ood_lab.models.fgvc.yourfl import YourFL, YourFLNet

__all__ = [
    "AKG",
    "HRN",
    "NTS",
    "P2P",
    "SPS",
    "AKGNet",
    "HRNNet",
    "NTSNet",
    "P2PNet",
    "SPSNet",
    "YourFL",
    "YourFLNet",
]
