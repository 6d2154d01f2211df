"""The names a user may rely on, pinned: a change here is a change of the public interface."""

import ast
import inspect
from pathlib import Path

import pytest

import thresher

PUBLIC_NAMES = [
    "AttachedTable",
    "AutoIntConfig",
    "Batch",
    "BatchSource",
    "Budget",
    "CompactEmbedding",
    "CompactModel",
    "CompactTable",
    "CompareConfig",
    "Comparison",
    "CtrModel",
    "DataConfig",
    "DataSource",
    "DeepFmConfig",
    "DenseConfig",
    "DistillationPlan",
    "EmbeddingConfig",
    "EncodedTable",
    "EncodingPlan",
    "Field",
    "FieldConfig",
    "FieldEmbedding",
    "FmConfig",
    "Frontier",
    "FrontierPoint",
    "Growth",
    "Label",
    "LogisticRegressionConfig",
    "MaskTicket",
    "ModelConfig",
    "NumpyPredictor",
    "OptimizerConfig",
    "PepConfig",
    "Predictor",
    "Progress",
    "ProgressState",
    "PruneResult",
    "PrunedModels",
    "RawChunk",
    "RowAdam",
    "RowEncoder",
    "RunConfig",
    "SearchConfig",
    "SearchTask",
    "Searcher",
    "SettingsTicket",
    "SizeTicket",
    "SoftLabels",
    "SplitBatches",
    "SplitConfig",
    "StoredForm",
    "SyntheticConfig",
    "TensorBatches",
    "ThresherError",
    "Ticket",
    "TrainedModel",
    "TrainingConfig",
    "UniformConfig",
    "attach_",
    "build_embedding",
    "build_model",
    "build_source",
    "compact_",
    "compare",
    "convert_bundle",
    "dense_state_dict",
    "detach_",
    "encode",
    "export_csr",
    "export_onnx",
    "export_program",
    "extend_bundle",
    "extend_embedding",
    "extend_ticket",
    "find_tickets",
    "largest_within",
    "load_bundle",
    "load_ticket",
    "open_bundle",
    "prune",
    "prune_model",
    "prune_trained",
    "quantize_bundle",
    "register_embedding",
    "register_model",
    "register_search",
    "register_source",
    "register_stored_form",
    "retrain_quantized",
    "retrain_ticket",
    "save_ticket",
    "threshold_group",
    "to_compact",
    "to_csr",
    "to_trainable",
    "top_k",
    "train_model",
]


def test_public_names_are_pinned():
    assert thresher.__all__ == PUBLIC_NAMES
    assert set(dir(thresher)) == {*PUBLIC_NAMES, "__version__"}


def test_public_names_load_and_are_documented():
    for name in PUBLIC_NAMES:
        thing = getattr(thresher, name)
        assert thing.__name__ == name
        assert thing.__module__.startswith("thresher."), name
        assert inspect.getdoc(thing), name


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'prun'"):
        thresher.prun  # noqa: B018


def test_no_public_name_hides_a_module():
    root = Path(thresher.__file__).parent
    modules = {path.stem for path in root.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert not modules & set(PUBLIC_NAMES)


def test_type_checkers_see_the_same_names():
    stub = Path(thresher.__file__).with_suffix(".pyi")
    imports = [node for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    assert {alias.asname: node.module for node in imports for alias in node.names} == thresher._HOMES
