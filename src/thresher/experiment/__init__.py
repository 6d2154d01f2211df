"""The whole pipeline: `prune`, `prune_model` and `compare`, and the folder of a run."""
