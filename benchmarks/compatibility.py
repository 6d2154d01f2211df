"""Which models of other libraries can be pruned without changes to their code.

    python benchmarks/compatibility.py [--libraries torchfm,recbole] [--out …]

Each model is small, has random weights, and is attached, searched, retrained, made compact and detached; `check_model`
is what is checked at each stage. Writes benchmarks/results/compatibility.json and, with all libraries, the table in
docs/compatible_models.md. Models of RecBole and FuxiCTR are written after their published structure. A library that is
not installed is left out.
"""

import argparse
import copy
import importlib
import json
import traceback
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from compatibility_models.case import Case
from thresher import Searcher, attach_, compact_, detach_
from thresher.errors import ThresherError

HERE = Path(__file__).parent
RESULT, PAGE = HERE / "results" / "compatibility.json", HERE.parent / "docs" / "compatible_models.md"
LIBRARIES = {
    "torchfm": "torchfm",
    "deepctr": "DeepCTR-Torch",
    "rechub": "Torch-RecHub",
    "recbole": "RecBole (rewritten)",
    "fuxictr": "FuxiCTR (rewritten)",
    "torchrec": "TorchRec",
    "hugging_face": "Hugging Face",
}
START, END = "<!-- compatibility: start -->", "<!-- compatibility: end -->"
STEPS, SHARE = 12, 5


@dataclass(frozen=True)
class Outcome:
    library: str
    model: str
    works: bool
    num_tables: int = 0
    reason: str | None = None  # why it does not work, or why it is refused


class Stage:
    """The name of the stage a model is at, for the reason of a failure."""

    name = "build"


def train(case: Case, model: nn.Module, num_steps: int, searcher: Searcher | None = None) -> None:
    optimizer = torch.optim.Adam([one for one in model.parameters() if one.requires_grad], lr=0.01)
    model.train()
    for step in range(num_steps):
        optimizer.zero_grad()
        outputs = case.outputs(model, step)
        targets = torch.linspace(0, 1, outputs.numel()).view(outputs.shape)
        (outputs - targets).square().mean().backward()
        optimizer.step()
        if searcher is not None:
            searcher.step()
    model.eval()


@torch.no_grad()
def outputs_of(case: Case, model: nn.Module) -> Tensor:
    torch.manual_seed(0)
    return case.outputs(model.eval(), 0).clone()


def require(holds: bool, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def check_model(case: Case, stage: Stage) -> int:
    """Raise if a stage changes what it must not change; return the number of pruned tables."""
    dense = case.build()
    expected, names = outputs_of(case, dense), list(dense.state_dict())
    stage.name = "attach"
    model = copy.deepcopy(dense)
    tables = attach_(model, min_embedding_dim=case.min_embedding_dim)
    require(torch.equal(outputs_of(case, model), expected), "outputs changed")
    require(set(names) <= set(model.state_dict()), "names of the state_dict changed")
    stage.name = "detach of the attached model"
    plain = copy.deepcopy(model)
    detach_(plain)
    require(list(plain.state_dict()) == names, "names of the state_dict changed")
    require(torch.equal(outputs_of(case, plain), expected), "outputs changed")
    stage.name = "search"
    searcher = Searcher(model, f"{100 // SHARE}%", steps=STEPS, warmup_steps=4, every=2)
    train(case, model, STEPS, searcher)
    [ticket] = searcher.tickets
    require(ticket.num_parameters == searcher.num_entries // SHARE, "the budget was not met")
    stage.name = "retrain"
    pruned, masked = copy.deepcopy(dense), copy.deepcopy(dense)
    ticket.apply_(pruned)
    with torch.no_grad():
        for name, mask in ticket.masks.items():
            masked.get_submodule(name).weight.mul_(mask)
    torch.testing.assert_close(outputs_of(case, pruned), outputs_of(case, masked))
    train(case, pruned, 4)
    stage.name = "compact"
    expected = outputs_of(case, pruned)
    require(sum(table.num_parameters for table in compact_(pruned)) == ticket.num_parameters, "entries changed")
    require(torch.equal(outputs_of(case, pruned), expected), "outputs changed")
    stage.name = "detach of the compact model"
    detach_(pruned)
    torch.testing.assert_close(outputs_of(case, pruned), expected)
    require(list(pruned.state_dict()) == names, "names of the state_dict changed")
    return len(tables)


def outcome_of(library: str, case: Case, *, verbose: bool = False) -> Outcome:
    stage = Stage()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Outcome(library, case.name, True, check_model(case, stage))
    except Exception as error:
        if verbose:
            traceback.print_exc()
        kind = "" if isinstance(error, ThresherError | AssertionError) else f"{type(error).__name__}: "
        return Outcome(library, case.name, False, 0, f"{stage.name}: {kind}{str(error).strip().splitlines()[0]}")


def cases_of(library: str) -> list[Case] | None:
    """The models of a library; None if it is not installed."""
    try:
        module = importlib.import_module(f"compatibility_models.{library}_cases")
        cases: list[Case] = module.cases()
    except ImportError:
        return None
    return cases


def table_of(outcomes: list[Outcome]) -> str:
    """The table of docs/compatible_models.md."""
    lines = ["| library | models | work | not |", "| --- | --- | ---: | --- |"]
    for library, title in LIBRARIES.items():
        found = [one for one in outcomes if one.library == library]
        if found:
            names = ", ".join(one.model for one in found if one.works)
            others = "; ".join(f"{one.model}: {one.reason}" for one in found if not one.works)
            number = f"{sum(one.works for one in found)} of {len(found)}"
            lines.append(f"| {title} | {names} | {number} | {others} |")
    total = f"**{sum(one.works for one in outcomes)} of {len(outcomes)}**"
    return "\n".join([*lines, f"| all | | {total} | |"])


def write_table(outcomes: list[Outcome]) -> None:
    before, rest = PAGE.read_text().split(START)
    PAGE.write_text(f"{before}{START}\n{table_of(outcomes)}\n{END}{rest.split(END)[1]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--models", help="only models whose names contain this")
    parser.add_argument("--verbose", action="store_true", help="print tracebacks")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    outcomes, missing = [], []
    for library in arguments.libraries.split(","):
        cases = cases_of(library)
        if cases is None:
            missing.append(library)
            print(f"{library} is not installed")
            continue
        for case in cases:
            if arguments.models is None or arguments.models in case.name:
                outcomes.append(outcome_of(library, case, verbose=arguments.verbose))
                print(f"{library} {case.name}: {outcomes[-1].reason or 'works'}", flush=True)
    whole = arguments.libraries == ",".join(LIBRARIES) and arguments.models is None
    out = arguments.out or (RESULT if whole else None)
    if out is not None:
        result = {"not_installed": missing, "outcomes": [asdict(one) for one in outcomes], "torch": torch.__version__}
        out.write_text(json.dumps(result, indent=1) + "\n")
    if whole and arguments.out is None:
        write_table(outcomes)
    print(json.dumps({"works": sum(one.works for one in outcomes), "models": len(outcomes)}))


if __name__ == "__main__":
    main()
