"""The search algorithms Thresher ships, in one list: importing this module registers them."""

from thresher.search import immediate, magnitude, threshold

__all__ = ["immediate", "magnitude", "threshold"]
