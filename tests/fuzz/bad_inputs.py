"""`python -m fuzz.bad_inputs 500`: bad files, settings and options for the command line.

Each must end with exit code 2 and one message that names what is wrong, without a traceback and without a new file.
Exit code 1 if one does not. Inputs are drawn by a seed; the first are in the tests. With `--out` the counts are written
as they come, and another call with the same file goes on from them.
"""

import argparse
import gzip
import io
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from typer.testing import CliRunner

from thresher.cli.app import app

NAMES = ("clicked", "user", "item", "price")
FAST = ["--set", "training.max_epochs=1", "-d", "4"]


@dataclass(frozen=True)
class BadInput:
    """A command line, and a text that its message must contain."""

    kind: str
    words: list[str]
    named: str


def rows(chance: random.Random, number: int = 60) -> list[list[str]]:
    draw = chance.randrange
    return [[str(row % 2), f"u{draw(9)}", f"i{draw(9)}", f"{draw(99)}.5"] for row in range(number)]


def text(table: list[list[str]], delimiter: str = ",", names: tuple[str, ...] = NAMES) -> str:
    return "\n".join(delimiter.join(row) for row in [list(names), *table]) + "\n"


def bad_table(chance: random.Random, folder: Path) -> BadInput:
    """A CSV or TSV file that cannot be read as rows with a label."""
    suffix, delimiter = chance.choice([(".csv", ","), (".tsv", "\t")])
    path, table = folder / f"bad{suffix}", rows(chance)
    at, column = chance.randrange(40, 60), chance.randrange(4)
    names, options, named = NAMES, ["--label", "clicked"], path.name
    content: bytes | None = None
    match kind := chance.choice(
        ["empty", "header", "short", "long", "twice", "label", "one class", "utf-8", "no label", "binary", "number",
         "utf-16", "gzip", "unnamed", "fields", "not a number"]
    ):  # fmt: skip
        case "empty":
            content = b"\n" * chance.randrange(3)
        case "header":
            table = []
        case "short":
            table[at].pop()
        case "long":
            table[at] += ["9"] * chance.randrange(1, 5)
        case "twice":
            names = (*NAMES[:3], chance.choice(NAMES[:3]))
        case "label":
            table[at][0] = chance.choice(["2", "-1", "yes", "1e400", "0x1", "nan", "⅓"])
        case "one class":
            table = [["1", *row[1:]] for row in table]
        case "utf-8":
            table[at][column] += "§"
            content = text(table, delimiter).encode().replace("§".encode(), bytes([chance.randrange(128, 192)]))
        case "no label":
            names, options = ("clack", *NAMES[1:]), ["--label", "clicked"]
        case "binary":
            content = bytes([0x80]) + chance.randbytes(chance.randrange(1, 5000))
        case "number":
            options += ["--fields", f"user,item,price:{chance.choice(['log3', 'quantiles:x', 'date:', 'log2:7'])}"]
            named = "price"
        case "utf-16":
            content = text(table, delimiter).encode("utf-16")
        case "gzip":
            path = folder / f"bad{suffix}.gz"
            packed = gzip.compress(text(table, delimiter).encode())
            content, named = packed[: chance.randrange(12, len(packed) - 8)], path.name
        case "unnamed":
            names = (*NAMES[:2], "", "")
        case "fields":
            options += ["--fields", f"user,{chance.choice(['itm', 'clickd', 'price2', ''])}x"]
            named = "x"
        case "not a number":
            table[at][3] = chance.choice(["abc", "1,5"[:1] + "x", "--", "1e5e5"])
            options += ["--fields", "user,item", "--set", 'data.dense=[{name="price"}]']
    path.write_bytes(text(table, delimiter, names).encode() if content is None else content)
    command = chance.choice(["encode", "prune", "compare"])
    return BadInput(f"table: {kind}", command_line(command, [str(path), *options], folder), named)


