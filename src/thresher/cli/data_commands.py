"""encode: raw files → EncodedTable, without training anything."""

from pathlib import Path
from typing import Annotated

import typer

from thresher.cli import options
from thresher.cli.console import show_json, told_plainly
from thresher.cli.progress import display


@told_plainly()
def encode(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the encoded table.")],
    sources: options.Sources = None,
    label: options.Label = None,
    positive: options.Positive = None,
    fields: options.Fields = None,
    drop: options.Drop = None,
    data_dir: options.DataDir = None,
    min_count: options.MinCount = None,
    split_seed: options.SplitSeed = None,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Read raw files once: feature ids, labels, vocabularies and the split, memory-mapped in a folder."""
    from thresher.cli.settings import Flags, run_config, show_guess
    from thresher.cli.show import describe_table, show_facts
    from thresher.data.encode import encode as encode_source
    from thresher.data.sources import build_source

    data = run_config(Flags.of(context.params)).data
    show_guess(data)
    with display(quiet=quiet) as progress:
        table = encode_source(build_source(data), out, overwrite=force, progress=progress.encoding)
    facts = describe_table(table)
    if as_json:
        show_json(facts)
    else:
        show_facts(facts)
