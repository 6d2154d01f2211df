"""Models we did not write, searched and retrained in our loop."""

from thresher.data.tensor_batches import TensorBatches
from thresher.foreign.pruning import PrunedModels, prune_model

__all__ = ["PrunedModels", "TensorBatches", "prune_model"]
