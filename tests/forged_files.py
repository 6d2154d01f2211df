"""Changed files with right checksums: what a hostile author could write, as opposed to damage."""

import json
from pathlib import Path
from typing import Any

from thresher._internal.storage.files import write_json
from thresher._internal.storage.folder_manifest import MANIFEST, write_manifest


def change_json(path: Path, change: dict[str, Any]) -> None:
    """Replace keys of a JSON file and write its checksum anew."""
    content = json.loads(path.read_text(encoding="utf-8"))
    write_json(path, content | change)


def reseal(folder: Path) -> None:
    """Write the manifest of a folder for the files that are there now."""
    artefact = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["artefact"]
    write_manifest(folder, artefact)
