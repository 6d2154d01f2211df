"""Thresher prunes the embedding tables of recommender models.

The public names. Each is loaded from its module at first use, so that `import thresher` is fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.attach.attach import attach_ as attach_
    from thresher.attach.attach import detach_ as detach_
    from thresher.attach.attach import threshold_group as threshold_group
    from thresher.attach.compact_tables import compact_ as compact_
    from thresher.attach.extend import Growth as Growth
    from thresher.attach.extend import extend_embedding as extend_embedding
    from thresher.compact.embedding import CompactEmbedding as CompactEmbedding
    from thresher.compact.stored import to_compact as to_compact
    from thresher.compact.table import CompactTable as CompactTable
    from thresher.data.batches.batches import TensorBatches as TensorBatches
    from thresher.data.batches.split_batches import SplitBatches as SplitBatches
    from thresher.data.config import DataConfig as DataConfig
    from thresher.data.config import DenseConfig as DenseConfig
    from thresher.data.config import FieldConfig as FieldConfig
    from thresher.data.config import SplitConfig as SplitConfig
    from thresher.data.config import SyntheticConfig as SyntheticConfig
    from thresher.data.encode.encode import encode as encode
    from thresher.data.encode.sources import build_source as build_source
    from thresher.data.encode.sources import register_source as register_source
    from thresher.data.table import EncodedTable as EncodedTable
    from thresher.embeddings.base import EmbeddingConfig as EmbeddingConfig
    from thresher.embeddings.base import FieldEmbedding as FieldEmbedding
    from thresher.embeddings.method_registry import build_embedding as build_embedding
    from thresher.embeddings.method_registry import register_embedding as register_embedding
    from thresher.embeddings.pep import PepConfig as PepConfig
    from thresher.embeddings.uniform import UniformConfig as UniformConfig
    from thresher.errors import ThresherError as ThresherError
    from thresher.experiment.compare import Comparison as Comparison
    from thresher.experiment.compare import compare as compare
    from thresher.experiment.compare_config import CompareConfig as CompareConfig
    from thresher.experiment.config import RunConfig as RunConfig
    from thresher.experiment.prune import PruneResult as PruneResult
    from thresher.experiment.prune import prune as prune
    from thresher.experiment.prune_model import PrunedModels as PrunedModels
    from thresher.experiment.prune_model import prune_model as prune_model
    from thresher.experiment.retrain import TrainedModel as TrainedModel
    from thresher.experiment.retrain import retrain_quantized as retrain_quantized
    from thresher.experiment.retrain import retrain_ticket as retrain_ticket
    from thresher.experiment.retrain import train_model as train_model
    from thresher.models.autoint import AutoIntConfig as AutoIntConfig
    from thresher.models.base import CtrModel as CtrModel
    from thresher.models.base import ModelConfig as ModelConfig
    from thresher.models.deepfm import DeepFmConfig as DeepFmConfig
    from thresher.models.fm import FmConfig as FmConfig
    from thresher.models.fm import LogisticRegressionConfig as LogisticRegressionConfig
    from thresher.models.model_registry import build_model as build_model
    from thresher.models.model_registry import register_model as register_model
    from thresher.report.frontier import Frontier as Frontier
    from thresher.search.budget import Budget as Budget
    from thresher.search.find_tickets import find_tickets as find_tickets
    from thresher.search.find_tickets import register_search as register_search
    from thresher.search.immediate import largest_within as largest_within
    from thresher.search.schedule import SearchConfig as SearchConfig
    from thresher.search.searcher import Searcher as Searcher
    from thresher.search.ticket import MaskTicket as MaskTicket
    from thresher.search.ticket_files import extend_ticket as extend_ticket
    from thresher.search.ticket_files import load_ticket as load_ticket
    from thresher.search.ticket_files import save_ticket as save_ticket
    from thresher.serving.bundle import extend_bundle as extend_bundle
    from thresher.serving.predictor import Predictor as Predictor
    from thresher.serving.predictor import load_bundle as load_bundle
    from thresher.serving.predictor import top_k as top_k
    from thresher.training.distillation import SoftLabels as SoftLabels
    from thresher.training.fit import TrainingConfig as TrainingConfig
    from thresher.training.optimizers import OptimizerConfig as OptimizerConfig
    from thresher.training.row_adam import RowAdam as RowAdam

_HOMES = {
    "AutoIntConfig": "thresher.models.autoint",
    "Budget": "thresher.search.budget",
    "CompactEmbedding": "thresher.compact.embedding",
    "CompactTable": "thresher.compact.table",
    "CompareConfig": "thresher.experiment.compare_config",
    "Comparison": "thresher.experiment.compare",
    "CtrModel": "thresher.models.base",
    "DataConfig": "thresher.data.config",
    "DeepFmConfig": "thresher.models.deepfm",
    "DenseConfig": "thresher.data.config",
    "EmbeddingConfig": "thresher.embeddings.base",
    "EncodedTable": "thresher.data.table",
    "FieldConfig": "thresher.data.config",
    "FieldEmbedding": "thresher.embeddings.base",
    "FmConfig": "thresher.models.fm",
    "Frontier": "thresher.report.frontier",
    "Growth": "thresher.attach.extend",
    "LogisticRegressionConfig": "thresher.models.fm",
    "MaskTicket": "thresher.search.ticket",
    "ModelConfig": "thresher.models.base",
    "OptimizerConfig": "thresher.training.optimizers",
    "PepConfig": "thresher.embeddings.pep",
    "Predictor": "thresher.serving.predictor",
    "PruneResult": "thresher.experiment.prune",
    "PrunedModels": "thresher.experiment.prune_model",
    "RowAdam": "thresher.training.row_adam",
    "RunConfig": "thresher.experiment.config",
    "SearchConfig": "thresher.search.schedule",
    "Searcher": "thresher.search.searcher",
    "SoftLabels": "thresher.training.distillation",
    "SplitBatches": "thresher.data.batches.split_batches",
    "SplitConfig": "thresher.data.config",
    "SyntheticConfig": "thresher.data.config",
    "TensorBatches": "thresher.data.batches.batches",
    "ThresherError": "thresher.errors",
    "TrainedModel": "thresher.experiment.retrain",
    "TrainingConfig": "thresher.training.fit",
    "UniformConfig": "thresher.embeddings.uniform",
    "attach_": "thresher.attach.attach",
    "build_embedding": "thresher.embeddings.method_registry",
    "build_model": "thresher.models.model_registry",
    "build_source": "thresher.data.encode.sources",
    "compact_": "thresher.attach.compact_tables",
    "compare": "thresher.experiment.compare",
    "detach_": "thresher.attach.attach",
    "encode": "thresher.data.encode.encode",
    "extend_bundle": "thresher.serving.bundle",
    "extend_embedding": "thresher.attach.extend",
    "extend_ticket": "thresher.search.ticket_files",
    "find_tickets": "thresher.search.find_tickets",
    "largest_within": "thresher.search.immediate",
    "load_bundle": "thresher.serving.predictor",
    "load_ticket": "thresher.search.ticket_files",
    "prune": "thresher.experiment.prune",
    "prune_model": "thresher.experiment.prune_model",
    "register_embedding": "thresher.embeddings.method_registry",
    "register_model": "thresher.models.model_registry",
    "register_search": "thresher.search.find_tickets",
    "register_source": "thresher.data.encode.sources",
    "retrain_quantized": "thresher.experiment.retrain",
    "retrain_ticket": "thresher.experiment.retrain",
    "save_ticket": "thresher.search.ticket_files",
    "threshold_group": "thresher.attach.attach",
    "to_compact": "thresher.compact.stored",
    "top_k": "thresher.serving.predictor",
    "train_model": "thresher.experiment.retrain",
}

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
