"""The dense model as a teacher: its predictions become part of what a search and a retraining learn from.

    target = (1 − share) · label + share · σ(logit of the teacher), the mean of them where there are several

A label says which side of the odds a row fell on, a prediction what the odds were. Labels can be learned by heart, and
dropout and the embeddings' weight decay are there to hinder it; predictions cannot, so both fall by the factor `1 −
share`; in a search dropout stays, since without it tickets of deep models get worse. Training rows alone are taught:
validation and test keep their labels. The predictions are made once, in one pass: learning from them costs no more than
from labels, and the teacher need not stay in memory.
"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from thresher.data.batches import BatchSource, TeachableSource
from thresher.data.split_batches import EVALUATION_BATCH_SIZE, SplitBatches
from thresher.errors import BudgetError, ConfigError
from thresher.files import replacing_file
from thresher.training.loop import predict
from thresher.training.optimizers import OptimizerConfig
from thresher.training.progress import Progress, StageProgress

_DROPOUT_NAMES: Mapping[type[nn.Module], str] = {
    _DropoutNd: "p",
    nn.MultiheadAttention: "dropout",
    nn.RNNBase: "dropout",
}


class TrainsWithOptimizer(Protocol):
    """Settings with `optimizer` among them: of a training or of a search, a frozen dataclass."""

    @property
    def optimizer(self) -> OptimizerConfig: ...


ConfigT = TypeVar("ConfigT", bound=TrainsWithOptimizer)


@dataclass(frozen=True)
class Lesson:
    """What a teacher would have others learn.

    Attributes:
        labels: the targets of the training rows, in their order, `[rows]`.
        share: the teacher's part in them.
    """

    labels: NDArray[np.float32] = field(repr=False)
    share: float

    @classmethod
    def by(
        cls,
        teacher: nn.Module,
        source: BatchSource,
        share: float,
        *,
        stage: str = "teacher",
        progress: Progress | None = None,
    ) -> "Lesson":
        """Ask a trained model about every row of `source`; `stage` is what progress calls it."""
        check_share(share)
        batches = _teachable(source).in_order(EVALUATION_BATCH_SIZE)
        shown = StageProgress(progress, stage=stage, max_epochs=1, num_steps=len(batches))
        labels, at = np.empty(batches.num_rows, np.float32), 0
        for step, (batch, logits) in enumerate(predict(teacher, batches), 1):
            targets = (1 - share) * batch.labels + share * torch.sigmoid(logits)  # [B]
            labels[at : at + len(targets)] = targets.cpu().numpy()
            at += len(targets)
            if shown.due():
                shown.report(step=step)
        shown.report(step=len(batches), finished=True)
        return cls(labels, share)

    @classmethod
    def mean(cls, lessons: "Sequence[Lesson]") -> "Lesson":
        """What several teachers say on average: each errs on other rows, and labels one has learned by heart fade."""
        total = np.zeros(len(lessons[0].labels), np.float32)
        for lesson in lessons:  # one at a time: they may be memory maps of very many rows
            total += lesson.labels
        total /= np.float32(len(lessons))
        return cls(total, lessons[0].share)

    @property
    def digest(self) -> str:
        """A short name: lessons that say something else have another."""
        return hashlib.sha256(np.ascontiguousarray(self.labels).data).hexdigest()[:8]

    def save(self, path: Path) -> None:
        """Write the labels beside, then rename."""
        with replacing_file(path) as beside, beside.open("wb") as file:
            np.save(file, self.labels, allow_pickle=False)

    @classmethod
    def load(cls, path: Path, share: float) -> "Lesson":
        """The labels as a memory map: a batch reads its own rows alone."""
        try:
            labels: NDArray[np.float32] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise ConfigError(
                f"the teacher's labels in {path} cannot be read ({error}); delete that file, and a resumed run "
                "makes it again, or set teacher_share = 0"
            ) from None
        return cls(labels, share)

    def taught(self, data: SplitBatches) -> SplitBatches:
        """The same splits, the training rows with these labels."""
        return replace(data, train=_teachable(data.train).with_labels(self.labels))

    def eased(self, config: ConfigT) -> ConfigT:
        """Settings with the weight decay that is left for the embeddings."""
        told = config.optimizer.embedding_weight_decay
        decay = (config.optimizer.weight_decay if told is None else told) * (1 - self.share)
        optimizer = replace(config.optimizer, embedding_weight_decay=decay)
        return replace(config, optimizer=optimizer)  # type: ignore[type-var]

    @contextmanager
    def easing_dropout(self, model: nn.Module) -> Iterator[None]:
        """Inside, the dropout of torch's modules in a model is scaled by what is left for the labels."""
        found = [(module, _DROPOUT_NAMES[kind]) for module in model.modules() for kind in _kinds(module)]
        before = [getattr(module, name) for module, name in found]
        try:
            for (module, name), rate in zip(found, before, strict=True):
                setattr(module, name, rate * (1 - self.share))
            yield
        finally:
            for (module, name), rate in zip(found, before, strict=True):
                setattr(module, name, rate)