def bad_parquet(chance: random.Random, folder: Path) -> BadInput:
    path, table = folder / "bad.parquet", pl.DataFrame(rows(chance), schema=list(NAMES), orient="row")
    memory = io.BytesIO()
    match kind := chance.choice(["cut", "zeros", "binary", "no label", "nested", "no rows", "empty"]):
        case "no label":
            table.drop("clicked").write_parquet(memory)
        case "nested":
            table.with_columns(clicked=pl.struct("user", "item")).write_parquet(memory)
        case "no rows":
            table.clear().write_parquet(memory)
        case _:
            table.write_parquet(memory)
    content = memory.getvalue()
    if kind == "cut":
        content = content[: chance.randrange(1, len(content))]
    elif kind == "zeros":
        content = content[:-60] + bytes(60)
    elif kind in ("binary", "empty"):
        content = b"" if kind == "empty" else chance.randbytes(3000)
    path.write_bytes(content)
    command = chance.choice(["encode", "prune"])
    return BadInput(f"parquet: {kind}", command_line(command, [str(path), "--label", "clicked"], folder), path.name)


def bad_path(chance: random.Random, folder: Path) -> BadInput:
    """A path that is no file of rows."""
    match kind := chance.choice(["absent", "folder", "pipe", "device", "long", "pattern", "loop", "json"]):
        case "absent":
            path = folder / f"absent{chance.randrange(99)}.csv"
        case "folder":
            (path := folder / "folder.csv").mkdir()
        case "pipe":
            os.mkfifo(path := folder / "pipe.csv")
        case "device":
            path = Path(chance.choice(["/dev/zero", "/dev/null", "/dev/urandom"]))
        case "long":
            path = folder / ("x" * chance.randrange(300, 5000) + ".csv")
        case "pattern":
            path = folder / "no*such?.csv"
        case "loop":
            (path := folder / "loop.csv").symlink_to("loop.csv")
        case _:
            (path := folder / "rows.json").write_text("[1, 2")
    command = chance.choice(["encode", "prune", "compare"])
    words = command_line(command, [str(path), "--label", "clicked"], folder)
    return BadInput(f"path: {kind}", words, path.name[:30])


def bad_settings(chance: random.Random, folder: Path) -> BadInput:
    """A TOML file that is damaged, or has keys or values that do not exist."""
    good, path = rows_file(chance, folder), folder / "run.toml"
    match kind := chance.choice(
        ["key", "type", "syntax", "deep", "digits", "utf-8", "range", "twice", "large", "array"]
    ):
        case "key":
            content = f"{chance.choice(['sead', 'training.epochs', 'model.hidden', 'data.labels', 'x'])} = 1"
        case "type":
            name = chance.choice(["seed", "budgets", "training.batch_size", "embedding.embedding_dim", "data.paths"])
            content = f"{name} = {chance.choice(['{ a = 1 }', 'true', '1979-05-27', '[[1]]'])}"
        case "syntax":
            content = chance.choice(["seed = ", "[training", "seed 1", 'model = "fm', "= 3", "seed = 1 2", "\x00"])
        case "deep":
            depth = chance.choice([70, 900, 5000, 50_000])
            content = f"seed = {'[' * depth}{']' * depth}"
        case "digits":
            content = f"seed = {'9' * chance.choice([60, 5000, 100_000])}"
        case "utf-8":
            content = "seed = 1 # \udcff\udcfe"
        case "range":
            content = chance.choice(
                ["max_auc_drop = 7.0", "[training]\nbatch_size = -3", "seeds = 0", "num_teachers = 0",
                 "[embedding]\nembedding_dim = 0", "teacher_share = 2.0", '[data]\ndelimiter = "::"']
            )  # fmt: skip
        case "twice":
            content = "seed = 1\nseed = 2"
        case "large":
            content = f"imports = [{'1,' * 500_000}]"
        case _:
            content = "\n".join(f"[[training]]\nbatch_size = {number}" for number in range(3))
    path.write_text(content, errors="surrogateescape", encoding="utf-8")
    command = chance.choice(["encode", "prune"]) if kind != "range" else "prune"
    words = command_line(command, [str(good), "--label", "clicked", "--config", str(path)], folder)
    return BadInput(f"settings: {kind}", words, path.name if kind != "range" else "")


