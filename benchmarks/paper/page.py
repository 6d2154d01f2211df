"""The page `docs/reproducing_the_paper.md`, and the Markdown all parts are written in."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from types import ModuleType
from typing import Any

from paper.settings import PaperSettings
from thresher.files import write_text

ABSENT = "–"


def mean_sd(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard deviation over seeds, and how many there were.

    >>> mean_sd([0.8490, 0.8496, 0.8493]), mean_sd([0.85])
    ('0.8493 ± 0.0003 (3)', '0.8500 (1)')
    """
    if not values:
        return ABSENT
    spread = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{fmean(values):.{digits}f}{spread} ({len(values)})"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; all but the first column are set right."""
    lines = [list(heads), ["---", *["---:"] * (len(heads) - 1)], *([str(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def command(part: str) -> str:
    """How to make one part."""
    return f"`python benchmarks/paper/make.py --only {part}`"


def not_run_yet(part: str) -> str:
    return f"Not run yet: {command(part)}."


def picture(settings: PaperSettings, stem: str, alt: str) -> str:
    """A figure of `settings.images`, by its name without suffix; nothing while there is too little to draw it of."""
    drawn = settings.images / f"{stem}.png"
    return f"![{alt}]({Path(os.path.relpath(drawn, settings.page.parent)).as_posix()})" if drawn.exists() else ""


def made_from(*contents: Mapping[str, Any]) -> str:
    """Commits and machine of what results were made with, in a few words."""
    runs = [run for content in contents for run in content.get("made_with", [])]
    seeds = [seed for content in contents for seed in content.get("seeds", {}).values()]
    runs += [seed["made_with"] for seed in seeds if "made_with" in seed]
    if not runs:
        return ""
    commits = list(dict.fromkeys(run["commit"] + (" (changed tree)" if run["changed_tree"] else "") for run in runs))
    machines = dict.fromkeys((run["machine"]["cores"], run["machine"]["threads"]) for run in runs)
    where = " and ".join(f"{cores} cores, {threads} in use" for cores, threads in machines)
    return f"Made at commit{'s' if len(commits) > 1 else ''} {', '.join(commits)} on {where}."


def write_page(settings: PaperSettings, parts: Mapping[str, ModuleType]) -> Path:
    write_text(settings.page, page_text(settings, parts))
    return settings.page


def page_text(settings: PaperSettings, parts: Mapping[str, ModuleType]) -> str:
    """All parts' sections under one introduction."""
    sections = [_introduction(settings)]
    for module in parts.values():
        text = module.page(settings).strip()
        sections.append(text if text.startswith("#") else f"## {module.TITLE}\n\n{text}")
    return "\n\n".join(sections) + "\n"


def _introduction(settings: PaperSettings) -> str:
    quick = "\nThis is the quick version: few rows, few epochs, one seed. Its numbers mean nothing.\n"
    return f"""# Reproducing the paper
{quick if settings.quick else ""}
Every table and figure of *Learnable Embedding Sizes for Recommender Systems* (Liu et al., ICLR 2021) that needs an
experiment, made again with Thresher. `benchmarks/paper/make.py` writes this page; all results of ours on it are read
from `benchmarks/results/`.

```sh
export THRESHER_DATA_DIR=…        # with ml-1m/, criteo/ and avazu/
make paper-quick                  # a small version of every figure, in minutes
make paper                        # all of it; resumable, what is done is passed over
python benchmarks/paper/make.py --only frontier,runtime
```

## What differs from the paper, and why

- **Protocol.** Here every choice (epoch, settings, which ticket) is made on the validation split, the best weights are
  restored, and the test split is read once per reported model; the curves of the lottery ticket are the exception, by
  name, and decide nothing. The published numbers were picked on the test split,
  with an AUC averaged over batches; ours is over the whole split. Numbers are mean ± standard deviation over seeds, how
  many in brackets; a seed changes initial weights and batch order, never the split.
- **Training** stops on validation AUC (the paper: logloss), and what is evaluated and kept is a running mean of the
  weights, for dense models and tickets alike. In comparisons of methods an epoch must gain more than 0.0001 to count;
  their logistic regression differs a little from the one trained by itself.
- **MovieLens-1M.** The paper's rule (rating 3 dropped) leaves 739,012 rows and 4,129 features in seven fields, 4,136
  with an unknown one per field; the paper counts 739,015 and 3,864. So 6,541 parameters are a slightly smaller share.
- **Criteo and Avazu** are the real data in small: 137,139 of 45,840,617 rows and 20,000 of 40,400,000. They show how
  models compare, not the paper's level. Settings for the whole files are in `benchmarks/experiments/criteo/` and
  `…/avazu/`; `benchmarks/run.py` runs them.
- **Networks.** FM has the defaults. DeepFM has the authors' perceptron with dropout 0.5 instead of 0.2, a plan of 40
  epochs, and trains at 0.003 instead of 0.001; AutoInt is AutoInt+ (with a perceptron), with one layer of attention
  instead of three, the same dropout, and 0.003 throughout. On the small files networks are smaller. The files of
  `benchmarks/experiments/` tell which settings validation chose, with how many seeds, and which were taken over.
- **The search.** *PEP decay* is the published search: sigmoid, and coupled weight decay on the thresholds. *PEP plan*
  is ours ([search.md](search.md)). Both retrain from the initial weights they were searched with.
- **A teacher.** With PEP plan's default the tickets, and a second search, learn what the dense model predicts where
  validation says that is better ([search.md](search.md#the-dense-model-as-a-teacher)); the paper has labels alone, and
  so have all comparisons of methods here, unless they say otherwise.
- **Parameters** are those of embeddings, first-order weights left out, as in the paper; bytes are all a lookup needs.
- **The authors' code** has been re-run on MovieLens-1M independently: FM dense 0.8387, and at 20,000 parameters FM
  0.8479, DeepFM 0.8464, AutoInt 0.8471."""
