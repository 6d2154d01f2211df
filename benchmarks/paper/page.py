"""The page `docs/reproducing_the_paper.md`: verdict table, terms, differences from the paper, one section per part."""

from collections.abc import Mapping
from pathlib import Path

from paper.markdown import NOT_RUN_YET, Claim, Part, command, paragraphs, table
from paper.settings import PaperSettings
from paper.verdicts.differences import RULE
from thresher._internal.storage.files import write_text

VERDICTS = {"yes": "Holds", "in part": "Holds in part", "no": "Does not hold"}


def write_page(settings: PaperSettings, parts: Mapping[str, Part]) -> Path:
    write_text(settings.page, page_text(settings, parts))
    return settings.page


def page_text(settings: PaperSettings, parts: Mapping[str, Part]) -> str:
    claims = {name: module.claims(settings) for name, module in parts.items()}
    rows = [
        [f"[{claim.statement}](#{_anchor(parts[name].TITLE)})", claim.holds, claim.evidence]
        for name, found in claims.items()
        for claim in found
    ]
    verdicts = table(["claim of the paper", "holds here", "evidence"], rows, numbers=False)
    sections = [
        _introduction(settings),
        f"## Which claims of the paper hold\n\n{verdicts if rows else 'No part has been run yet.'}",
        _commands(),
        _how_to_read(),
        _differences(),
        *(_section(settings, name, module, claims[name]) for name, module in parts.items()),
    ]
    return paragraphs(*sections) + "\n"


def _section(settings: PaperSettings, name: str, part: Part, claims: list[Claim]) -> str:
    """What was measured, what came out and what it means, then the details."""
    source = f"Paper: {part.PUBLISHED}." if part.PUBLISHED else "Not in the paper."
    results = [f"- **{VERDICTS[claim.holds]}:** {claim.statement}. {claim.meaning}".rstrip() for claim in claims]
    return paragraphs(
        f"## {part.TITLE}",
        f"{source} Reproduce with {command(name)}.",
        part.MEASURED,
        "\n".join(results),
        part.page(settings).strip() or NOT_RUN_YET,
    )


def _anchor(title: str) -> str:
    """Return the anchor that GitHub gives to a heading.

    >>> _anchor("Running time, and one search")
    'running-time-and-one-search'
    """
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter == "-")


def _introduction(settings: PaperSettings) -> str:
    quick = "\nThis is the quick version: few rows, few epochs, one seed. Its numbers have no meaning.\n"
    return f"""# Reproducing the paper
{quick if settings.quick else ""}
This page reproduces the experiments of *Learnable Embedding Sizes for Recommender Systems* (Liu et al., ICLR 2021) with
Thresher. MovieLens-1M is used in full. Criteo and Avazu are represented by small samples of the real files. Tables and
figures are numbered as in the paper. All numbers are read from `benchmarks/results/`; `benchmarks/paper/make.py` writes
this page."""


def _commands() -> str:
    return """## How to reproduce it

```sh
export THRESHER_DATA_DIR=…        # contains ml-1m/, criteo/ and avazu/
make paper-quick                  # a small version of every figure, in minutes
make paper                        # everything; finished results are skipped. From scratch: several days on one core
python benchmarks/paper/make.py --only frontier,runtime
python benchmarks/paper/make.py --draw-only    # figures and page from the stored results, without training
```

Not reproduced: MGQE and DartsEmb under DeepFM and AutoInt, and DeepFM and AutoInt on Criteo and Avazu (Figures 2 to 4);
retraining from other weights on Avazu, because its sample is too small (Figure 9); test AUC over the epochs of
retraining by granularity (Figure 10 (b)), which is replaced by AUC over sizes."""


def _how_to_read() -> str:
    return """## Terms

- **Ticket:** the mask of kept entries that a search finds for one budget. It is retrained before it is evaluated.
- **PEP decay:** the published search. Thresholds pass through a sigmoid and are raised by coupled weight decay.
- **PEP plan:** Thresher's search. It follows a plan of sizes ([search.md](search.md)). A threshold is a common *clock*
  plus a learned *deviation*.
- **PEP-0:** the smallest table reported in the paper for a model and data set.
- **Hard labels:** training on the labels, as in the paper. **Distilled:** training on soft labels, the predictions of a
  teacher, which is the dense model unless stated otherwise.
- **D:** the embedding dimension before pruning.
- **Numbers** are mean ± standard deviation over seeds, with the number of seeds in brackets. A seed changes the initial
  weights and the order of batches, not the split. Differences are paired by seed. *–* means not available."""


def _differences() -> str:
    return f"""## Differences from the paper

- **Protocol.** Every choice (epoch, settings, ticket) is made on the validation split, the best weights are restored,
  and the test split is read once per reported model. The curves of the lottery ticket section are the only exception;
  nothing is chosen by them. The authors' code selects its numbers on the test split and averages AUC over batches; here
  AUC is computed over the whole split.
- **Training** stops on validation AUC (paper: logloss). Dense models and tickets are evaluated with an exponential
  moving average of the weights. In the comparisons of methods an epoch counts as an improvement only if it gains more
  than 0.0001. This also applies to the logistic regression there, which stops slightly earlier than the one in [PEP-0
  against logistic regression](#pep-0-against-logistic-regression).
- **MovieLens-1M.** The paper's rule (rating 3 is dropped) gives 739,012 rows and 4,129 features in seven fields, 4,136
  with one unknown feature per field. The paper reports 739,015 and 3,864. 6,541 parameters are therefore a slightly
  smaller share here.
- **Criteo and Avazu** are small samples of the real data: 137,139 of 45,840,617 rows and 20,000 of 40,400,000 rows.
  Compare models with each other, not AUC levels with the paper. The paper's settings for the full files are in
  `benchmarks/experiments/criteo/` and `…/avazu/`; `benchmarks/run.py` runs them. They do not suit the samples: a
  threshold that starts at −150 and rises by 0.001 per step would need 1,400 epochs of the Criteo sample. *PEP decay*
  therefore starts at −15, as on MovieLens-1M.
- **Networks.** FM uses the defaults. DeepFM uses the authors' MLP with dropout 0.5 instead of 0.2, a plan of 40 epochs,
  and a learning rate of 0.003 instead of 0.001. AutoInt is AutoInt+ (with an MLP), with one attention layer instead of
  three, the same dropout, and a learning rate of 0.003 throughout. The networks for the samples are smaller. The files
  in `benchmarks/experiments/` state which settings were chosen on validation, with how many seeds, and which were
  copied from another model.
- **Retraining** starts from the initial weights of the search, for *PEP decay* and for *PEP plan*.
- **Distillation.** By default, PEP plan retrains tickets, and repeats the search, on soft labels of the dense model if
  that gains at least 0.001 validation AUC ([distillation](distillation.md)). Only the smallest
  ticket is tried, and it decides for all sizes. Larger tickets can be better with hard labels; FM's ticket of 50,000
  is. The paper uses hard labels only, and so do all comparisons of methods on this page unless stated otherwise.
- **When a method is better.** {RULE.replace(chr(10), chr(10) + "  ")}
- **Parameters** are embedding parameters without first-order weights, as in the paper. Bytes include everything that a
  lookup needs.
- **The authors' code** was re-run on MovieLens-1M independently: dense FM 0.8387; at 20,000 parameters FM 0.8479,
  DeepFM 0.8464, AutoInt 0.8471. Only these numbers are known of that run, not its commit or seeds."""