def bad_option(chance: random.Random, folder: Path) -> BadInput:
    good = rows_file(chance, folder)
    odd = chance.choice(["abc", "-1", "1e999", "", "nan", "\x1b[31m", "9" * 50, "0x10", "٣", "a b"])
    option = chance.choice(
        ["--budgets", "--model", "--method", "--seed", "--max-auc-drop", "--set", "--set training.batch_size=",
         "--set data.split_seed=", "--set data.memory_mb=", "--set training.optimizer.learning_rate=", "--effort",
         "--label", "--start-from", "--nonsense", "-d", "--teachers", "--seeds", "--drop", "--positive"]
    )  # fmt: skip
    name, _, rest = option.partition(" ")
    bad = {"--set data.split_seed=": "x", "--seed": "x", "-d": "0.5", "--seeds": "0", "--budgets": "0"}
    if option == "--set training.batch_size=" and (odd.isdigit() or odd == "0x10"):  # TOML knows hexadecimal numbers
        odd = "-7"  # a batch may be larger than the data
    value = rest + bad.get(option, odd)
    words = [str(good), name, value] if name == "--label" else [str(good), "--label", "clicked", name, value]
    return BadInput(f"option: {name}", command_line("prune", words, folder, fast=name != "-d"), "")


def bad_rows(chance: random.Random, folder: Path) -> BadInput:
    """Rows for a prediction, or a bundle that is none. The bundle `bundle` has the fields user and item."""
    path, out, bundle = folder / "new.csv", folder / "predicted.csv", folder.parent / "bundle"
    match kind := chance.choice(["column", "empty", "cut bundle", "absent", "suffix", "folder", "keep", "json", "top"]):
        case "column":
            content = text([row[:1] for row in rows(chance)], names=("user",))
        case "empty":
            content = ""
        case "json":
            path = folder / "new.jsonl"
            content = chance.choice(
                ['{"user": "1"', "[1]", '{"user": 1}\nnull', '"x"', '{"user": {"a": 1}, "item": 2}']
            )
        case _:
            content = text(rows(chance))
    options: list[str] = []
    if kind == "suffix":
        out = folder / f"predicted.{chance.choice(['xlsx', 'zip', 'c', 'x' * 300])}"
    elif kind == "folder":
        out = folder
    elif kind == "keep":
        options = ["--keep", "absent,probability"]
    elif kind == "top":
        options = chance.choice([["--top-k", "0"], ["--top-k", "x"], ["--group", "user"], ["--top-k=2", "--group=no"]])
    elif kind == "absent":
        bundle = chance.choice([folder / "absent", folder, path])
    elif kind == "cut bundle":
        bundle = folder / "damaged"
        bundle.mkdir()
        (bundle / "bundle.json").write_text(chance.choice(["", "{", "{}", json.dumps({"format": "x"}), "[" * 5000]))
    path.write_text(content)
    words = ["predict", str(bundle), str(path), "--out", str(out), *options]
    return BadInput(f"rows: {kind}", words, "")


def bad_verb(chance: random.Random, folder: Path) -> BadInput:
    """The other commands, with something that is not what they read."""
    place = chance.choice(["absent", "file", "empty", "hostile"])
    path = folder / ("x" * 300 if place == "hostile" else place)
    if place == "file":
        path.write_text(chance.choice(["", "{}", "x", "seed = 1"]))
    elif place == "empty":
        path.mkdir()
    command = chance.choice(["show", "export", "verify", "retrain", "serve", "settings"])
    words = {
        "export": ["export", str(path), "--out", str(folder / "out")],
        "serve": ["serve", str(path), "--port", "0"],
        "settings": ["settings", path.name],
    }.get(command, [command, str(path)])
    if command == "verify" and place in ("file", "empty"):  # nothing to verify is no error
        words = ["verify", str(folder / "absent")]
    return BadInput(f"command: {command}", words, "")


