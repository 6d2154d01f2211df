"""The public names, for type checkers."""

from thresher.attach.attach import (
    AttachedTable as AttachedTable,
    attach_ as attach_,
    detach_ as detach_,
    threshold_group as threshold_group,
)
from thresher.attach.compact_tables import compact_ as compact_
from thresher.attach.extend import Growth as Growth, extend_embedding as extend_embedding
from thresher.compact.embedding import CompactEmbedding as CompactEmbedding
from thresher.compact.method_table import to_compact as to_compact
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
from thresher.data.read.raw_files import RawChunk as RawChunk
from thresher.data.schema import Field as Field, Label as Label
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
from thresher.experiment.comparison.compare_config import CompareConfig as CompareConfig
from thresher.experiment.config import RunConfig as RunConfig
from thresher.experiment.prune import PruneResult as PruneResult, prune as prune
from thresher.experiment.prune_model import PrunedModels as PrunedModels, prune_model as prune_model
from thresher.experiment.prune_trained import CompactModel as CompactModel, prune_trained as prune_trained
from thresher.experiment.quantize import quantize_bundle as quantize_bundle
from thresher.experiment.retrain import (
    TrainedModel as TrainedModel,
    retrain_quantized as retrain_quantized,
    retrain_ticket as retrain_ticket,
    train_model as train_model,
)
from thresher.models.autoint import AutoIntConfig as AutoIntConfig
from thresher.models.base import CtrModel as CtrModel, ModelConfig as ModelConfig
from thresher.models.fm import (
    DeepFmConfig as DeepFmConfig,
    FmConfig as FmConfig,
    LogisticRegressionConfig as LogisticRegressionConfig,
)
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
from thresher.serving.bundle import open_bundle as open_bundle
from thresher.serving.change_bundle import (
    convert_bundle as convert_bundle,
    extend_bundle as extend_bundle,
    to_trainable as to_trainable,
)
from thresher.serving.exports.export import (
    dense_state_dict as dense_state_dict,
    export_csr as export_csr,
    export_onnx as export_onnx,
    export_program as export_program,
    to_csr as to_csr,
)
from thresher.serving.numpy_predictor import NumpyPredictor as NumpyPredictor
from thresher.serving.predictor import Predictor as Predictor, load_bundle as load_bundle
from thresher.serving.ranking import top_k as top_k
from thresher.training.distillation import DistillationPlan as DistillationPlan, SoftLabels as SoftLabels
from thresher.training.fit import TrainingConfig as TrainingConfig
from thresher.training.optimizers import OptimizerConfig as OptimizerConfig
from thresher.training.progress import Progress as Progress, ProgressState as ProgressState
from thresher.training.row_adam import RowAdam as RowAdam

__version__: str
