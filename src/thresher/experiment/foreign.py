"""Models we did not write, searched and retrained in our loop."""

from thresher.data.batches.batches import TensorBatches
from thresher.experiment.prune_model import PrunedModels, prune_model

__all__ = ["PrunedModels", "TensorBatches", "prune_model"]
