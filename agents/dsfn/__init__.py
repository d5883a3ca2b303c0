"""DSFN (Lee et al. 2019), the baseline that the paper compares CIRL with: apprenticeship from a batch alone."""

from agents.dsfn.dsfn import DSFN, DSFNConfig, DSFNPolicy, DSFNSolution
from agents.dsfn.td import TDConfig, WarmStartSizes

__all__ = ["DSFN", "DSFNConfig", "DSFNPolicy", "DSFNSolution", "TDConfig", "WarmStartSizes"]
