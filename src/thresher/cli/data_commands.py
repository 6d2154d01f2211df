"""encode: raw files → EncodedTable, without training anything."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from thresher.cli import options
from thresher.cli.console import handle_errors, say, show_json
from thresher.cli.progress import display
from thresher.errors import ConfigError


@handle_errors(repeatable=True, skip_flag="--bad-rows skip")
def encode(
    context: typer.Context,
    sources: options.RawSources = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where the encoded table goes.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", metavar="", help="Show what would be made of the first rows; write nothing."),
    ] = False,
    label: options.Label = None,
    positive: options.Positive = None,
    fields: options.Fields = None,
    drop: options.Drop = None,
    data_dir: options.DataDir = None,
    min_count: options.MinCount = None,
    bad_rows: options.BadRows = None,
    split_seed: options.SplitSeed = None,
    vocabulary_from: options.VocabularyFrom = None,
    vocabulary_like: options.VocabularyLike = None,
    new_values: options.NewValues = None,
    memory_mb: options.MemoryMb = None,
    config: options.ConfigFile = None,
    settings: options.Settings = None,
    force: options.Force = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Read raw files once: feature ids, labels, vocabularies and the split, memory-mapped in a folder.

    Memory stays bounded whatever the number of rows. An interrupted encoding starts again.
    prune, search and compare encode by themselves, or take the folder made here.
    """
    from thresher.cli.run_settings import Flags, run_config, show_guess
    from thresher.cli.show_table import describe_table, show_encoded, show_preview
    from thresher.data.encode.encode import encode as encode_source
    from thresher.data.encode.sources import build_source
    from thresher.data.summary import preview

    data = run_config(Flags.of(context.params)).data
    if out is None and not dry_run:
        raise ConfigError("where does the table go? Name a folder (--out), or only look at the data (--dry-run)")
    show_guess(data)
    if dry_run:
        found = preview(build_source(data))
        show_json(asdict(found)) if as_json else show_preview(found)
        say("Nothing was written. Encode with --out FOLDER.")
        return
    assert out is not None
    with display(quiet=quiet) as progress:
        table = encode_source(build_source(data), out, overwrite=force, progress=progress.encoding)
    facts = describe_table(table)
    if as_json:
        show_json(facts)
    else:
        show_encoded(facts)
        say(f"\nMore: thresher show {out}")
