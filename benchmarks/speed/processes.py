"""Time per epoch and traffic of a search in two processes, compared with one, at Criteo's table size.

    python benchmarks/speed/processes.py [--quick] [--processes 2] [--model fm|deepfm|autoint]

Each process has one thread. The global batches are the same: 1,024 rows of 39 fields, about 26,000 distinct ids, in a
table of 1,086,810 rows, D = 64, with row updates. An epoch is trained, half of it as warm-up, by Thresher's own loop:
lookup, model, exchange of gradients, update, clock. The looks of the search and the tickets cost the same in an epoch
of any length, so few steps overstate them. `all_over_one_time` is the time of all together over that of one.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from measure import print_table, result_path, tune_malloc, write_result

NUM_FEATURES, EMBEDDING_DIM, BATCH_SIZE, NUM_FIELDS = 1_086_810, 64, 1024, 39


def work(model_name: str, num_steps: int, batch_size: int) -> None:
    """One process: train an epoch, then print its seconds and the bytes it sent per step."""
    import torch
    import torch.distributed as distributed
    from search_step import field_sizes

    from thresher import (
        AutoIntConfig,
        DeepFmConfig,
        FmConfig,
        PepConfig,
        Searcher,
        TensorBatches,
        build_embedding,
        build_model,
    )
    from thresher._internal.processes import Processes, training_together
    from thresher.training.epoch import train_epoch
    from thresher.training.optimizers import OptimizerConfig, build_optimizer
    from thresher.training.shared_tables import exchanged_gradients

    torch.set_num_threads(1)
    if int(os.environ["WORLD_SIZE"]) > 1:
        distributed.init_process_group("gloo")
    draw = torch.Generator().manual_seed(0)
    sizes = torch.tensor(field_sizes(NUM_FEATURES))
    uniform = torch.rand(num_steps * batch_size, NUM_FIELDS, generator=draw)
    ids = ((uniform**6 * sizes).long() + (sizes.cumsum(0) - sizes)).int()
    labels = (torch.rand(len(ids), generator=draw) < 0.25).float()
    torch.manual_seed(0)
    embedding = build_embedding(sizes.tolist(), PepConfig(embedding_dim=EMBEDDING_DIM))
    configs = {"fm": FmConfig(), "deepfm": DeepFmConfig(), "autoint": AutoIntConfig()}
    model = build_model(embedding, configs[model_name])
    optimizer = build_optimizer(model, OptimizerConfig(updates="rows"))
    processes = Processes.of()
    with (
        training_together(processes),
        exchanged_gradients(model, optimizer, processes, share_tables=True) as exchange,
    ):
        searcher = Searcher(model, "1%", steps=2 * num_steps, warmup_steps=num_steps + num_steps // 2, every=100)
        batches = TensorBatches((ids,), labels, batch_size)
        train_epoch(model, batches, optimizer, 1, on_step=lambda *_: searcher.step(), exchange=exchange)  # warms up
        sent = 0 if exchange is None else exchange.bytes_sent
        cpu, wall = time.process_time(), time.perf_counter()
        train_epoch(model, batches, optimizer, 2, on_step=lambda *_: searcher.step(), exchange=exchange)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    sent = 0 if exchange is None else exchange.bytes_sent - sent
    print(f"RESULT {wall / num_steps} {cpu / num_steps} {sent / num_steps}", flush=True)


def run(number: int, model_name: str, num_steps: int, batch_size: int) -> dict[str, float]:
    """The figures of `number` processes: the slowest one's seconds, and the bytes that each sends."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(number), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--work", "--model", model_name, "--steps", str(num_steps)]
    command += ["--batch-size", str(batch_size)]
    children = [
        subprocess.Popen(command, env={**os.environ, **shared, "RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(number)
    ]
    lines = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        raise SystemExit("a process failed; see its message above")
    found = [[float(word) for word in line.rpartition("RESULT ")[2].split()] for line in lines]
    wall, cpu, sent = (max(column) for column in zip(*found, strict=True))
    return {"milliseconds": wall * 1e3, "cpu_milliseconds": cpu * 1e3, "megabytes_sent": sent / 1e6}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="30 steps, one round")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--model", choices=("fm", "deepfm", "autoint"), default="fm")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=BATCH_SIZE)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.model, arguments.steps, arguments.batch_size)
        return
    out = result_path("processes", arguments.out, quick=arguments.quick)
    num_steps, rounds = (30, 1) if arguments.quick else (arguments.steps, arguments.rounds)
    names = {"1 process": 1, f"{arguments.processes} processes": arguments.processes}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for _ in range(rounds):
        for name, number in names.items():
            found[name].append(run(number, arguments.model, num_steps, arguments.batch_size))
    figures = {
        name: {key: sorted(each[key] for each in runs)[len(runs) // 2] for key in runs[0]}
        for name, runs in found.items()
    }
    one, several = figures.values()
    ratios = {
        "all_over_one_time": several["milliseconds"] / one["milliseconds"],
        "all_over_one_cpu": several["cpu_milliseconds"] / one["cpu_milliseconds"],
    }
    settings = {
        "num_features": NUM_FEATURES, "embedding_dim": EMBEDDING_DIM, "batch_size": arguments.batch_size,
        "num_fields": NUM_FIELDS, "steps": num_steps, "rounds": rounds, "processes": arguments.processes,
        "quick": arguments.quick, "model": arguments.model,
    }  # fmt: skip
    print_table(figures)
    write_result("processes", settings, figures, {name: round(ratio, 4) for name, ratio in ratios.items()}, out)


if __name__ == "__main__":
    tune_malloc()
    main()
