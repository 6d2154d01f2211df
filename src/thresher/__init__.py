"""Thresher prunes the embedding tables of recommender models.

    data → models and training → search → experiment (retraining) → compact → serving → report

These are the public names. Each is loaded from its module at first use, so that `import thresher` is fast;
`__init__.pyi` declares them for type checkers.
"""

from importlib import import_module
from typing import Any

_NAMES = {
    "attach.attach": "AttachedTable attach_ detach_ threshold_group",
    "attach.compact_tables": "compact_",
    "attach.extend": "Growth extend_embedding",
    "compact.embedding": "CompactEmbedding",
    "compact.method_table": "to_compact",
    "compact.table": "CompactTable",
    "data.batches.batches": "Batch BatchSource TensorBatches",
    "data.batches.split_batches": "SplitBatches",
    "data.config": "DataConfig DenseConfig FieldConfig SplitConfig SyntheticConfig",
    "data.encode.encode": "encode",
    "data.encode.row_encoder": "RowEncoder",
    "data.encode.sources": "DataSource EncodingPlan build_source register_source",
    "data.read.raw_files": "RawChunk",
    "data.schema": "Field Label",
    "data.table": "EncodedTable",
    "embeddings.base": "EmbeddingConfig FieldEmbedding",
    "embeddings.method_registry": "build_embedding register_embedding",
    "embeddings.pep": "PepConfig",
    "embeddings.stored_form": "StoredForm register_stored_form",
    "embeddings.uniform": "UniformConfig",
    "errors": "ThresherError",
    "experiment.compare": "Comparison compare",
    "experiment.comparison.compare_config": "CompareConfig",
    "experiment.config": "RunConfig",
    "experiment.prune": "PruneResult prune",
    "experiment.prune_model": "PrunedModels prune_model",
    "experiment.prune_trained": "CompactModel prune_trained",
    "experiment.quantize": "quantize_bundle",
    "experiment.retrain": "TrainedModel retrain_quantized retrain_ticket train_model",
    "models.autoint": "AutoIntConfig",
    "models.base": "CtrModel ModelConfig",
    "models.fm": "DeepFmConfig FmConfig LogisticRegressionConfig",
    "models.model_registry": "build_model register_model",
    "report.frontier": "Frontier FrontierPoint",
    "search.budget": "Budget",
    "search.find_tickets": "SearchTask find_tickets register_search",
    "search.immediate": "largest_within",
    "search.schedule": "SearchConfig",
    "search.searcher": "Searcher",
    "search.ticket": "MaskTicket SettingsTicket SizeTicket Ticket",
    "search.ticket_files": "extend_ticket load_ticket save_ticket",
    "serving.bundle": "open_bundle",
    "serving.change_bundle": "convert_bundle extend_bundle to_trainable",
    "serving.exports.export": "dense_state_dict export_csr export_onnx export_program to_csr",
    "serving.numpy_predictor": "NumpyPredictor",
    "serving.predictor": "Predictor load_bundle",
    "serving.ranking": "top_k",
    "training.distillation": "DistillationPlan SoftLabels",
    "training.fit": "TrainingConfig",
    "training.optimizers": "OptimizerConfig",
    "training.progress": "Progress ProgressState",
    "training.row_adam": "RowAdam",
}
_HOMES = {name: f"thresher.{module}" for module, names in _NAMES.items() for name in names.split()}

__version__ = "0.1.0"
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Load a public name from its module at first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'thresher' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
