"""The search algorithms Thresher ships, in one list: importing this module registers them."""

from thresher.search import immediate, threshold

__all__ = ["immediate", "threshold"]
