"""A run: its settings, its folder, the stages that fill it, and what they come to."""

from thresher.experiment.config import RunConfig, what_differs
from thresher.experiment.run import Run

__all__ = ["Run", "RunConfig", "what_differs"]
