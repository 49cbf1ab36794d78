"""Fine-grained classifiers, one short file per method."""

from ood_lab.models.fgvc.akg import AKG as AKG
from ood_lab.models.fgvc.akg import AKGNet as AKGNet
from ood_lab.models.fgvc.hrn import HRN as HRN
from ood_lab.models.fgvc.hrn import HRNNet as HRNNet
from ood_lab.models.fgvc.nts import NTS as NTS
from ood_lab.models.fgvc.nts import NTSNet as NTSNet
from ood_lab.models.fgvc.p2p import P2P as P2P
from ood_lab.models.fgvc.p2p import P2PNet as P2PNet
from ood_lab.models.fgvc.sps import SPS as SPS
from ood_lab.models.fgvc.sps import SPSNet as SPSNet
from ood_lab.models.fgvc.yourfl import YourFL as YourFL
from ood_lab.models.fgvc.yourfl import YourFLNet as YourFLNet