@dataclass(frozen=True)
class Teaching:
    """A teacher's part in the labels of a search, and of the retraining after it."""

    search: float
    retraining: float

    def __str__(self) -> str:
        if not self.retraining:
            return "by-labels"
        return f"{'searched-' if self.search else ''}taught-{self.retraining:g}"

    @property
    def words(self) -> str:
        if not self.retraining:
            return "by labels"
        return "taught by dense predictions" + (", the search, too" if self.search else "")

    @property
    def tickets(self) -> str:
        """The folder, inside that of a run, of the tickets its search finds."""
        return f"tickets/taught-{self.search:g}" if self.search else "tickets"


BY_LABELS = Teaching(search=0.0, retraining=0.0)


def teachings(teacher_share: float | None, teach_search: bool | None) -> list[Teaching]:
    """The ways to teach that are left open by what was told, each a step further than the one before.

    >>> [str(teaching) for teaching in teachings(None, None)]
    ['by-labels', 'taught-1', 'searched-taught-1']
    >>> [str(teaching) for teaching in teachings(0.5, False)]
    ['taught-0.5']
    """
    shares = (0.0, 1.0) if teacher_share is None else (teacher_share,)
    searches = (False, True) if teach_search is None else (teach_search,)
    ways = [Teaching(share if taught else 0.0, share) for share in shares for taught in searches]
    return list(dict.fromkeys(ways))  # without a teacher there is nothing to teach the search


@dataclass(frozen=True)
class TeachingTrial:
    """Which of several ways to teach was the best.

    Attributes:
        validation_aucs: of the smallest ticket, for each way that was tried.
        failed: why a further way could not be tried; None if none failed.
    """

    best: Teaching
    validation_aucs: Mapping[str, float]
    failed: str | None = None


def try_teachings(ways: Sequence[Teaching], validation_auc: Callable[[Teaching], float]) -> TeachingTrial:
    """Go from way to way while validation AUC rises; a search that cannot be taught costs no more than its try."""
    best, aucs = ways[0], {str(ways[0]): validation_auc(ways[0])}
    for way in ways[1:]:
        try:
            aucs[str(way)] = validation_auc(way)
        except BudgetError as error:
            return TeachingTrial(best, aucs, f"{way}: {error}")
        if aucs[str(way)] <= aucs[str(best)]:
            break
        best = way
    return TeachingTrial(best, aucs)


def check_teaching(teacher_share: float | None, teach_search: bool | None) -> None:
    """Raise unless the share can be one, and a search is taught by somebody."""
    check_share(0.0 if teacher_share is None else teacher_share)
    if teach_search and teacher_share == 0:
        raise ConfigError("teach_search is true, but teacher_share is 0: nobody teaches; leave one of them out")


def check_teachers(teacher_share: float | None, num_teachers: int, *, others: int) -> None:
    """Raise unless there can be so many, and no more is told of teachers where there is none.

    Args:
        others: how many models of other kinds teach.
    """
    if num_teachers < 1:
        raise ConfigError(f"num_teachers is {num_teachers}; it must be at least 1; for none: teacher_share = 0")
    if num_teachers > 1 and teacher_share == 0:
        raise ConfigError(f"num_teachers is {num_teachers}, but teacher_share is 0: nobody teaches; leave one out")
    if others and teacher_share == 0:
        raise ConfigError(
            "there are teacher_models, but teacher_share is 0: nobody teaches; leave one out (on the command line: "
            "--teachers '')"
        )


def check_share(share: float) -> None:
    """Raise unless `share` is a part of the target that can be the teacher's."""
    if not 0.0 <= share <= 1.0:
        raise ConfigError(f"teacher_share is {share}; it must lie between 0 (labels alone) and 1 (predictions alone)")


def _kinds(module: nn.Module) -> list[type[nn.Module]]:
    return [kind for kind in _DROPOUT_NAMES if isinstance(module, kind)]


def _teachable(source: BatchSource) -> TeachableSource:
    if isinstance(source, TeachableSource):
        return source
    raise ConfigError(
        f"{type(source).__name__} cannot be given soft labels: it has no in_order() and with_labels(); "
        "set teacher_share = 0, or use TensorBatches"
    )
