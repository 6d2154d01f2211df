"""demo: the product in a minute, on made-up data, without a download."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.cli import options
from thresher.cli.console import handle_errors, say
from thresher.cli.progress import display
from thresher.errors import ConfigError

if TYPE_CHECKING:
    from thresher.experiment.runs import RunConfig


@handle_errors()
def demo(
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FOLDER", help="Folder of the run; an earlier demo in it is replaced."),
    ] = Path("runs/demo"),
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """See it work: made-up clicks of which half the fields are noise, pruned to four sizes, in about a minute."""
    from thresher.cli.run_commands import show_result
    from thresher.experiment.prune import prune

    if not as_json:
        say("Made-up clicks: 4 fields decide them, 4 are noise. One search prunes the table to four sizes.")
    config = demo_config()
    with display(quiet=quiet) as progress:
        result = prune(config, out=out, force=_holds_demo(out, config), progress=progress)
    show_result(result, as_json=as_json)
    if not as_json:
        _predict_a_row(result.run.bundle(result.run.config.wanted_budgets()[-1]))


def demo_config() -> "RunConfig":
    """Small enough for a minute on a laptop, large enough that pruning has something to find."""
    from thresher.data.config import DataConfig, SyntheticConfig
    from thresher.embeddings.pep import PepConfig
    from thresher.experiment.runs import RunConfig
    from thresher.search.schedule import SearchConfig

    return RunConfig(
        data=DataConfig(source="synthetic", synthetic=SyntheticConfig(num_rows=60_000, field_size=500)),
        embedding=PepConfig(embedding_dim=16),
        search=SearchConfig(plan_epochs=8),
        budgets=("20%", "10%", "5%", "2%"),
    )


def _holds_demo(out: Path, config: "RunConfig") -> bool:
    """Whether there is an earlier demo to replace. Any other run is not the demo's to throw away."""
    from thresher.experiment.runs import Run, what_differs

    try:
        stored = Run.open(out).config
    except ConfigError:
        return False  # whatever is there instead is told when the run is started
    if stored != config:
        raise ConfigError(
            f"{out} holds another run than the demo's ({what_differs(stored, config)}); choose another folder (--out)"
        )
    return True


def _predict_a_row(bundle: Path) -> None:
    from thresher.serving.predictor import load_bundle

    predictor = load_bundle(bundle)
    row = {field.column: "0" for field in predictor.schema.fields}
    probability = predictor.predict(row)
    say(f"A row from the smallest bundle: P(label = 1 | every field = 0) = {probability:.3f}")
