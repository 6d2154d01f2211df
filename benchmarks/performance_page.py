"""Result files → docs/performance.md: what encoding, search, retraining and serving cost here, and how to measure it.

python benchmarks/performance_page.py
"""

# ruff: noqa: E501  (a page of wide tables)

from pathlib import Path
from typing import Any

from thresher._internal.files import read_json

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "performance.md"


def result(name: str) -> dict[str, Any]:
    content: dict[str, Any] = read_json(HERE / "results" / f"{name}.json")
    return content


def page() -> str:
    search, retrain, scaling = result("search_step"), result("retrain_step"), result("scaling")
    encode, growth, batches = result("encode"), result("encode_growth"), result("batches")
    memory, bundle, lookup, whole = result("memory"), result("bundle"), result("lookup"), result("criteo_size_search")
    once = result("distinct_vectors")["ratios"]
    steps = {name: side["milliseconds"] for name, side in search["sides"].items()}
    ratio = search["ratios"]
    machine = search["machine"]
    tickets = "\n".join(
        f"| {budget} | {found['num_parameters']:,} | {found['rows_kept']:,} | {found['noise_share']:.1%} |"
        for budget, found in whole["tickets"].items()
    )
    widths = ", ".join(f"{side['milliseconds']:.1f} ms at {name}" for name, side in scaling["sides"].items())
    return f"""# What it costs

Measured on {machine["cpus"]} cores ({machine["cpu"]}) without a GPU, each side in turn in one run, medians; Python {machine["python"]},
torch {machine["versions"]["torch"]}. Timings of a shared machine are noisy: trust ratios more than milliseconds. This page is made by
`python benchmarks/performance_page.py` from [benchmarks/results](../benchmarks/results); the scripts named below make those.

## Encoding

`benchmarks/speed/encode.py`, raw rows in Criteo's shape, 39 fields, values seen ten times or more.

| 5,000,000 rows | seconds | peak memory |
| --- | --- | --- |
| Thresher | {encode["sides"]["ours"]["seconds"]:.1f} | {encode["sides"]["ours"]["peak_bytes"] / 1e9:.2f} GB |
| two passes in pure Python, row by row, as the PEP authors do | {encode["sides"]["python"]["seconds"]:.0f} | {encode["sides"]["python"]["peak_bytes"] / 1e9:.2f} GB |
| pandas in chunks | {encode["sides"]["pandas"]["seconds"]:.0f} | {encode["sides"]["pandas"]["peak_bytes"] / 1e9:.2f} GB |

So {encode["ratios"]["python_over_ours"]:.0f} times as fast as the one and {encode["ratios"]["pandas_over_ours"]:.0f} times as the other. As many rows as Criteo has, 45,840,617, take
{growth["ratios"]["minutes_last"]:.1f} minutes and {growth["ratios"]["peak_gigabytes_last"]:.1f} GB (`--growth`); a row costs {growth["ratios"]["seconds_per_row_last_over_first"]:.2f} times what it costs in a million rows.

Shuffled batches of 1,024 from the encoded table come at {batches["ratios"]["million_rows_per_second"]:.1f} million rows a second, {batches["ratios"]["ours_over_dataloader"]:.0f} times a
`DataLoader` over samples (`benchmarks/speed/batches.py`).

## A step of search

`benchmarks/speed/search_step.py`: FM over N = 1,086,810 features, D = 64, 39 fields, batches of 1,024, a threshold per entry.

| step | milliseconds | over ours |
| --- | --- | --- |
| **ours**: the mean over a whole search, clock included | {steps["ours"]:.1f} | 1 |
| the published step, as its authors run it | {steps["published"]:.0f} | {ratio["published_over_ours"]:.0f} |
| the same with fused Adam, one pass over the table less, and a count that lists nothing | {steps["published_lean"]:.0f} | {ratio["published_lean_over_ours"]:.0f} |
| PEP done well the dense way: look up, then threshold | {steps["dense"]:.0f} | {ratio["dense_over_ours"]:.1f} |
| no pruning: `nn.Embedding`, fused Adam | {steps["unpruned_dense"]:.0f} | {ratio["unpruned_dense_over_ours"]:.1f} |
| no pruning: `nn.Embedding(sparse=True)`, SparseAdam | {steps["sparse_adam"]:.1f} | {ratio["sparse_adam_over_ours"]:.1f} |
| no pruning: our own row updates | {steps["unpruned"]:.1f} | {1 / ratio["ours_over_unpruned"]:.2f} |

The search costs {ratio["ours_over_unpruned"]:.2f} times training without pruning for FM, {ratio["ours_over_unpruned_deepfm"]:.2f} for DeepFM and {ratio["ours_over_unpruned_autoint"]:.2f} for AutoInt (the
paper: 1.24). Where pressing begins, before rows are gone, a step is dearest: {ratio["ours_dearest_over_unpruned"]:.2f} times for FM.

![Milliseconds a step against rows of the table](../benchmarks/results/scaling.svg)

The step does not grow with the table but for cache misses: {widths} (`benchmarks/speed/scaling.py`).

Deep models multiply each distinct vector of a batch once, where at least four places share one on average and vectors
have 32 numbers or more. MovieLens-1M's shape has {once["places_over_distinct_movielens-1m"]:.1f} places to a vector: there a training step of DeepFM is {once["everywhere_over_once_deepfm_movielens-1m"]:.2f} times
as fast as with all places multiplied, one of AutoInt {once["everywhere_over_once_autoint_movielens-1m"]:.2f} times; with vectors of 128 numbers {once["everywhere_over_once_deepfm_movielens-1m-wide"]:.2f} and {once["everywhere_over_once_autoint_movielens-1m-wide"]:.2f} times.
Criteo's has {once["places_over_distinct_criteo"]:.1f} places to a vector, and nothing is done (`benchmarks/speed/distinct_vectors.py`).

## A whole search at Criteo's size

`benchmarks/criteo_size_search.py`: {whole["settings"]["rows"]:,} made-up rows, {whole["num_features"]:,} features, D = {whole["settings"]["dim"]}, 20 fields that carry the label and 19 that
are noise. One pass of warm-up and one of pressing, {whole["search_steps"]:,} steps, took {whole["search_seconds"] / 60:.1f} minutes and {whole["peak_bytes"] / 1e9:.1f} GB, for all budgets:

| budget | parameters | features kept | share that went to noise fields |
| --- | --- | --- | --- |
{tickets}

## Retraining

`benchmarks/speed/retrain_step.py`: at 1 % density a step on the kept values alone is {retrain["ratios"]["masked_dense_over_compact_time"]:.1f} times as fast as on the masked dense table with fused
Adam, and holds {retrain["ratios"]["masked_dense_over_compact_bytes"]:.0f} times fewer bytes of parameters, gradients, optimizer state and index.

## Serving

`benchmarks/memory/table.py`, `benchmarks/memory/bundle.py`, `benchmarks/speed/lookup.py`: N = 1,086,810, D = 64, 1 % kept.

| | |
| --- | --- |
| bytes on disk, share of dense float32 | {memory["ratios"]["share_of_dense_on_disk_fp32"]:.2%} in fp32, {memory["ratios"]["share_of_dense_on_disk_fp16"]:.2%} in fp16 |
| resident memory, share of dense float32 | {memory["ratios"]["share_of_dense_resident_fp32"]:.2%} in fp32, {memory["ratios"]["share_of_dense_resident_fp16"]:.2%} in fp16 |
| bytes over values plus the entropy of the mask | {memory["ratios"]["times_bound_at_0.01"]:.2f} at 1 %, {memory["ratios"]["times_bound_at_0.2"]:.2f} at 20 %, {memory["ratios"]["times_bound_at_0.001"]:.2f} at 0.1 % |
| lookup of 1,024 × 39 ids | {lookup["ratios"]["dense_over_compact_time"]:.2f} times as fast as `nn.Embedding` |
| loading the table; a bundle with its vocabularies | {memory["ratios"]["compact_load_seconds"] * 1e3:.0f} ms; {bundle["ratios"]["load_seconds"] * 1e3:.0f} ms |
| one row from raw values to probability | {bundle["ratios"]["single_row_milliseconds"]:.1f} ms |
| ONNX file over the bundle without vocabularies | {bundle["ratios"]["onnx_over_bundle_bytes"]:.2f} |

From 5 % density on, lookups from compact tables are slower than from a dense one: memory is what they save.
"""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
