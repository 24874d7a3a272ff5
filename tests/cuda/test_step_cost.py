#!/usr/bin/env python3
"""What a training step costs a GPU, as far as it can be counted without one: nodes of its graph, their longest chain, and the bytes that
their arguments reach: operands of libraries and copies, and for kernels the memory from each pointer to the end of its allocation. Fake
CUDA counts a library's call as one node, which may be more on a GPU. Nearly all bytes are proportional to the samples, or constant, so that
two small batches predict a large one.

usage: test_step_cost.py MODULE: fake CUDA as a module
"""
import os
import re
import sys

import checks
from checks import check, dtrain, read, sets

SMALL, LARGE = 4, 4096
# Configuration: nodes and chain in each precision, GB at LARGE in bf16; a change that needs less lowers them. LeNet has pools, and
# channels not divisible by eight.
LIMITS = {"configs/mnist.json": (17, 14, 4.43), "configs/mnist-mlp.json": (9, 9, 0.055), "tests/cuda/lenet.json": (23, 20, 0.433),
          "tests/cuda/three_convs.json": (20, 17, 2.44)}
# What mnist.json's step costs if these are left out. engine_trial: the same graph, by the first engines (test_cuda_training.sh); steps:
# the same graph, launched later (test_step_graph.c).
WITHOUT = {"first_conv": (19, 16), "head": (22, 18), "packed": (19, 16), "branch": (17, 17), "engine_trial": (17, 14), "steps": (17, 14),
           "first_conv,head,packed,branch": (28, 28)}


def cost(config, precision, n, without=""):
    """Nodes, longest chain and bytes of a step of n samples."""
    dtrain("--config", os.path.join(checks.SOURCE, config), "--run", "-".join((os.path.basename(config), precision, str(n), without)), *sets(
        "device=cuda", "precision=" + precision, "cuda.deterministic=true", "data.format=synthetic", "data.train_samples=%d" % (2 * n),
        "data.test_samples=1", "train.epochs=1", "train.batch.per_rank=%d" % n, "checkpoint.every_epochs=0", "report=false"),
        env={"DTRAIN_CUDA_GRAPH": "step.dot", "DTRAIN_CUDA_WITHOUT": without})
    dot = read("step.dot")
    moved = [int(n_bytes) for n_bytes in re.findall(r'label="\d+\n.*, (\d+) bytes', dot)]
    depths = [1] * len(moved)
    for before, node in re.findall(r'node_(\d+)" -> ".*node_(\d+)"', dot):  # edges follow all those into their first node
        depths[int(node)] = max(depths[int(node)], depths[int(before)] + 1)
    os.remove("step.dot")
    return len(moved), max(depths), sum(moved)


def main():
    os.environ.update(DTRAIN_CUDA_MODULE=os.path.abspath(sys.argv[1]), FAKE_DEVICES="1")
    checks.new_folder()
    for config, limits in LIMITS.items():
        for precision in "f32", "tf32", "bf16":
            small, twice = cost(config, precision, SMALL), cost(config, precision, 2 * SMALL)
            each = (twice[2] - small[2]) / SMALL
            gb = (small[2] + (LARGE - SMALL) * each) / 1e9
            print("%-28s %-4s %2d nodes, longest chain %2d, %.3f GB at batch %d" % (config, precision, *small[:2], gb, LARGE))
            check(small[0] <= limits[0] and small[1] <= limits[1], config, precision, "needs", small)
            check(precision != "bf16" or gb <= limits[2], config, "moves", gb)
    for names, expected in WITHOUT.items():
        found = cost("configs/mnist.json", "f32", SMALL, names)
        check(found[:2] == expected, "without", names, found)
    checks.finish()


main()
