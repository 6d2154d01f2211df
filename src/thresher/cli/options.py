"""The flags several commands share, each with the sentence `--help` shows. Nothing heavy is loaded here."""

from pathlib import Path
from typing import Annotated

import typer

DATA, MODEL, OUTPUT = "Data", "Model and search", "Run and output"

Sources = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="DATA",
        help="Your files (CSV, TSV, Parquet, also .gz or .zst; several or a 'glob*'), or a data set by name: "
        "movielens-1m, criteo, avazu, synthetic.",
        show_default=False,
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="Settings from a TOML file; flags come on top.", rich_help_panel=OUTPUT),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Any setting by its dotted name, such as training.batch_size=4096.",
        rich_help_panel=OUTPUT,
    ),
]  # fmt: skip
DataDir = Annotated[
    str | None, typer.Option(help="Folder of a named data set's raw files.", rich_help_panel=DATA, show_default=False)
]
Label = Annotated[
    str | None, typer.Option(help="The label's column; guessed when absent.", rich_help_panel=DATA, show_default=False)
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
        metavar="A,B:log2", help="The columns to use, each with an optional transform; guessed when absent.",
        rich_help_panel=DATA, show_default=False,
    ),
]  # fmt: skip
Drop = Annotated[
    str | None,
    typer.Option(metavar="A,B", help="Columns the guess leaves out.", rich_help_panel=DATA, show_default=False),
]
MinCount = Annotated[
    int | None,
    typer.Option(help="Values seen fewer times become unknown.", rich_help_panel=DATA, show_default=False, metavar="N"),
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
Model = Annotated[
    str | None,
    typer.Option(
        help="fm (default), deepfm, autoint, lr, or one you registered.", rich_help_panel=MODEL, show_default=False
    ),
]
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
        help="How the table is made small: pep (default), magnitude, uniform, …",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
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
Resume = Annotated[bool, typer.Option("--resume", help="Go on with the run in --out.", rich_help_panel=OUTPUT)]
Force = Annotated[bool, typer.Option("--force", help="Throw away what is in --out.", rich_help_panel=OUTPUT)]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of a table.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.", rich_help_panel=OUTPUT)]
