"""All commands with their examples."""

from collections.abc import Callable
from typing import Annotated

import typer

from thresher import __version__
from thresher.cli.compare_command import compare
from thresher.cli.console import print_logs
from thresher.cli.data_commands import encode
from thresher.cli.export_command import export
from thresher.cli.predict_command import predict
from thresher.cli.run_commands import demo, prune, retrain, search
from thresher.cli.serve_command import serve
from thresher.cli.settings_command import settings
from thresher.cli.show import show, verify

app = typer.Typer(
    name="thresher",
    help="Prune the embedding tables of recommender models by 95-97 % at a small cost in AUC.",
    epilog="Start with: thresher demo. Help on a command: thresher prune --help.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"thresher {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    print_logs()


EXAMPLES: dict[Callable[..., None], list[str]] = {
    demo: ["thresher demo", "thresher demo --out runs/demo --json"],
    prune: [
        "thresher prune clicks.csv --label clicked --budgets 50k,2% --out runs/clicks",
        "thresher prune 'logs/*.parquet' --max-auc-drop 0.001 --out runs/logs",
        "thresher prune movielens-1m --data-dir ml-1m --budgets 50k,25k,12k,6500 --out runs/ml1m",
        "thresher prune criteo day_0.gz --budgets 1% --set data.bad_rows=skip --out runs/criteo",
        "thresher prune --config run.toml --set training.batch_size=4096 --out runs/mine --resume",
    ],
    encode: [
        "thresher encode clicks.csv --dry-run",
        "thresher encode clicks.csv --label clicked --bad-rows skip --out encoded/clicks",
        "thresher encode criteo --data-dir criteo --memory-mb 500 --out encoded/criteo",
        "thresher encode tomorrow.csv --vocabulary-like encoded/clicks --out encoded/tomorrow",
    ],
    search: ["thresher search clicks.csv --budgets 50k,2% --out runs/clicks", "thresher retrain runs/clicks"],
    retrain: ["thresher retrain runs/clicks"],
    compare: [
        "thresher compare clicks.csv --methods pep,uniform,mde --budgets 5%,2% --seeds 3 --out runs/compared",
        "thresher compare movielens-1m --data-dir ml-1m --methods all --models fm,deepfm --time-limit 3600",
    ],
    export: [
        "thresher export runs/clicks --budget 2% --out clicks-small",
        "thresher export runs/clicks --budget 2% --value-type int8 --retrain --out clicks-int8",
        "thresher export clicks-small --to onnx --out clicks.onnx",
    ],
    predict: [
        "thresher predict clicks-small rows.parquet --keep request_id --out probabilities.parquet",
        "thresher predict clicks-small candidates.csv --top-k 10 --group user --keep item",
        """echo '{"user": "u1", "item": "i9"}' | thresher predict clicks-small -""",
    ],
    serve: [
        "thresher serve clicks-small",
        "thresher serve small=bundles/1pct large=bundles/10pct --port 8080 --workers 2",
        "thresher serve clicks-small --socket /run/thresher.sock",
    ],
    show: [
        "thresher show runs/clicks",
        "thresher show runs/clicks/encoded --figure data.png",
        "thresher show runs/clicks/bundles/2pct --figure kept.png",
    ],
    verify: ["thresher verify runs/clicks", "thresher verify clicks-small --json"],
    settings: ["thresher settings", "thresher settings search.plan_epochs", "thresher settings training"],
}
for command, lines in EXAMPLES.items():
    app.command(epilog="\n\n".join(["[bold]Examples[/bold]", *(line.replace("[", r"\[") for line in lines)]))(command)
