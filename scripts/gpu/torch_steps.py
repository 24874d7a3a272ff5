#!/usr/bin/env python3
"""Times PyTorch's training step on the network of configs/mnist.json, its data on the device: for each case a line, when it is
measured, of its name, the microseconds of each round, or an error, and the unit, between tabs.

eager     operation by operation, with the memory layout that is faster; the other ways take that one, too
graph     the whole step recorded as one CUDA graph
compile   network and loss by torch.compile, mode reduce-overhead
autotune  the same by mode max-autotune-no-cudagraphs, then the whole step recorded as one CUDA graph

Exit status 77: PyTorch, or its GPU, is not there.
"""
import argparse
import statistics
import sys
import time

try:
    import torch
except ImportError:
    torch = None

N_ROUNDS = 7


def recorded(compute):
    """Records compute as one graph to replay; a few calls on another stream come first, as PyTorch requires."""
    cuda = torch.cuda
    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(5):
            compute()
    cuda.current_stream().wait_stream(side)
    graph = cuda.CUDAGraph()
    with cuda.graph(graph):
        compute()
    return graph.replay


class Bench:
    def __init__(self, device):
        self.device = device
        self.images = torch.rand(60000, 1, 28, 28, device=device)
        self.labels = torch.randint(0, 10, (60000,), device=device)
        self.order = torch.randperm(60000, device=device)

    def step(self, batch, precision, way, layout):
        """Returns a function that trains one step on the samples whose numbers are in its tensor."""
        nn = torch.nn
        net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25),
                            nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10))
        net = net.to(self.device, memory_format=layout)
        adam = torch.optim.Adam(net.parameters(), lr=1e-3, fused=True, capturable=self.device == "cuda")
        rows = self.order[:batch].clone()

        def loss_of(images, labels):
            return nn.functional.cross_entropy(net(images), labels)

        if way in ("compile", "autotune"):
            torch._dynamo.reset()
            mode = "reduce-overhead" if way == "compile" else "max-autotune-no-cudagraphs"
            loss_of = torch.compile(loss_of, mode=mode, dynamic=False)

        def compute():
            adam.zero_grad(set_to_none=True)
            images = self.images[rows].contiguous(memory_format=layout)
            with torch.autocast(self.device, torch.bfloat16, enabled=precision == "bf16"):
                loss = loss_of(images, self.labels[rows])
            loss.backward()
            adam.step()

        return recorded(compute) if way in ("graph", "autotune") else compute, rows

    def microseconds(self, batch, precision, way, layout):
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
        go, rows = self.step(batch, precision, way, layout)
        n_steps = max(20, 12800 // batch) if self.device == "cuda" else 2

        def take(n):
            start = time.perf_counter()
            for i in range(n):
                first = i * batch % (len(self.order) - batch)
                rows.copy_(self.order[first:first + batch])
                go()
            if self.device == "cuda":
                torch.cuda.synchronize()
            return (time.perf_counter() - start) / n * 1e6

        take(min(30, n_steps))
        return [take(n_steps) for _ in range(N_ROUNDS)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: to try this program without a GPU")
    parser.add_argument("cases", nargs="+", type=lambda text: text.split(","), metavar="BATCH,PRECISION,WAY")
    args = parser.parse_args()
    if torch is None or args.device == "cuda" and not torch.cuda.is_available():
        print("skipped: no PyTorch here" if torch is None else "skipped: PyTorch sees no GPU")
        return 77
    torch.backends.cudnn.benchmark = True
    print("torch %s, CUDA %s, cuDNN %s" % (torch.__version__, torch.version.cuda, torch.backends.cudnn.version()), flush=True)
    bench, layouts = Bench(args.device), {}
    for batch, precision, way in args.cases:
        try:
            either = layouts.get((batch, precision)) or (torch.channels_last, torch.contiguous_format)
            found = [(bench.microseconds(int(batch), precision, way, layout), layout) for layout in either]
            rounds, layout = min(found, key=lambda f: statistics.median(f[0]))
            layouts[batch, precision], text = [layout], ", ".join("%.1f" % us for us in rounds)
        except Exception as error:  # one way may be unavailable
            text = "%s: %s" % (type(error).__name__, " ".join(str(error).split())[:200])
        print("batch %s, %s, %s\t%s\tus" % (batch, precision, way, text), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
