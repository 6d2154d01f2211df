"""Write docs/performance.md from the result files: the cost of encoding, search, retraining and serving.

python benchmarks/performance_page.py
"""

# ruff: noqa: E501  (a page of wide tables)

from pathlib import Path
from typing import Any

from thresher._internal.storage.files import read_json

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
    passes = result("criteo_size_prune")
    costs = {stage["stage"]: stage for stage in passes["cost"]["stages"]}
    sizes = "\n".join(
        f"| {point['budget']} | {point['num_parameters']:,} | {point['test_auc']:.4f} |" for point in passes["points"]
    )
    steps = {name: side["milliseconds"] for name, side in search["sides"].items()}
    ratio = search["ratios"]
    machine = search["machine"]
    tickets = "\n".join(
        f"| {budget} | {found['num_parameters']:,} | {found['rows_kept']:,} | {found['noise_share']:.1%} |"
        for budget, found in whole["tickets"].items()
    )
    widths = ", ".join(f"{side['milliseconds']:.1f} ms at {name}" for name, side in scaling["sides"].items())
    return f"""# Performance

All numbers were measured on {machine["cpus"]} cores ({machine["cpu"]}) without a GPU, with Python {machine["python"]} and torch {machine["versions"]["torch"]}. The variants of
a table are run in turn, and the table shows medians. The machine was shared, so ratios are more reliable than
milliseconds. `python benchmarks/performance_page.py` writes this page from [benchmarks/results](../benchmarks/results). Each
section names the script that produces its results.

## Encoding

`benchmarks/speed/encode.py`: raw rows in Criteo's shape, 39 fields, values seen at least ten times.

| 5,000,000 rows | seconds | peak memory |
| --- | --- | --- |
| Thresher | {encode["sides"]["ours"]["seconds"]:.1f} | {encode["sides"]["ours"]["peak_bytes"] / 1e9:.2f} GB |
| pure Python, two passes row by row, like the authors of PEP | {encode["sides"]["python"]["seconds"]:.0f} | {encode["sides"]["python"]["peak_bytes"] / 1e9:.2f} GB |
| pandas in chunks | {encode["sides"]["pandas"]["seconds"]:.0f} | {encode["sides"]["pandas"]["peak_bytes"] / 1e9:.2f} GB |

Thresher is {encode["ratios"]["python_over_ours"]:.0f} times as fast as pure Python and {encode["ratios"]["pandas_over_ours"]:.0f} times as fast as pandas. 45,840,617 rows, the size of Criteo, take
{growth["ratios"]["minutes_last"]:.1f} minutes and {growth["ratios"]["peak_gigabytes_last"]:.1f} GB (`--growth`). The time per row is then {growth["ratios"]["seconds_per_row_last_over_first"]:.2f} times that of a file with a million rows.

Shuffled batches of 1,024 rows are read from the encoded table at {batches["ratios"]["million_rows_per_second"]:.1f} million rows per second, {batches["ratios"]["ours_over_dataloader"]:.0f} times the rate of a
`DataLoader` over samples (`benchmarks/speed/batches.py`).

## Search step

`benchmarks/speed/search_step.py`: FM with N = 1,086,810 features, D = 64, 39 fields, batches of 1,024, one threshold per entry.

| step | milliseconds | multiple of Thresher |
| --- | --- | --- |
| **Thresher**: mean over a whole search, clock included | {steps["ours"]:.1f} | 1 |
| published step, as in the authors' code | {steps["published"]:.0f} | {ratio["published_over_ours"]:.0f} |
| published step with fused Adam, one pass over the table fewer, and a cheaper count | {steps["published_lean"]:.0f} | {ratio["published_lean_over_ours"]:.0f} |
| PEP with dense updates: look up, then threshold | {steps["dense"]:.0f} | {ratio["dense_over_ours"]:.1f} |
| no pruning: `nn.Embedding`, fused Adam | {steps["unpruned_dense"]:.0f} | {ratio["unpruned_dense_over_ours"]:.1f} |
| no pruning: `nn.Embedding(sparse=True)`, SparseAdam | {steps["sparse_adam"]:.1f} | {ratio["sparse_adam_over_ours"]:.1f} |
| no pruning: Thresher's row updates | {steps["unpruned"]:.1f} | {1 / ratio["ours_over_unpruned"]:.2f} |

A search step takes {ratio["ours_over_unpruned"]:.2f} times as long as a training step without pruning for FM, {ratio["ours_over_unpruned_deepfm"]:.2f} times for DeepFM and {ratio["ours_over_unpruned_autoint"]:.2f} times
for AutoInt (paper: 1.24). Steps are slowest when pruning starts, before rows are removed: {ratio["ours_dearest_over_unpruned"]:.2f} times for FM.

![Milliseconds per step against rows of the table](../benchmarks/results/scaling.svg)

The time of a step grows with the table only through cache misses: {widths} (`benchmarks/speed/scaling.py`).

Deep models apply their first layers once to each distinct vector of a batch, and not once to each position, if a vector
occurs at four or more positions on average and D is at least 32. In MovieLens-1M's shape a vector occurs at {once["places_over_distinct_movielens-1m"]:.1f} positions: a training step is then {once["everywhere_over_once_deepfm_movielens-1m"]:.2f} times as fast for DeepFM and {once["everywhere_over_once_autoint_movielens-1m"]:.2f}
times for AutoInt, and with D = 128 {once["everywhere_over_once_deepfm_movielens-1m-wide"]:.2f} and {once["everywhere_over_once_autoint_movielens-1m-wide"]:.2f} times. In Criteo's shape a vector occurs at {once["places_over_distinct_criteo"]:.1f} positions, so the
layers are applied to every position (`benchmarks/speed/distinct_vectors.py`).

## Whole search at Criteo's size

`benchmarks/criteo_size_search.py`: {whole["settings"]["rows"]:,} synthetic rows, {whole["num_features"]:,} features, D = {whole["settings"]["dim"]}, 20 fields that determine the label and 19 noise
fields. One epoch of warm-up and one epoch of pruning, {whole["search_steps"]:,} steps, took {whole["search_seconds"] / 60:.1f} minutes and {whole["peak_bytes"] / 1e9:.1f} GB for all budgets:

| budget | parameters | features kept | share in noise fields |
| --- | --- | --- | --- |
{tickets}

## Whole run at Criteo's size, in one pass

`benchmarks/criteo_size_prune.py`: `thresher prune` with effort `fast` and one epoch of dense training on {passes["settings"]["rows"]:,} synthetic rows, with the
features of the last section, one thread. All training took {passes["cost"]["total_seconds"] / 60:.1f} minutes; the dense training alone took {passes["cost"]["dense_seconds"] / 60:.1f}. CPU time depends
less on other jobs of the machine: in CPU time all training took {passes["cost"]["total_cpu_over_dense"]:.1f} times the dense training. The model without an embedding took {costs["no embedding"]["cpu_over_dense"]:.2f}
times the dense training, the trial of labels {costs["trial of soft labels"]["cpu_over_dense"]:.2f}, the search {costs["search"]["cpu_over_dense"]:.2f}, and retraining of all sizes {sum(stage["cpu_over_dense"] for name, stage in costs.items() if name.startswith("retrain")):.2f}. Peak memory: {passes["peak_bytes"] / 1e9:.1f} GB.

| budget | parameters | test AUC |
| --- | --- | --- |
| dense | {passes["dense"]["num_parameters"]:,} | {passes["dense"]["test_auc"]:.4f} |
{sizes}

## Retraining

`benchmarks/speed/retrain_step.py`: at 1 % density, a step on the compact values is {retrain["ratios"]["masked_dense_over_compact_time"]:.1f} times as fast as on the masked dense table with
fused Adam, and needs {retrain["ratios"]["masked_dense_over_compact_bytes"]:.0f} times fewer bytes for parameters, gradients, optimizer state and index.

## Serving

`benchmarks/memory/table.py`, `benchmarks/memory/bundle.py`, `benchmarks/speed/lookup.py`: N = 1,086,810, D = 64, 1 % kept.

| | |
| --- | --- |
| bytes on disk, share of dense float32 | {memory["ratios"]["share_of_dense_on_disk_fp32"]:.2%} in fp32, {memory["ratios"]["share_of_dense_on_disk_fp16"]:.2%} in fp16 |
| resident memory, share of dense float32 | {memory["ratios"]["share_of_dense_resident_fp32"]:.2%} in fp32, {memory["ratios"]["share_of_dense_resident_fp16"]:.2%} in fp16 |
| bytes, multiple of the lower bound (values plus entropy of the mask) | {memory["ratios"]["times_bound_at_0.01"]:.2f} at 1 %, {memory["ratios"]["times_bound_at_0.2"]:.2f} at 20 %, {memory["ratios"]["times_bound_at_0.001"]:.2f} at 0.1 % |
| lookup of 1,024 × 39 ids | {lookup["ratios"]["dense_over_compact_time"]:.2f} times as fast as `nn.Embedding` |
| load time of the table; of a bundle with vocabularies | {memory["ratios"]["compact_load_seconds"] * 1e3:.0f} ms; {bundle["ratios"]["load_seconds"] * 1e3:.0f} ms |
| one row, from raw values to probability | {bundle["ratios"]["single_row_milliseconds"]:.1f} ms |
| size of the ONNX file, multiple of the bundle without vocabularies | {bundle["ratios"]["onnx_over_bundle_bytes"]:.2f} |

At 5 % density and above, lookups in a compact table are slower than in a dense table; compact tables then save memory only.
"""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
