"""The methods Thresher ships, in one list: importing this module registers them. A new method adds its line here."""

from thresher.embeddings import magnitude, mde, pep, uniform

__all__ = ["magnitude", "mde", "pep", "uniform"]
