"""The search algorithms Thresher ships, in one list: importing this module registers them."""

from thresher.search import bilevel, controller, immediate, magnitude, projection, threshold

__all__ = ["bilevel", "controller", "immediate", "magnitude", "projection", "threshold"]
