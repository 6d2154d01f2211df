"""Named data sources, one per file: columns, label rule, nothing else. Importing this registers them."""

from thresher.data.datasets import avazu, criteo, movielens, synthetic

__all__ = ["avazu", "criteo", "movielens", "synthetic"]
