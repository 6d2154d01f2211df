"""Model settings per data set: those of the authors, but where we measured better ones. Data, no logic.

The paper names Adam, rate 0.001, batch 1024 and D = 64 and leaves the network to the cited works; the sizes below
are those of the authors' published scripts (their FM and logistic regression have no network).
Where the scripts run AutoInt they add its deep term (AutoInt+) and leave out the linear one.

On MovieLens-1M dropout is 0.5 instead of their 0.2, and AutoInt has one layer of attention instead of three;
`benchmarks/experiments/movielens-1m/` says why.
"""

from collections.abc import Mapping

from thresher.models.autoint import AutoIntConfig
from thresher.models.base import ModelConfig
from thresher.models.deepfm import DeepFmConfig
from thresher.models.model_registry import model_config

RECORDED_SETTINGS: Mapping[tuple[str, str], ModelConfig] = {
    ("movielens-1m", "deepfm"): DeepFmConfig(hidden_sizes=(100, 100), dropout=0.5),
    ("movielens-1m", "autoint"): AutoIntConfig(
        num_layers=1, attention_dropout=0.4, hidden_sizes=(100, 100), dropout=0.5
    ),
    ("criteo", "deepfm"): DeepFmConfig(hidden_sizes=(400, 400, 400), dropout=0.2),
    ("criteo", "autoint"): AutoIntConfig(hidden_sizes=(400, 400, 400), dropout=0.2, attention_dropout=0.0),
    ("avazu", "deepfm"): DeepFmConfig(hidden_sizes=(400, 400, 400), dropout=0.2),
    ("avazu", "autoint"): AutoIntConfig(hidden_sizes=(400, 400, 400), dropout=0.2, attention_dropout=0.0),
}
"""(data set, model name) → config; a pair that is absent has nothing to set."""


def recorded_model_config(name: str, dataset: str) -> ModelConfig:
    """The config recorded for a model on a data set; the model's default where none is recorded."""
    return RECORDED_SETTINGS.get((dataset, name), model_config(name))
