"""verify: compare every file of a run, table, ticket or bundle with its checksums."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.cli.display.console import handle_errors, print_json, print_rows
from thresher.cli.options import Json
from thresher.errors import FormatError

if TYPE_CHECKING:
    from thresher.experiment.run.verify import Verified


@handle_errors()
def verify(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A run, comparison, table, ticket, bundle or file.")],
    as_json: Json = False,
) -> None:
    """Compare all files of a run, table, ticket or bundle with their checksums; exit code 2 if one is damaged."""
    from thresher.experiment.run.verify import verify_path

    found = verify_path(path)
    damaged = [part for part in found if part.problem is not None]
    if as_json:
        print_json([vars(part) for part in found])
    else:
        print_rows([_row(part) for part in found])
    if damaged:
        raise FormatError("\n".join(str(part.problem) for part in damaged))


def _row(part: "Verified") -> dict[str, object]:
    return {
        "path": part.path,
        "kind": part.kind,
        "files": part.num_files,
        "result": "damaged" if part.problem else "ok",
    }
