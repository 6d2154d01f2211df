"""Serving a bundle of Criteo's size: load time, latency of one row, rows per second, resident memory.

    python benchmarks/memory/bundle.py [--quick] [--rows 1086810] [--repeats 5]

FM with 39 fields and 1,086,810 features, D = 64, 1 % kept, vocabularies of eight hexadecimal digits as in Criteo. Every
number comes from new processes with one thread: torch `Predictor`, `NumpyPredictor` without torch, and (without
--quick) onnxruntime on the exported file. Input are raw rows and output are probabilities; ONNX starts at ids."""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
from table import NUM_FEATURES, random_entries, resident_bytes

sys.path.insert(0, str(Path(__file__).parent.parent / "speed"))
from measure import print_table, result_path, write_result

NUM_FIELDS, EMBEDDING_DIM, DENSITY = 39, 64, 0.01
ROW_COUNTS = (1, 100, 10_000)


def make_bundle(folder: Path, num_features: int) -> None:
    """Save a bundle with random weights, and raw rows to predict."""
    import torch

    from thresher.compact.embedding import CompactEmbedding
    from thresher.data.encode.row_encoder import RowEncoder, Vocabulary
    from thresher.data.schema import Field, Label, Schema
    from thresher.models.model_registry import build_model, model_config
    from thresher.serving.bundle import save_bundle

    generator = np.random.default_rng(0)
    shares = 1 / np.arange(1, NUM_FIELDS + 1) ** 1.2
    sizes = np.maximum((shares / shares.sum() * num_features).astype(int), 3)
    sizes[0] += num_features - sizes.sum()
    vocabularies, fields = [], []
    for at, size in enumerate(sizes.tolist()):
        values = np.unique(generator.integers(0, 2**32, int(size * 1.01) + 10))[: size - 1]
        generator.shuffle(values)
        texts = pl.Series("value", [f"{value:08x}" for value in values.tolist()])
        vocabularies.append(Vocabulary(texts, np.sort(generator.integers(1, 1000, size - 1))[::-1].copy()))
        fields.append(Field(name=f"C{at + 1}", size=size))
    encoder = RowEncoder(Schema(fields=tuple(fields), label=Label(column="label")), vocabularies)
    _, positions, values = random_entries(num_features, EMBEDDING_DIM, DENSITY)
    kept = torch.from_numpy(positions), torch.from_numpy(values * np.float32(0.1))
    embedding = CompactEmbedding(encoder.schema.field_sizes, EMBEDDING_DIM, *kept)
    config = model_config("fm")
    save_bundle(folder / "bundle", build_model(embedding, config), config, encoder)
    columns = {
        field.name: vocabulary.values.sample(max(ROW_COUNTS), with_replacement=True, seed=at)
        for at, (field, vocabulary) in enumerate(zip(fields, vocabularies, strict=True))
    }
    pl.DataFrame(columns).write_parquet(folder / "rows.parquet")


def child(variant: str, folder: Path) -> dict[str, float]:
    rows = pl.read_parquet(folder / "rows.parquet")
    if variant == "torch":
        from thresher.serving.predictor import load_bundle as load
    elif variant == "numpy":
        from thresher.serving.numpy_predictor import NumpyPredictor

        load = NumpyPredictor.load
    else:
        return onnx_child(folder, rows)
    before = resident_bytes()
    started = perf_counter()
    predictor: Any = load(folder / "bundle")
    if variant == "numpy":
        _ = predictor.encoder  # vocabularies included
    figures = {"load_seconds": perf_counter() - started}
    for count in ROW_COUNTS:
        inputs: Any = rows.row(0, named=True) if count == 1 else rows.head(count)
        seconds = timed(lambda inputs=inputs: predictor.predict(inputs))
        figures |= {f"milliseconds_{count}": seconds * 1e3, f"rows_per_second_{count}": count / seconds}
    return figures | {"resident_bytes": resident_bytes() - before}


def onnx_child(folder: Path, rows: pl.DataFrame) -> dict[str, float]:
    import onnxruntime

    ids = np.load(folder / "ids.npy")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    before = resident_bytes()
    started = perf_counter()
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    figures = {"load_seconds": perf_counter() - started, "session_bytes": resident_bytes() - before}
    for count in ROW_COUNTS:
        seconds = timed(lambda count=count: session.run(None, {"ids": ids[:count]}))
        figures |= {f"milliseconds_{count}": seconds * 1e3, f"rows_per_second_{count}": count / seconds}
    return figures | {"resident_bytes": resident_bytes() - before}


def timed(run: Any) -> float:
    """Return the median seconds after two warm-up runs, within about a second."""
    times = []
    while len(times) < 5 or (sum(times) < 1 and len(times) < 200):
        started = perf_counter()
        run()
        times.append(perf_counter() - started)
    return median(times[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without ONNX and with fewer repeats, under two minutes")
    parser.add_argument("--rows", type=int, default=NUM_FEATURES, help="features of the table")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    out = result_path("bundle", arguments.out, quick=arguments.quick)
    if arguments.child:
        print(json.dumps(child(arguments.child[0], Path(arguments.child[1]))))
        return
    repeats = min(arguments.repeats, 3) if arguments.quick else arguments.repeats
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_bundle(folder, arguments.rows)
        variants = ["torch", "numpy"] if arguments.quick else ["torch", "numpy", "onnx"]
        if "onnx" in variants:
            make_onnx(folder)
        runs: dict[str, list[dict[str, float]]] = {variant: [] for variant in variants}
        for _ in range(repeats):
            for variant in variants:
                command = [sys.executable, __file__, "--child", variant, name]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                runs[variant].append(json.loads(done.stdout.splitlines()[-1]))
        files = {path.relative_to(folder).as_posix(): path.stat().st_size for path in folder.rglob("*.*")}
    figures = {variant: {key: median(run[key] for run in found) for key in found[0]} for variant, found in runs.items()}
    print_table(figures)
    tables = sum(size for file, size in files.items() if file.endswith(".safetensors"))
    ratios = {
        "load_seconds": figures["torch"]["load_seconds"],
        "single_row_milliseconds": figures["torch"]["milliseconds_1"],
    }
    if "onnx" in variants:
        ratios["onnx_over_bundle_bytes"] = files["model.onnx"] / tables
        ratios["onnx_session_over_file_bytes"] = figures["onnx"]["session_bytes"] / files["model.onnx"]
    settings = {"num_features": arguments.rows, "embedding_dim": EMBEDDING_DIM, "density": DENSITY, "files": files}
    write_result("bundle", settings, figures, {key: round(value, 4) for key, value in ratios.items()}, out)


def make_onnx(folder: Path) -> None:
    from thresher.serving.bundle import open_bundle
    from thresher.serving.exports.export import export_onnx

    bundle = open_bundle(folder / "bundle")
    export_onnx(bundle, folder / "model.onnx")
    ids = bundle.encoder.encode_frame(pl.read_parquet(folder / "rows.parquet")).ids
    np.save(folder / "ids.npy", ids.astype(np.int64))


if __name__ == "__main__":
    main()
