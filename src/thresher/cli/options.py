"""The flags several commands share, each with the sentence `--help` shows. Nothing heavy is loaded here."""

from pathlib import Path
from typing import Annotated

import typer

DATA, MODEL, OUTPUT = "Data", "Model and search", "Run and output"

_RAW = (
    "Your files (CSV, TSV, Parquet, also .gz or .zst; several or a 'glob*'), or a data set by name: "
    "movielens-1m, criteo, avazu (with --data-dir, or followed by its files), synthetic"
)
RawSources = Annotated[list[str] | None, typer.Argument(metavar="DATA", help=f"{_RAW}.", show_default=False)]
Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="DATA", help=f"{_RAW}; or a folder that thresher encode made.", show_default=False),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", help="Settings from a TOML file; flags come on top.", rich_help_panel=OUTPUT
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any setting by its dotted name, such as training.batch_size=4096.",
        rich_help_panel=OUTPUT,
    ),
]  # fmt: skip
DataDir = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="A named data set's raw files: ratings.dat, users.dat, movies.dat (movielens-1m), train.txt or day_* "
        "(criteo), train.csv (avazu).",
        rich_help_panel=DATA, show_default=False,
    ),
]  # fmt: skip
Label = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="The label's column; guessed when absent.", rich_help_panel=DATA, show_default=False
    ),
]
Positive = Annotated[
    str | None,
    typer.Option(
        metavar="A,B", help="Label values that mean 1; without it the label is 0/1.", rich_help_panel=DATA,
        show_default=False,
    ),
]  # fmt: skip
Fields = Annotated[
    str | None,
    typer.Option(
        metavar="A,B:log2",
        help="The columns to use, bare for their values as they are, or with a transform: log2, quantiles, or a "
        "part of a date: hour, weekday, day, month, year, hour_of_week (hash is for --config). Without "
        "this flag columns and transforms are guessed.",
        rich_help_panel=DATA, show_default=False,
    ),
]  # fmt: skip
Drop = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Columns the guess leaves out.", rich_help_panel=DATA, show_default=False),
]
MinCount = Annotated[
    int | None,
    typer.Option(
        help="Values seen fewer times become unknown; default 1, criteo and avazu 10.",
        rich_help_panel=DATA,
        show_default=False,
        metavar="N",
    ),
]
SplitSeed = Annotated[
    int | None,
    typer.Option(
        help="Decides which rows are train, validation and test; default 0.",
        rich_help_panel=DATA,
        show_default=False,
        metavar="N",
    ),
]
BadRows = Annotated[
    str | None,
    typer.Option(
        metavar="error|skip",
        help="A row that cannot be read stops the reading (default), or is left out, counted and shown.",
        rich_help_panel=DATA, show_default=False,
    ),
]  # fmt: skip
VocabularyFrom = Annotated[
    str | None,
    typer.Option(
        metavar="train|all",
        help="Rows the vocabularies are made from: the training split (default), or all as in the paper.",
        rich_help_panel=DATA, show_default=False,
    ),
]  # fmt: skip
VocabularyLike = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="Use the fields and vocabularies of this encoded table: tomorrow's file as yesterday's.",
        rich_help_panel=DATA, show_default=False,
    ),
]  # fmt: skip
NewValues = Annotated[
    str | None,
    typer.Option(
        metavar="unknown|append",
        help="With --vocabulary-like: values it does not know become unknown (default), or are appended.",
        rich_help_panel=DATA, show_default=False,
    ),
]  # fmt: skip
MemoryMb = Annotated[
    int | None,
    typer.Option(
        metavar="MB", help="About how much memory reading may take beside the vocabularies; default 1000.",
        rich_help_panel=DATA, show_default=False,
    ),
]  # fmt: skip
Model = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="fm (default), deepfm, autoint, or one you registered; lr with --set embedding.first_order=true.",
        rich_help_panel=MODEL, show_default=False,
    ),
]  # fmt: skip
EmbeddingDim = Annotated[
    int | None,
    typer.Option(
        "--embedding-dim", "-d", help="Width of the table before pruning; default 64.", rich_help_panel=MODEL,
        show_default=False, metavar="D",
    ),
]  # fmt: skip
Method = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="How the table is made small: pep (default), magnitude, uniform, mde, hash, … (docs/methods.md).",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
Teachers = Annotated[
    str | None,
    typer.Option(
        metavar="NAME,…", help="Models to learn from beside the dense one, e.g. deepfm,autoint (docs/search.md).",
        rich_help_panel=MODEL, show_default=False,
    ),
]  # fmt: skip
Budgets = Annotated[
    str | None,
    typer.Option(
        metavar="30k,2%,1MB",
        help="Sizes to prune to: parameters, shares of the table, or bytes; default 10%,5%,2%,1%.",
        rich_help_panel=MODEL, show_default=False,
    ),
]  # fmt: skip
MaxAucDrop = Annotated[
    float | None,
    typer.Option(
        metavar="0.001", help="Instead of budgets: what validation AUC may be lost; finds the smallest such size.",
        rich_help_panel=MODEL, show_default=False,
    ),
]  # fmt: skip
Seed = Annotated[
    int | None,
    typer.Option(
        help="Of initial weights and batch order; default 0.", rich_help_panel=MODEL, show_default=False, metavar="N"
    ),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        metavar="",
        help="Go on with the run in --out; alone, with its own settings.",
        rich_help_panel=OUTPUT,
    ),
]
Force = Annotated[
    bool, typer.Option("--force", metavar="", help="Throw away the run or table in --out.", rich_help_panel=OUTPUT)
]
Json = Annotated[
    bool,
    typer.Option("--json", metavar="", help="Print one JSON document instead of a table.", rich_help_panel=OUTPUT),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="No progress.", rich_help_panel=OUTPUT)]
