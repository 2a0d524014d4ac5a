"""Compares the pools of CuPy, PyTorch and this package with the same trace of allocations, on a GPU.

usage: pools.py [--bench CUDA_BENCH] [--rounds N] [TRACE ...]
       pools.py record FOLDER

`record` writes two traces as seen by the libraries' own allocators: training steps with PyTorch, and a
workload with CuPy. The lines are `a TIME NUMBER SIZE STREAM` and `f TIME NUMBER STREAM`, in nanoseconds.
Without a trace argument, both are recorded first. Each pool replays each trace in its own process, as fast
as possible: first with an empty pool, then again. No kernels run, so this compares the time of the pools
themselves, and how much memory they reserve from the driver for the same use. With cuda-bench
(`--managers --trace`) the pool is also measured without Python.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MIB = 1 << 20
ROUNDS = 21

WAYS = {
    "loop": "the Python loop alone",
    "cupy": "CuPy's pool",
    "ours-cupy": "cuda_safe, as CuPy's allocator",
    "torch": "PyTorch's caching allocator",
    "ours-torch": "cuda_safe, as PyTorch's allocator",
}


def write_trace(path, what, events):
    """Writes a trace. Events are ("a", nanoseconds, number, size, stream) and ("f", nanoseconds, number,
    stream)."""
    with open(path, "w") as file:
        print(f"# {what}", file=file)
        for event in events:
            print(*event, file=file)
    print(f"{path}: {what}, {len(events)} events")


def read_trace(path):
    """Returns the operations of a replay, the number of streams, and the maximum of bytes in use. An
    operation is (number, size, index of the stream), with size 0 for a free."""
    operations, places, live = [], {}, {}
    used = high = 0
    for line in open(path):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        kind, _, number, *rest = words
        place = places.setdefault(rest[-1], len(places))
        if kind == "a":
            live[number] = int(rest[0])
            used += live[number]
            high = max(high, used)
            operations.append((int(number), int(rest[0]), place))
        else:
            used -= live.pop(number)
            operations.append((int(number), 0, place))
    # Free the remaining allocations, so that the next round begins without any.
    operations += [(int(number), 0, 0) for number in live]
    return operations, max(len(places), 1), high


def record_torch(path, steps=12):
    """Records training steps of a small transformer, with sequences of several lengths."""
    import torch

    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 6).cuda()
    head = torch.nn.Linear(512, 10_000).cuda()
    parameters = [*model.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    lengths = torch.randint(32, 257, (steps,)).tolist()

    def step(length):
        inputs = torch.randn(16, length, 512, device="cuda")
        targets = torch.randint(0, 10_000, (16 * length,), device="cuda")
        logits = head(model(inputs)).reshape(-1, 10_000)
        loss = torch.nn.functional.cross_entropy(logits, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    torch.cuda.memory._record_memory_history(context=None, max_entries=1_000_000)
    for length in lengths:
        step(length)
    torch.cuda.synchronize()
    taken = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(enabled=None)
    events, live = [], {}
    start = taken[0]["time_us"] if taken and "time_us" in taken[0] else 0
    for count, entry in enumerate(taken):
        when = (entry.get("time_us", start + count) - start) * 1000
        if entry["action"] == "alloc" and entry["size"] > 0:
            live[entry["addr"]] = count
            events.append(("a", when, count, entry["size"], entry["stream"]))
        elif entry["action"] == "free_requested" and entry["addr"] in live:
            events.append(("f", when, live.pop(entry["addr"]), entry["stream"]))
    write_trace(path, f"{steps} training steps with PyTorch {torch.__version__}", events)


def record_cupy(path, steps=40):
    """Records transforms, reductions and linear solves with arrays of several sizes, on two streams."""
    import cupy

    events, live = [], {}
    start = time.perf_counter_ns()

    class Hook(cupy.cuda.MemoryHook):
        name = "trace"

        def malloc_postprocess(self, **its):
            if its["size"] == 0 or its["mem_ptr"] == 0:
                return
            number = len(events)
            live[its["mem_ptr"]] = number
            stream = cupy.cuda.get_current_stream().ptr
            events.append(("a", time.perf_counter_ns() - start, number, its["size"], stream))

        def free_postprocess(self, **its):
            number = live.pop(its["mem_ptr"], None)
            if number is not None:
                stream = events[number][4]
                events.append(("f", time.perf_counter_ns() - start, number, stream))

    cupy.random.seed(1)
    sizes = [int(its) for its in cupy.random.randint(100, 1500, steps).get()]
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    with Hook():
        kept = []
        for count, size in enumerate(sizes):
            with streams[count % 2] as stream:
                a = cupy.random.rand(size, size)
                spectrum = cupy.abs(cupy.fft.rfft2(a))
                product = a @ a.T + size * cupy.eye(size)
                solution = cupy.linalg.solve(product, a[0])
                kept.append((spectrum.sum(axis=0), cupy.sort(solution), cupy.percentile(a, 90)))
                stream.synchronize()
            del kept[:-8]
        del kept, a, spectrum, product, solution
    write_trace(path, f"{steps} steps with CuPy {cupy.__version__}", events)


def replay(operations, allocate, free):
    """Returns the nanoseconds of one round."""
    live = {}
    start = time.perf_counter_ns()
    for number, size, place in operations:
        if size:
            live[number] = allocate(size, place)
        else:
            free(live.pop(number))
    return time.perf_counter_ns() - start


def way_loop(_streams):
    return (lambda size, place: size), (lambda memory: None), (lambda: 0), (lambda: None)


def cupy_streams(count):
    import cupy

    # One stream of a trace is the default stream, as in most programs.
    streams = [cupy.cuda.Stream.null]
    streams += [cupy.cuda.Stream(non_blocking=True) for _ in range(count - 1)]

    def allocate_with(malloc):
        if count == 1:
            return lambda size, place: malloc(size)

        def allocate(size, place):
            streams[place].use()
            return malloc(size)

        return allocate

    return allocate_with


def way_cupy(streams):
    import cupy

    pool = cupy.cuda.MemoryPool()
    # The replay drops the last reference to the memory, which frees it.
    return cupy_streams(streams)(pool.malloc), (lambda memory: None), pool.total_bytes, pool.free_all_blocks


def way_ours_cupy(streams):
    import cuda_safe.cupy

    cuda_safe.set_memory_manager("caching")
    pool = cuda_safe.memory_manager()
    return (
        cupy_streams(streams)(cuda_safe.cupy.allocator),
        (lambda memory: None),
        lambda: pool.statistics().reserved_peak,
        pool.trim,
    )


def torch_functions(count):
    import torch

    handles = [0, *(torch.cuda.Stream().cuda_stream for _ in range(count - 1))]
    allocate, free = (
        torch._C._cuda_cudaCachingAllocator_raw_alloc,
        torch._C._cuda_cudaCachingAllocator_raw_delete,
    )
    if count == 1:
        return (lambda size, place: allocate(size, 0)), free
    return (lambda size, place: allocate(size, handles[place])), free


def way_torch(streams):
    import torch

    torch.cuda.init()
    allocate, free = torch_functions(streams)
    return allocate, free, torch.cuda.max_memory_reserved, torch.cuda.empty_cache


def way_ours_torch(streams):
    import cuda_safe.torch

    cuda_safe.set_memory_manager("caching")
    cuda_safe.torch.use()
    pool = cuda_safe.memory_manager()
    allocate, free = torch_functions(streams)
    return allocate, free, lambda: pool.statistics().reserved_peak, pool.trim


def child(way, path, rounds):
    operations, streams, _ = read_trace(path)
    allocate, free, reserved, empty = globals()[f"way_{way.replace('-', '_')}"](streams)
    # Do the initialization of the first allocation, without cached memory afterwards.
    free(allocate(512, 0))
    empty()
    times = [replay(operations, allocate, free) for _ in range(rounds + 1)]
    print(json.dumps([times, reserved()]))


def run(*arguments):
    done = subprocess.run([sys.executable, os.path.abspath(__file__), *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])


def bench_rows(bench, path):
    """Yields the results of cuda-bench for the same trace."""
    done = subprocess.run([bench, "--managers", "--trace", path], capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)
    for line in done.stdout.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[1].replace(".", "").isdigit():
            yield cells[0], float(cells[1]), float(cells[2].split()[0]), float(cells[3])


def table(path, rounds, bench):
    operations, streams, high = read_trace(path)
    what = open(path).readline().lstrip("# ").strip()
    print(f"\n{what}: {len(operations)} operations on {streams} stream(s), {high / MIB:.1f} MiB in use at most\n")
    print("| pool | µs, first replay | µs, later replays | ns per operation, without the loop | maximum reserved MiB |")
    print("|---|--:|--:|--:|--:|")
    loop = 0.0
    good = True
    for way, name in WAYS.items():
        measured = run("--way", way, path, rounds)
        if measured is None:
            print(f"| {name} | failed | | | |")
            good = False
            continue
        (first, *again), reserved = measured
        median = statistics.median(again)
        loop = median if way == "loop" else loop
        each = (median - loop) / len(operations)
        print(f"| {name} | {first / 1e3:.0f} | {median / 1e3:.0f} | {each:.0f} | {reserved / MIB:.1f} |")
    if bench:
        for name, first, again, reserved in bench_rows(bench, path):
            each = again * 1e3 / len(operations)
            print(f"| cuda-bench: {name} | {first:.0f} | {again:.0f} | {each:.0f} | {reserved:.1f} |")
    return good


def record(folder):
    """Records both traces, each in its own process."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / "torch.trace", folder / "cupy.trace"]
    for path in paths:
        subprocess.run([sys.executable, os.path.abspath(__file__), "--record", path.stem, path], check=True)
    return [str(path) for path in paths]


def main(arguments):
    rounds, bench, traces = ROUNDS, None, []
    beside = Path(__file__).resolve().parents[2] / "bench" / "cuda-bench"
    if beside.exists():
        bench = str(beside)
    arguments = list(arguments)
    while arguments:
        its = arguments.pop(0)
        if its == "--bench":
            bench = arguments.pop(0)
        elif its == "--rounds":
            rounds = int(arguments.pop(0))
        else:
            traces.append(its)
    with tempfile.TemporaryDirectory() as folder:
        results = [table(path, rounds, bench) for path in traces or record(folder)]
    return 0 if all(results) else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", folder]:
            record(folder)
        case ["--record", which, path]:
            {"torch": record_torch, "cupy": record_cupy}[which](path)
        case ["--way", way, path, rounds]:
            child(way, path, int(rounds))
        case arguments:
            sys.exit(main(arguments))
