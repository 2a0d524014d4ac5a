"""Compares the cost of exporting an array with DLPack's C exchange table with PyTorch, alternating in one
run on a GPU.

usage: exchange_table.py [ROUNDS]

Compiles a small C program with cc, because a call from Python takes longer than an export. Prints the
median times and whether the target is met: exporting an array takes less than 100 ns. Without PyTorch, only
this package is measured. The exit code is 0 if the target is met, otherwise 1.
"""

from __future__ import annotations

import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import cuda_safe

CALLS = 20000
# Of an export, in nanoseconds.
TARGET = 100

SOURCE = r"""
#include <stdint.h>
#include <time.h>

struct tensor { int32_t kind, id, ndim; void *data, *shape, *strides; uint64_t dtype, offset; };
struct managed {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct managed *);
};
struct table {
    uint32_t major, minor;
    void *previous, *allocate;
    int (*from_object)(void *, struct managed **);
    void *to_object;
    int (*borrow)(void *, struct tensor *);
    int (*current_stream)(int32_t, int32_t, void **);
};

enum { BATCH = 100 };

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

/* Each writes the nanoseconds per call and returns 0 if all calls succeed. */

int exports(const struct table *table, void *object, int calls, double *exporting, double *deleting) {
    struct managed *tensors[BATCH];
    *exporting = *deleting = 0;
    for (int done = 0; done < calls; done += BATCH) {
        double start = now();
        for (int i = 0; i < BATCH; i++)
            if (table->from_object(object, &tensors[i]) != 0) return -1;
        double middle = now();
        for (int i = 0; i < BATCH; i++) tensors[i]->deleter(tensors[i]);
        *exporting += middle - start;
        *deleting += now() - middle;
    }
    *exporting /= calls;
    *deleting /= calls;
    return 0;
}

int exports_one_by_one(const struct table *table, void *object, int calls, double *time) {
    double start = now();
    for (int i = 0; i < calls; i++) {
        struct managed *tensor;
        if (table->from_object(object, &tensor) != 0) return -1;
        tensor->deleter(tensor);
    }
    *time = (now() - start) / calls;
    return 0;
}

int borrows(const struct table *table, void *object, int calls, double *time) {
    struct tensor tensor[2];
    *time = 0;
    if (!table->borrow) return 0; /* It is optional. */
    double start = now();
    for (int i = 0; i < calls; i++)
        if (table->borrow(object, tensor) != 0) return -1;
    *time = (now() - start) / calls;
    return 0;
}

int streams(const struct table *table, int calls, double *time) {
    void *stream;
    double start = now();
    for (int i = 0; i < calls; i++)
        if (table->current_stream(2, 0, &stream) != 0) return -1;
    *time = (now() - start) / calls;
    return 0;
}
"""


def compiled():
    """Returns the compiled functions, which are called with the GIL held."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "table.c", Path(folder) / "table.so"
        source.write_text(SOURCE)
        compiler = os.environ.get("CC", "cc")
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        return ctypes.PyDLL(str(library))


def table_of(kind):
    """Returns the address of a type's table."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return ctypes.c_void_p(pointer(kind.__dlpack_c_exchange_api__, b"dlpack_exchange_api"))


def measure(functions, thing):
    """Returns the nanoseconds of each operation."""
    table, it, calls = table_of(type(thing)), ctypes.py_object(thing), ctypes.c_int(CALLS)
    times = [ctypes.c_double() for _ in range(5)]
    export, delete, both, borrow, stream = (ctypes.byref(time) for time in times)
    if functions.exports(table, it, calls, export, delete):
        raise RuntimeError("the export failed")
    if functions.exports_one_by_one(table, it, calls, both):
        raise RuntimeError("the export failed")
    if functions.borrows(table, it, calls, borrow):
        raise RuntimeError("the description failed")
    if functions.streams(table, calls, stream):
        raise RuntimeError("there is no current stream")
    return dict(zip(OPERATIONS, (time.value for time in times)))


OPERATIONS = ("export", "delete", "export and delete", "DLTensor", "current stream")


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 41
    functions = compiled()
    things = {"cuda_safe": cuda_safe.DeviceArray.zeros((3, 4), "f4")}
    try:
        import torch

        tensor = torch.zeros((3, 4), dtype=torch.float32, device="cuda")
        table_of(type(tensor))
        things["torch"] = tensor
    except (ImportError, AttributeError) as why:
        print(f"PyTorch is not measured: {why}")
    results = {name: {operation: [] for operation in OPERATIONS} for name in things}
    for _ in range(rounds):
        for name, thing in things.items():
            for operation, time in measure(functions, thing).items():
                results[name][operation].append(time)
    for operation in OPERATIONS:
        print(operation)
        for name in things:
            its = sorted(results[name][operation])
            low, high = its[len(its) // 10], its[-1 - len(its) // 10]
            print(f"  {name:12} {statistics.median(its):8.1f} ns   ({low:.1f} to {high:.1f})")
    export = statistics.median(results["cuda_safe"]["export"])
    holds = export < TARGET
    print(f"export: {export:.1f} ns; the target is less than {TARGET}: {'met' if holds else 'MISSED'}")
    sys.exit(0 if holds else 1)


main()
