"""PepCallback: PEP in a Lightning training, with its state in Lightning's checkpoints.

search = PepCallback(["5%"])
Trainer(max_epochs=30, callbacks=[search]).fit(module, loader)
search.tickets[0].apply_(module)  # rewound and pruned
Trainer(max_epochs=30).fit(module, loader)
"""

from collections.abc import Iterable, Mapping
from typing import Any

from thresher._internal.extras import missing_extra
from thresher.attach import AttachedTable, attach_
from thresher.attach.find_tables import Where
from thresher.embeddings.pep import PepConfig
from thresher.search.budget import Budget
from thresher.search.searcher import Searcher
from thresher.search.ticket import MaskTicket

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError as error:
    raise missing_extra("thresher.integrations.lightning", "Lightning", "lightning") from error


class PepCallback(Callback):
    """Attaches PEP before the optimizers are created, so that `self.parameters()` includes the thresholds.

    Args:
        where: which tables to attach to; `where` and `min_features` are those of `attach_`.
        steps: optimizer steps of the whole search; default: all steps of the trainer.
        warmup_steps: steps in which nothing is pruned.
        stop_when_finished: stop the training when every budget has its ticket.
    """

    def __init__(
        self,
        budgets: str | Iterable[str | int | Budget],
        config: PepConfig | None = None,
        *,
        where: Where | None = None,
        min_features: int = 0,
        steps: int | None = None,
        warmup_steps: int | None = None,
        stop_when_finished: bool = True,
    ) -> None:
        self.budgets, self.config = budgets, config
        self.where, self.min_features = where, min_features
        self.steps, self.warmup_steps = steps, warmup_steps
        self.stop_when_finished = stop_when_finished
        self.tables: list[AttachedTable] = []
        self.searcher: Searcher | None = None
        self._resumed: Mapping[str, Any] | None = None
        self._last_step = 0

    @property
    def tickets(self) -> list[MaskTicket]:
        """The tickets cut so far, largest first; at its end, the training warns if budgets are missing."""
        return [] if self.searcher is None else self.searcher.tickets_so_far

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if stage == "fit" and not self.tables:
            self.tables = attach_(pl_module, self.config, where=self.where, min_features=self.min_features)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        steps = int(trainer.estimated_stepping_batches) if self.steps is None else self.steps
        self.searcher = Searcher(pl_module, self.budgets, steps=steps, warmup_steps=self.warmup_steps)
        if self._resumed is not None:
            self.searcher.load_state_dict(self._resumed)
        self._last_step = trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if self.searcher is None or trainer.global_step == self._last_step:
            return  # gradients are still being accumulated
        self._last_step = trainer.global_step
        self.searcher.epoch = trainer.current_epoch
        self.searcher.step()
        pl_module.log("kept_parameters", float(self.searcher.num_kept))
        if self.searcher.finished and self.stop_when_finished:
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.searcher is not None:
            self.searcher.warn_if_unfinished()

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self.searcher is not None:  # every process is here; the first one then saves its model
            self.searcher.synchronize()

    def state_dict(self) -> dict[str, Any]:
        return {} if self.searcher is None else self.searcher.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resumed = state_dict or None