MAKERS = [bad_table, bad_parquet, bad_path, bad_settings, bad_option, bad_rows, bad_verb]


def rows_file(chance: random.Random, folder: Path) -> Path:
    path = folder / "rows.csv"
    path.write_text(text(rows(chance)))
    return path


def command_line(command: str, words: list[str], folder: Path, *, fast: bool = True) -> list[str]:
    return [command, *words, "--out", str(folder / "out"), *(FAST if fast and command == "prune" else [])]


def bad_inputs(folder: Path, number: int, seed: int = 0, first: int = 0) -> Iterator[tuple[BadInput, Path]]:
    """Inputs of all kinds in turn, each with a folder of its own."""
    for at in range(first, number):
        own = folder / str(at)
        own.mkdir()
        yield MAKERS[at % len(MAKERS)](random.Random(seed * 1_000_003 + at), own), own


def problem(given: BadInput, folder: Path) -> str | None:
    """What is wrong with the answer to a bad input; None if it is refused as it should be."""
    before = sorted(folder.rglob("*"))
    result = CliRunner().invoke(app, given.words)
    message = result.stderr
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        return f"raw exception {type(result.exception).__name__}: {result.exception}"
    if result.exit_code != 2:
        return f"exit code {result.exit_code}: {result.stdout[-200:]}{message[-200:]}"
    if message.lower().count("error") == 0 or message.count("error:") > 1:
        return f"not one message: {message[-300:]}"
    if "Traceback" in message or "\x1b" in message:
        return f"traceback or escape: {message[-300:]!r}"
    if given.named not in message.replace("\n", "").replace(" ", "") and given.named not in message:
        return f"does not name {given.named!r}: {message[-300:]}"
    left = [path.name for path in sorted(folder.rglob("*")) if path not in before]
    return f"left {', '.join(left)}" if left else None


def make_bundle(folder: Path) -> None:
    """The bundle that predictions of bad rows use."""
    from fuzz.mutations import make_corpus

    (folder / "corpus").mkdir()
    make_corpus(folder / "corpus")
    (folder / "corpus" / "bundle").rename(folder / "bundle")


def main(number: int, seed: int, out: Path | None, write: Callable[[str], object] = sys.stdout.write) -> int:
    before = (
        {"inputs": 0, "seed": seed, "kinds": {}} if out is None or not out.exists() else json.loads(out.read_text())
    )
    counts, seed, first = Counter[str](before["kinds"]), before["seed"], before["inputs"]
    with tempfile.TemporaryDirectory() as name:
        make_bundle(Path(name))
        for at, (given, folder) in enumerate(bad_inputs(Path(name), number, seed, first), first + 1):
            found = problem(given, folder)
            counts[f"{given.kind.partition(':')[0]}: {'refused' if found is None else 'violation'}"] += 1
            if found is not None:
                words = " ".join(word[:60] for word in given.words).replace(name, "…")
                write(f"{given.kind}: {found.replace(name, '…')[:500]}\n    {words[:300]}\n")
            if out is not None:
                out.write_text(json.dumps(summary(counts, at, seed), indent=2) + "\n", encoding="utf-8")
    for kind, count in sorted(counts.items()):
        write(f"{count:>6}  {kind}\n")
    return 1 if summary(counts, number, seed)["violations"] else 0


def summary(counts: Counter[str], number: int, seed: int) -> dict[str, Any]:
    violations = sum(count for kind, count in counts.items() if kind.endswith("violation"))
    return {"inputs": number, "violations": violations, "seed": seed, "kinds": dict(sorted(counts.items()))}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Give bad inputs to the command line.")
    parser.add_argument("number", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="write the counts here, as JSON")
    given = parser.parse_args()
    sys.exit(main(given.number, given.seed, given.out))
