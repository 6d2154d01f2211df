"""Thresher prunes the embedding tables of recommender models.

Public names only; nothing is loaded before it is used, so that `import thresher` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.attach.attach import attach_, detach_
    from thresher.compact.stored import to_compact
    from thresher.data.batches.split_batches import SplitBatches
    from thresher.data.config import DataConfig
    from thresher.data.table import EncodedTable
    from thresher.embeddings.method_registry import build_embedding, register_embedding
    from thresher.embeddings.pep import PepConfig
    from thresher.embeddings.uniform import UniformConfig
    from thresher.errors import ThresherError
    from thresher.experiment.config import RunConfig
    from thresher.experiment.prune import prune
    from thresher.experiment.retrain import retrain_ticket
    from thresher.models.model_registry import build_model, register_model
    from thresher.report.frontier import Frontier
    from thresher.search.budget import Budget
    from thresher.search.find_tickets import find_tickets
    from thresher.search.schedule import SearchConfig
    from thresher.search.searcher import Searcher
    from thresher.search.ticket_files import load_ticket, save_ticket
    from thresher.serving.predictor import Predictor, load_bundle
    from thresher.training.fit import TrainingConfig

_HOMES = {
    "Budget": "thresher.search.budget",
    "DataConfig": "thresher.data.config",
    "EncodedTable": "thresher.data.table",
    "Frontier": "thresher.report.frontier",
    "PepConfig": "thresher.embeddings.pep",
    "Predictor": "thresher.serving.predictor",
    "RunConfig": "thresher.experiment.config",
    "SearchConfig": "thresher.search.schedule",
    "Searcher": "thresher.search.searcher",
    "SplitBatches": "thresher.data.batches.split_batches",
    "ThresherError": "thresher.errors",
    "TrainingConfig": "thresher.training.fit",
    "UniformConfig": "thresher.embeddings.uniform",
    "attach_": "thresher.attach.attach",
    "build_embedding": "thresher.embeddings.method_registry",
    "build_model": "thresher.models.model_registry",
    "detach_": "thresher.attach.attach",
    "find_tickets": "thresher.search.find_tickets",
    "load_bundle": "thresher.serving.predictor",
    "load_ticket": "thresher.search.ticket_files",
    "prune": "thresher.experiment.prune",
    "register_embedding": "thresher.embeddings.method_registry",
    "register_model": "thresher.models.model_registry",
    "retrain_ticket": "thresher.experiment.retrain",
    "save_ticket": "thresher.search.ticket_files",
    "to_compact": "thresher.compact.stored",
}

__version__ = "0.1.0"
__all__ = [
    "Budget",
    "DataConfig",
    "EncodedTable",
    "Frontier",
    "PepConfig",
    "Predictor",
    "RunConfig",
    "SearchConfig",
    "Searcher",
    "SplitBatches",
    "ThresherError",
    "TrainingConfig",
    "UniformConfig",
    "attach_",
    "build_embedding",
    "build_model",
    "detach_",
    "find_tickets",
    "load_bundle",
    "load_ticket",
    "prune",
    "register_embedding",
    "register_model",
    "retrain_ticket",
    "save_ticket",
    "to_compact",
]


def __getattr__(name: str) -> Any:
    """Load a public name from its module at first use."""
    if name not in _HOMES:
        raise AttributeError(f"module 'thresher' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
