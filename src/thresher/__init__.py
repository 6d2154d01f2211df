"""Thresher prunes the embedding tables of recommender models.

    data → models and training → search → experiment (retraining) → compact → serving → report

These are the public names. Each is loaded from its module at first use, so that `import thresher` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.attach.attach import (
        AttachedTable as AttachedTable,
        attach_ as attach_,
        detach_ as detach_,
        threshold_group as threshold_group,
    )
    from thresher.attach.compact_tables import compact_ as compact_
    from thresher.attach.extend import Growth as Growth, extend_embedding as extend_embedding
    from thresher.compact.embedding import CompactEmbedding as CompactEmbedding
    from thresher.compact.stored import to_compact as to_compact
    from thresher.compact.table import CompactTable as CompactTable
    from thresher.data.batches.batches import Batch as Batch, BatchSource as BatchSource, TensorBatches as TensorBatches
    from thresher.data.batches.split_batches import SplitBatches as SplitBatches
    from thresher.data.config import (
        DataConfig as DataConfig,
        DenseConfig as DenseConfig,
        FieldConfig as FieldConfig,
        SplitConfig as SplitConfig,
        SyntheticConfig as SyntheticConfig,
    )
    from thresher.data.encode.encode import encode as encode
    from thresher.data.encode.row_encoder import RowEncoder as RowEncoder
    from thresher.data.encode.sources import (
        DataSource as DataSource,
        EncodingPlan as EncodingPlan,
        build_source as build_source,
        register_source as register_source,
    )
    from thresher.data.table import EncodedTable as EncodedTable
    from thresher.embeddings.base import EmbeddingConfig as EmbeddingConfig, FieldEmbedding as FieldEmbedding
    from thresher.embeddings.method_registry import (
        build_embedding as build_embedding,
        register_embedding as register_embedding,
    )
    from thresher.embeddings.pep import PepConfig as PepConfig
    from thresher.embeddings.stored_form import StoredForm as StoredForm, register_stored_form as register_stored_form
    from thresher.embeddings.uniform import UniformConfig as UniformConfig
    from thresher.errors import ThresherError as ThresherError
    from thresher.experiment.compare import Comparison as Comparison, compare as compare
    from thresher.experiment.compare_config import CompareConfig as CompareConfig
    from thresher.experiment.config import RunConfig as RunConfig
    from thresher.experiment.prune import PruneResult as PruneResult, prune as prune
    from thresher.experiment.prune_model import PrunedModels as PrunedModels, prune_model as prune_model
    from thresher.experiment.quantize import quantize_bundle as quantize_bundle
    from thresher.experiment.retrain import (
        TrainedModel as TrainedModel,
        retrain_quantized as retrain_quantized,
        retrain_ticket as retrain_ticket,
        train_model as train_model,
    )
    from thresher.models.autoint import AutoIntConfig as AutoIntConfig
    from thresher.models.base import CtrModel as CtrModel, ModelConfig as ModelConfig
    from thresher.models.deepfm import DeepFmConfig as DeepFmConfig
    from thresher.models.fm import FmConfig as FmConfig, LogisticRegressionConfig as LogisticRegressionConfig
    from thresher.models.model_registry import build_model as build_model, register_model as register_model
    from thresher.report.frontier import Frontier as Frontier, FrontierPoint as FrontierPoint
    from thresher.search.budget import Budget as Budget
    from thresher.search.find_tickets import (
        SearchTask as SearchTask,
        find_tickets as find_tickets,
        register_search as register_search,
    )
    from thresher.search.immediate import largest_within as largest_within
    from thresher.search.schedule import SearchConfig as SearchConfig
    from thresher.search.searcher import Searcher as Searcher
    from thresher.search.ticket import (
        MaskTicket as MaskTicket,
        SettingsTicket as SettingsTicket,
        SizeTicket as SizeTicket,
        Ticket as Ticket,
    )
    from thresher.search.ticket_files import (
        extend_ticket as extend_ticket,
        load_ticket as load_ticket,
        save_ticket as save_ticket,
    )
    from thresher.serving.bundle import (
        convert_bundle as convert_bundle,
        extend_bundle as extend_bundle,
        open_bundle as open_bundle,
        to_trainable as to_trainable,
    )
    from thresher.serving.export import (
        dense_state_dict as dense_state_dict,
        export_csr as export_csr,
        export_onnx as export_onnx,
        export_program as export_program,
        to_csr as to_csr,
    )
    from thresher.serving.numpy_predictor import NumpyPredictor as NumpyPredictor
    from thresher.serving.predictor import Predictor as Predictor, load_bundle as load_bundle, top_k as top_k
    from thresher.training.distillation import DistillationPlan as DistillationPlan, SoftLabels as SoftLabels
    from thresher.training.fit import TrainingConfig as TrainingConfig
    from thresher.training.optimizers import OptimizerConfig as OptimizerConfig
    from thresher.training.progress import Progress as Progress, ProgressState as ProgressState
    from thresher.training.row_adam import RowAdam as RowAdam

_NAMES = {
    "attach.attach": "AttachedTable attach_ detach_ threshold_group",
    "attach.compact_tables": "compact_",
    "attach.extend": "Growth extend_embedding",
    "compact.embedding": "CompactEmbedding",
    "compact.stored": "to_compact",
    "compact.table": "CompactTable",
    "data.batches.batches": "Batch BatchSource TensorBatches",
    "data.batches.split_batches": "SplitBatches",
    "data.config": "DataConfig DenseConfig FieldConfig SplitConfig SyntheticConfig",
    "data.encode.encode": "encode",
    "data.encode.row_encoder": "RowEncoder",
    "data.encode.sources": "DataSource EncodingPlan build_source register_source",
    "data.table": "EncodedTable",
    "embeddings.base": "EmbeddingConfig FieldEmbedding",
    "embeddings.method_registry": "build_embedding register_embedding",
    "embeddings.pep": "PepConfig",
    "embeddings.stored_form": "StoredForm register_stored_form",
    "embeddings.uniform": "UniformConfig",
    "errors": "ThresherError",
    "experiment.compare": "Comparison compare",
    "experiment.compare_config": "CompareConfig",
    "experiment.config": "RunConfig",
    "experiment.prune": "PruneResult prune",
    "experiment.prune_model": "PrunedModels prune_model",
    "experiment.quantize": "quantize_bundle",
    "experiment.retrain": "TrainedModel retrain_quantized retrain_ticket train_model",
    "models.autoint": "AutoIntConfig",
    "models.base": "CtrModel ModelConfig",
    "models.deepfm": "DeepFmConfig",
    "models.fm": "FmConfig LogisticRegressionConfig",
    "models.model_registry": "build_model register_model",
    "report.frontier": "Frontier FrontierPoint",
    "search.budget": "Budget",
    "search.find_tickets": "SearchTask find_tickets register_search",
    "search.immediate": "largest_within",
    "search.schedule": "SearchConfig",
    "search.searcher": "Searcher",
    "search.ticket": "MaskTicket SettingsTicket SizeTicket Ticket",
    "search.ticket_files": "extend_ticket load_ticket save_ticket",
    "serving.bundle": "convert_bundle extend_bundle open_bundle to_trainable",
    "serving.export": "dense_state_dict export_csr export_onnx export_program to_csr",
    "serving.numpy_predictor": "NumpyPredictor",
    "serving.predictor": "Predictor load_bundle top_k",
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
