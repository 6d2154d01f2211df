"""The page `docs/reproducing_the_paper.md`: what holds of the paper, what differs and why, then every part."""

from collections.abc import Mapping
from pathlib import Path

from paper.markdown import NOT_RUN_YET, Part, command, table
from paper.settings import PaperSettings
from paper.verdicts.differences import RULE
from thresher._internal.files import write_text


def write_page(settings: PaperSettings, parts: Mapping[str, Part]) -> Path:
    write_text(settings.page, page_text(settings, parts))
    return settings.page


def page_text(settings: PaperSettings, parts: Mapping[str, Part]) -> str:
    """All parts' sections under one introduction."""
    sections = [_introduction(settings), _claims(settings, parts), _differences()]
    for name, module in parts.items():
        where = f"In the paper: {module.PUBLISHED}." if module.PUBLISHED else "Not in the paper."
        text = module.page(settings).strip() or NOT_RUN_YET
        sections.append(f"## {module.TITLE}\n\n{where} Made by {command(name)}.\n\n{text}")
    return "\n\n".join(sections) + "\n"


def _claims(settings: PaperSettings, parts: Mapping[str, Part]) -> str:
    """What parts say of the paper's claims, each with a link to where it is shown."""
    rows = [
        [f"[{claim.said}](#{_anchor(module.TITLE)})", claim.holds, claim.here]
        for module in parts.values()
        for claim in module.claims(settings)
    ]
    told = (
        table(["the paper says; *ours*: what we ask", "holds here", "numbers"], rows, numbers=False)
        if rows
        else "No part has been run yet."
    )
    return f"""## What holds of the paper, and what does not

{told}"""


def _anchor(title: str) -> str:
    """As GitHub names a heading.

    >>> _anchor("Running time, and one search")
    'running-time-and-one-search'
    """
    return "".join(letter for letter in title.lower().replace(" ", "-") if letter.isalnum() or letter == "-")


def _introduction(settings: PaperSettings) -> str:
    quick = "\nThis is the quick version: few rows, few epochs, one seed. Its numbers mean nothing.\n"
    return f"""# Reproducing the paper
{quick if settings.quick else ""}
The tables and figures of *Learnable Embedding Sizes for Recommender Systems* (Liu et al., ICLR 2021) that need an
experiment, made again with Thresher: on MovieLens-1M in full, on small real files of Criteo and Avazu in place of the
whole ones. Tables and figures are numbered as in the paper. What is not made of them: under DeepFM and AutoInt the
curves of MGQE and DartsEmb, and those on Criteo and Avazu (Figures 2 to 4); retraining from other weights on Avazu,
whose small file is too small for it (Figure 9); test AUC over the epochs of retraining by granularity (Figure 10 (b)),
for which there is AUC over sizes. `benchmarks/paper/make.py` writes this page; all results of ours on it are read from
`benchmarks/results/`.

```sh
export THRESHER_DATA_DIR=…        # with ml-1m/, criteo/ and avazu/
make paper-quick                  # a small version of every figure, in minutes
make paper                        # all of it; what is done is passed over. From nothing: several days of one core
python benchmarks/paper/make.py --only frontier,runtime
```

Words: a search cuts a *ticket*, the entries of a table that are kept, for each size asked for. *PEP decay* is the
published search (thresholds through a sigmoid, raised by coupled weight decay), *PEP plan* ours, which follows a plan
of sizes ([search.md](search.md)); a threshold there is a clock for all plus a learned *deviation*. *PEP-0* is the
paper's smallest table. *By labels* is training as in the paper, *taught* on what the dense model predicts."""


def _differences() -> str:
    return f"""## What differs from the paper, and why

- **Protocol.** Here every choice (epoch, settings, which ticket) is made on the validation split, the best weights are
  restored, and the test split is read once per reported model; the curves of the lottery ticket are the exception, by
  name, and decide nothing. The authors' code picks its numbers on the test split, with an AUC averaged over batches;
  ours is over the whole split. Numbers are mean ± standard deviation over seeds, how many in brackets; a seed changes
  initial weights and batch order, never the split.
- **Training** stops on validation AUC (the paper: logloss), and what is evaluated and kept is a running mean of the
  weights, for dense models and tickets alike. In comparisons of methods an epoch must gain more than 0.0001 to count,
  also for the logistic regression among them, which therefore stops a little before that of [PEP-0 against logistic
  regression](#pep-0-against-logistic-regression).
- **MovieLens-1M.** The paper's rule (rating 3 dropped) leaves 739,012 rows and 4,129 features in seven fields, 4,136
  with an unknown one per field; the paper counts 739,015 and 3,864. So 6,541 parameters are a slightly smaller share.
- **Criteo and Avazu** are the real data in small: 137,139 of 45,840,617 rows and 20,000 of 40,400,000. They show how
  models compare, not the paper's level. The paper's settings for the whole files are in
  `benchmarks/experiments/criteo/` and `…/avazu/`; `benchmarks/run.py` runs them. They are of no use here: thresholds
  that start at −150 and rise by 0.001 a step would take 1,400 epochs of the small Criteo file. So *PEP decay* starts at
  −15 there, as on MovieLens-1M.
- **Networks.** FM has the defaults. DeepFM has the authors' perceptron with dropout 0.5 instead of 0.2, a plan of 40
  epochs, and trains at 0.003 instead of 0.001; AutoInt is AutoInt+ (with a perceptron), with one layer of attention
  instead of three, the same dropout, and 0.003 throughout. On the small files networks are smaller. The files of
  `benchmarks/experiments/` tell which settings validation chose, with how many seeds, and which were taken over.
- **Retraining** starts from the initial weights of the search, with *PEP decay* and with *PEP plan*.
- **A teacher.** With PEP plan's default the tickets, and a second search, learn what the dense model predicts where
  that gains at least 0.001 on validation ([search.md](search.md#the-dense-model-as-a-teacher)). The smallest ticket
  alone is asked, and decides for all sizes; larger ones may do better by labels, as FM's of 50,000 does. The paper has
  labels alone, and so have all comparisons of methods here, unless they say otherwise.
- **Who is ahead.** {RULE.replace(chr(10), chr(10) + "  ")}
- **Parameters** are those of embeddings, first-order weights left out, as in the paper; bytes are all a lookup needs.
- **The authors' code** has been re-run on MovieLens-1M independently: FM dense 0.8387, and at 20,000 parameters FM
  0.8479, DeepFM 0.8464, AutoInt 0.8471. No more than these numbers is known of that run, neither commit nor seeds."""
