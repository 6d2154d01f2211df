"""Searcher: the threshold search as an object one steps, in our loop or in anybody's.

    searcher = Searcher(model, budgets=["50k", "2%"], steps=20_000)
    ...
    loss.backward(); optimizer.step(); searcher.step()

It never sees a batch: it looks at the tables, moves their clock, and cuts a ticket when the count falls to a budget.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from thresher.attach.untrained import UntrainedCheck
from thresher.errors import ConfigError
from thresher.search.budget import Budget, parse_budgets
from thresher.search.cutting import Cutter
from thresher.search.plan import Plan
from thresher.search.pressure import DecayPressure, PlanPressure, PressureOn, searched_tables
from thresher.search.ticket import MaskTicket
from thresher.search.ticket_state import ticket_from_state, ticket_state


class Searcher:
    """Presses a model's PEP tables towards a list of budgets, one search for all of them.

    Args:
        model: a model with PEP tables; its state at this moment is what tickets rewind to.
        budgets: sizes to cut tickets for, over all searched tables together.
        steps: optimizer steps of the whole search.
        warmup_steps: how many of them leave everything kept (a third by default); `end_warmup` ends it earlier.
        every: steps between two looks at the tables.
        seed: written into the tickets.
        on_ticket: called with each ticket as it is cut.
        before_cut: called before entries are scored for a ticket, e.g. `RowAdam.catch_up`, since all rows are compared.
    """

    def __init__(
        self,
        model: nn.Module,
        budgets: str | int | Budget | Iterable[str | int | Budget],
        *,
        steps: int,
        warmup_steps: int | None = None,
        every: int = 20,
        seed: int = 0,
        on_ticket: Callable[[MaskTicket], None] | None = None,
        before_cut: Callable[[], None] | None = None,
    ) -> None:
        if every < 1:
            raise ConfigError(f"every is {every}; the clock is set each so many steps, at least 1")
        self.model = model
        self.tables = searched_tables(model)
        self.budgets = parse_budgets(budgets)
        self.num_entries = sum(table.num_entries() for table in self.tables.values())
        self.warmup_steps = steps // 3 if warmup_steps is None else warmup_steps
        self.every, self.seed = every, seed
        self.on_ticket, self.before_cut = on_ticket, before_cut
        self.num_kept = self.num_entries
        self.current_step = 0
        self.epoch = 0  # for whoever counts in epochs: written into tickets and histories, never decides anything
        self._steps = steps
        self._pressing_since: int | None = None if self.warmup_steps else 0
        self._cutter = Cutter(
            model,
            {name: table.holders[0].weight for name, table in self.tables.items()},
            self.budgets,
            num_entries=self.num_entries,
            method="pep",
            seed=seed,
            on_ticket=self._tell,
        )
        self._untrained = UntrainedCheck(model, self.initial_state)

        holders = [holder for table in self.tables.values() for holder in table.holders]
        self.planned = holders[0].config.pressure == "plan"
        if self.planned and self.warmup_steps >= steps:
            raise ConfigError(
                f"the warm-up of {self.warmup_steps} steps leaves nothing of the search's {steps}: no budget would be "
                "reached; make the search longer or the warm-up shorter"
            )
        self.plan = Plan(self.num_entries, self._cutter.smallest, steps - self.warmup_steps)
        self._pressure: PressureOn = PlanPressure(holders, self.plan) if self.planned else DecayPressure()

    def __repr__(self) -> str:
        stage = "finished" if self.finished else "warming up" if self.warming_up else "pressing"
        kept = f"{self.num_kept:,} of {self.num_entries:,} entries kept"
        following = [] if self.next_budget is None else [f"next budget {self.next_budget}"]
        cut = ", ".join(str(ticket.budget) for ticket in self.tickets) or "none yet"
        return f"Searcher({', '.join([f'step {self.current_step:,}', stage, kept, *following])}, tickets: {cut})"

    @property
    def tickets(self) -> list[MaskTicket]:
        """Those cut so far, largest first."""
        return self._cutter.tickets

    @property
    def initial_state(self) -> dict[str, Tensor]:
        """The model's state before the search, to which tickets rewind."""
        return self._cutter.initial_state

    @property
    def finished(self) -> bool:
        """Every budget has its ticket."""
        return self._cutter.finished

    @property
    def warming_up(self) -> bool:
        return self._pressing_since is None

    @property
    def next_budget(self) -> Budget | None:
        """The largest budget still without a ticket."""
        return next(iter(self._cutter.open_budgets()), None)

    def end_warmup(self) -> None:
        """Start pressing now; the plan keeps its own length."""
        if self._pressing_since is None:
            self._pressing_since = self.current_step

    def step(self) -> None:
        """To be called after each `optimizer.step()`."""
        self.current_step += 1
        if self.current_step >= self.warmup_steps:
            self.end_warmup()
        if self._pressing_since is None or self.finished:
            return
        pressed_steps = self.current_step - self._pressing_since
        if pressed_steps % self.every == 0 or pressed_steps == self.plan.num_steps:
            self._untrained.check()
            scores = {name: table.scored() for name, table in self.tables.items()}
            self.num_kept = self._pressure.press(pressed_steps, scores)
            if self.before_cut is not None and self._cutter.may_be_due(self.num_kept):
                self.before_cut()
                scores = {name: table.scored() for name, table in self.tables.items()}
            at_end = self.planned and pressed_steps >= self.plan.num_steps
            at_least = 0 if at_end else self.num_kept
            self._cutter.cut_due(scores, at_least=at_least, step=self.current_step, epoch=self.epoch)

    def _tell(self, ticket: MaskTicket) -> None:
        if self.on_ticket is not None:
            self.on_ticket(ticket)

    def state_dict(self) -> dict[str, Any]:
        """Plain data and tensors: with the model's and the optimizer's own state, all that a resumed loop needs."""
        tickets = [ticket_state(ticket) for ticket in self.tickets]
        return {
            "budgets": [str(budget) for budget in self.budgets],
            "steps": self._steps,
            "position": self.position(),
            "initial_state": dict(self.initial_state),
            "tickets": tickets,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken; load the model's and the optimizer's state too."""
        tickets = [ticket_from_state(ticket) for ticket in state["tickets"]]
        if "budgets" in state:
            theirs = [Budget.parse(text) for text in state["budgets"]]
            fits = set(theirs) == set(self.budgets)
        else:  # an early state tells those it has tickets for
            theirs = [ticket.budget for ticket in tickets]
            fits = set(theirs) <= set(self.budgets)
        if not fits:
            of_state, asked = (", ".join(map(str, budgets)) for budgets in (theirs, self.budgets))
            raise ConfigError(
                f"the state is of a search for {of_state}, this one has the budgets {asked}; make the searcher with "
                "the budgets it had"
            )
        if state.get("steps", self._steps) != self._steps:
            raise ConfigError(
                f"the state is of a search of {state['steps']:,} steps, this one has {self._steps:,}: its plan would "
                "jump; make the searcher with as many"
            )
        stored, own = (
            {(name, value.shape) for name, value in initial.items()}
            for initial in (state["initial_state"], self.initial_state)
        )
        if mismatched := sorted({name for name, _ in stored ^ own}):
            raise ConfigError(f"the state is of a search of another model: {', '.join(mismatched[:3])} differ")
        self.restore(state["position"], state["initial_state"], tickets)

    def position(self) -> dict[str, int | None]:
        """Where the search stands, as plain data; with the tables' own state it is all a resumed search needs."""
        return {"step": self.current_step, "epoch": self.epoch, "pressing_since": self._pressing_since,
                "num_kept": self.num_kept}  # fmt: skip

    def restore(
        self, position: Mapping[str, int | None], initial_state: Mapping[str, Tensor], tickets: Sequence[MaskTicket]
    ) -> None:
        """Go on from `position`; the model's own state must have been loaded by the caller."""
        self.current_step, self.epoch = int(position["step"] or 0), int(position["epoch"] or 0)
        self._pressing_since = position["pressing_since"]
        self.num_kept = int(position["num_kept"] or 0)
        self._cutter.restore(initial_state, tickets)
