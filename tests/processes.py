"""Run a function in several processes of torch.distributed (gloo), as torchrun would."""

import multiprocessing
import pickle
import queue
import tempfile
import traceback
from pathlib import Path

import torch
import torch.distributed as distributed


def run_in_processes(function, *args, size=2):
    """The results of `function(rank, *args)` of each process; raises if one of them raised."""
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        place = (Path(folder) / "store").as_uri()
        children = [
            context.Process(target=_run, args=(function, rank, size, place, args, results)) for rank in range(size)
        ]
        for child in children:
            child.start()
        found = {}
        try:
            while len(found) < size:
                rank, error, result = results.get(timeout=600)
                if error is not None:
                    raise AssertionError(f"process {rank}:\n{error}")
                found[rank] = pickle.loads(result)
        except queue.Empty:
            raise AssertionError("a process ended without a result") from None
        finally:
            for child in children:
                child.join(timeout=0 if len(found) < size else 20)
                if child.is_alive():
                    child.kill()
    return [found[rank] for rank in range(size)]


def _run(function, rank, size, place, args, results):
    torch.set_num_threads(1)
    try:
        distributed.init_process_group("gloo", init_method=place, rank=rank, world_size=size)
        result = function(rank, *args)
        distributed.barrier()
        distributed.destroy_process_group()
        results.put((rank, None, pickle.dumps(result)))  # torch would send handles of its tensors
    except BaseException:
        results.put((rank, traceback.format_exc(), None))
