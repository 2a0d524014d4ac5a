"""A random program of several threads: `python3 random_programs.py SEED` runs the program of a seed.

The threads share arrays. They export, import and close them, capture graphs, and collect garbage, with a
memory manager that may be written in Python. Foreign code calls deleters and allocators with the GIL,
without it, from a thread that Python does not know, and from within calls of the package. Some programs
fork, and some exit while their threads work.

The elements of a shared array never change, so a thread can check every array that it gets. Each program
prints what it finds and exits with 3. In development mode (`-X dev`), Python also checks that its memory
is only used with the GIL.
"""

import ctypes
import faulthandler
import gc
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
import weakref
from pathlib import Path

import numpy as np
from tensors import (
    ALLOCATE,
    SET_ERROR,
    TABLE_NAME,
    Consumer,
    DLTensor,
    ManagedVersioned,
    Table,
    pointer_of,
)

import cuda_safe
from cuda_safe import (
    ClosedError,
    DeviceArray,
    ForkedError,
    PinnedArray,
    Stream,
    as_cuda_array,
    from_cuda_array_interface,
    from_dlpack,
)
from cuda_safe.plugin import BaseMemoryManager, MappedMemory, MemoryPointer, PinnedMemory

DRIVER = ctypes.CDLL(os.environ.get("CUDA_SYS_LIBRARY", "libcuda.so.1"))
TABLE = Table.from_address(pointer_of(DeviceArray.__dlpack_c_exchange_api__, TABLE_NAME))

# A caller that releases the GIL, and one that keeps it.
CALLERS = (ctypes.CFUNCTYPE, ctypes.PYFUNCTYPE)

# A thread that Python does not know calls a function.
SOURCE = r"""
#include <pthread.h>

typedef struct { void (*function)(void *); void *argument; } Call;

static void *run(void *call)
{
    ((Call *)call)->function(((Call *)call)->argument);
    return 0;
}

void call_on_thread(void (*function)(void *), void *argument)
{
    Call call = {function, argument};
    pthread_t thread;
    if (pthread_create(&thread, 0, run, &call) == 0)
        pthread_join(thread, 0);
}
"""


def build(folder):
    """Compiles the foreign code."""
    library = Path(folder) / "libforeign.so"
    command = ["cc", "-shared", "-fPIC", "-pthread", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    return library


def check(code):
    if code != 0:
        raise MemoryError(f"the driver answered {code}")


class Manager(BaseMemoryManager):
    """A memory manager that is written in Python. It counts its memory."""

    interface_version = 1
    live: set = set()

    def keep(self, kind, address, size, free):
        # The address is added only now, and removed before it can be allocated again.
        assert address not in self.live, "memory was allocated twice"
        self.live.add(address)

        def finalize():
            self.live.remove(address)
            check(free(ctypes.c_uint64(address)))

        return kind(self.context, address, size, finalizer=finalize)

    def memalloc(self, size):
        address = ctypes.c_uint64()
        check(DRIVER.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
        return self.keep(MemoryPointer, address.value, size, DRIVER.cuMemFree_v2)

    def memhostalloc(self, size, mapped, portable, wc):
        address = ctypes.c_uint64()
        flags = 2 if mapped else 0
        check(DRIVER.cuMemHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), flags))
        kind = MappedMemory if mapped else PinnedMemory
        return self.keep(kind, address.value, size, DRIVER.cuMemFreeHost)


class Object:
    """An object that must be released."""

    alive = weakref.WeakSet()

    def __init__(self, **attributes):
        self.__dict__.update(attributes)
        self.alive.add(self)


class Producer(Object):
    """An object of another library. The package calls its methods, which do something else first."""

    def __dlpack_device__(self):
        self.act("device")
        return self.array.__dlpack_device__()

    def __dlpack__(self, **arguments):
        self.act("dlpack")
        return self.array.__dlpack__(**arguments)

    @property
    def __cuda_array_interface__(self):
        self.act("interface")
        return self.array.__cuda_array_interface__

    def __cuda_stream__(self):
        self.act("stream")
        return 0, self.handle

    def __index__(self):
        self.act("index")
        return 0

    def act(self, where):
        if where == self.where:
            self.where = None
            self.action()


class Program:
    """The state that the threads share."""

    def __init__(self, seed, foreign):
        choose = random.Random(seed)
        self.seed = seed
        self.manager = choose.choice([None, "caching", "ordered", "driver", Manager, Manager])
        self.threads = choose.randint(2, 4)
        self.steps = choose.choice([20, 60, 150])
        self.forks = choose.random() < 0.2
        self.exits = choose.random() < 0.3
        self.found = []
        self.values = iter(range(1, 1 << 30))
        if self.manager is not None:
            cuda_safe.set_memory_manager(self.manager)
            # The functions for PyTorch throw C++ exceptions while another thread creates the manager.
            cuda_safe.memory_manager()
        self.streams = [Stream() for _ in range(2)] + [None, None]
        # Shared arrays, each with the value of all of its elements.
        self.arrays = []
        # Tensors that were exported and not deleted yet.
        self.tensors = []
        # Memory from the functions for PyTorch.
        self.memory = []
        self.call_on_thread = foreign.call_on_thread
        torch = cuda_safe._native._torch_functions()
        kinds = (
            (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p),
            (None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p),
        )
        self.torch = [
            [caller(*kind)(address) for caller in CALLERS]
            for kind, address in zip(kinds, torch, strict=False)
        ]

    def find(self, what):
        self.found.append(what)
        print(f"seed {self.seed}: {what}", file=sys.stderr, flush=True)


class Worker:
    """One thread of a program."""

    def __init__(self, program, number):
        self.program = program
        self.choose = random.Random(f"{program.seed} {number}")
        self.depth = 0

    def run(self):
        for _ in range(self.program.steps):
            if self.program.found:
                return
            self.step()

    def step(self):
        actions = [name for name in dir(self) if name.startswith("do_")]
        action = self.choose.choice(actions)
        self.depth += 1
        try:
            getattr(self, action)()
        except ClosedError:
            # Another thread has closed the array.
            pass
        except Exception:
            self.program.find(f"{action}: {traceback.format_exc()}")
        finally:
            self.depth -= 1

    def nested(self):
        """What foreign code does within a call of the package."""
        if self.depth < 3 and self.choose.random() < 0.3:
            self.step()
        elif self.choose.random() < 0.5:
            self.do_delete_a_tensor()
        else:
            self.do_allocate_as_pytorch()

    def check(self, array, value):
        seen = array.copy_to_host()
        if (np.asarray(seen) != value).any():
            self.program.find(f"{value} was expected, and not {np.unique(seen)}")

    def stream(self):
        return self.choose.choice(self.program.streams)

    def new(self):
        value = next(self.program.values)
        shape = self.choose.choice([1, 100, 30_000, (3, 4)])
        if self.choose.random() < 0.8:
            return DeviceArray.full(shape, value, "u4", stream=self.stream()), value
        host = np.full(shape, value, "u4")
        return PinnedArray.from_host(host, stream=self.stream()), value

    def any(self):
        """Returns a shared array with its value."""
        arrays = self.program.arrays
        if not arrays or self.choose.random() < 0.3:
            made = self.new()
            arrays.append(made)
            if len(arrays) > 6:
                arrays.pop(0)
            return made
        return self.choose.choice(arrays)

    def device_array(self):
        array, value = self.any()
        return (array.as_device_array() if isinstance(array, PinnedArray) else array), value

    def producer(self, array):
        where = self.choose.choice(["device", "dlpack", "interface", None])
        return Producer(array=array, where=where, action=self.nested)

    def consume(self, capsule, value):
        self.program.tensors.append((Consumer(capsule).managed, value))

    def do_create(self):
        self.program.arrays.append(self.new())

    def do_close(self):
        array, _ = self.any()
        array.close()

    def do_close_new_arrays_that_are_exported(self):
        # Without the lists, so that the first export of each array meets the call of `close`.
        made = [self.new() for _ in range(8)]
        both = threading.Barrier(2)

        def close():
            try:
                for array, _ in made:
                    both.wait()
                    array.close()
            except threading.BrokenBarrierError:
                pass

        closer = threading.Thread(target=close)
        closer.start()
        try:
            for array, value in made:
                both.wait()
                try:
                    self.export(array, value)
                except ClosedError:
                    pass
        finally:
            both.abort()
            closer.join()

    def export(self, array, value):
        name = "__cuda_array_interface__"
        if isinstance(array, PinnedArray):
            name = "__array_interface__"
        interface = getattr(array, name)
        if isinstance(array, PinnedArray):
            array = np.asarray(Producer(__array_interface__=interface, array=array))
            assert (array == value).all()
            return
        self.check(from_cuda_array_interface(interface, array), value)

    def do_export(self):
        self.export(*self.any())

    def do_view(self):
        array, value = self.device_array()
        view = array[::2]
        self.check(view, value)

    def do_import_an_interface(self):
        array, value = self.device_array()
        self.check(as_cuda_array(self.producer(array)), value)

    def do_import_a_tensor(self):
        array, value = self.any()
        copy = self.choose.choice([None, None, True])
        imported = from_dlpack(self.producer(array), stream=self.stream(), copy=copy)
        self.check(imported, value)

    def do_export_a_tensor(self):
        array, value = self.any()
        if isinstance(array, DeviceArray) and self.choose.random() < 0.5:
            # The tensor has the last reference to an object of Python.
            array = as_cuda_array(Producer(array=array, where=None))
        arguments = {}
        if self.choose.random() < 0.7:
            stream = self.stream()
            arguments["stream"] = -1 if stream is None else stream.handle
        if self.choose.random() < 0.7:
            arguments["max_version"] = (1, 2)
        capsule = array.__dlpack__(**arguments)
        if self.choose.random() < 0.8:
            self.consume(capsule, value)

    def do_export_by_the_table(self):
        array, value = self.device_array()
        address = ctypes.c_void_p()
        if TABLE.from_object(array, ctypes.addressof(address)) == 0:
            managed = ManagedVersioned.from_address(address.value)
            self.program.tensors.append((managed, value))

    def do_allocate_by_the_table(self):
        kind = self.choose.choice([ALLOCATE, None])
        if kind is None:
            kind = ctypes.PYFUNCTYPE(*[ALLOCATE._restype_, *ALLOCATE._argtypes_])
        allocate = kind(ctypes.cast(TABLE.allocate, ctypes.c_void_p).value)
        shape = (ctypes.c_int64 * 1)(50)
        prototype = DLTensor(
            device_type=2, device_id=0, ndim=1, code=1, bits=32, lanes=1, shape=shape
        )
        address, said = ctypes.c_void_p(), []
        failed = SET_ERROR(lambda _, kind, text: said.append((kind, text)))
        code = allocate(ctypes.addressof(prototype), ctypes.addressof(address), None, failed)
        # At the end of the interpreter, the call fails without a message.
        if self.program.exits and code != 0 and said == []:
            return
        assert code == 0 and said == [], said
        managed = ManagedVersioned.from_address(address.value)
        self.program.tensors.append((managed, None))

    def take_tensor(self):
        try:
            return self.program.tensors.pop(0)
        except IndexError:
            return None

    def do_delete_a_tensor(self):
        if taken := self.take_tensor():
            self.delete(taken[0])

    def delete(self, managed):
        address = ctypes.addressof(managed)
        if self.choose.random() < 0.3:
            function, argument = ctypes.c_void_p(managed.deleter), ctypes.c_void_p(address)
            self.program.call_on_thread(function, argument)
        else:
            caller = self.choose.choice(CALLERS)
            caller(None, ctypes.c_void_p)(managed.deleter)(address)

    def do_allocate_as_pytorch(self):
        program = self.program
        # A failure at the end of the interpreter would be a C++ exception.
        if program.manager is None or program.manager is Manager and program.exits:
            return
        allocate, free = (self.choose.choice(kinds) for kinds in program.torch)
        memory = program.memory
        if memory and self.choose.random() < 0.5:
            try:
                free(memory.pop(0), 1000, 0, None)
            except IndexError:
                pass
            return
        memory.append(allocate(1000, 0, None))

    def do_use_a_stream_of_another_library(self):
        stream = Stream()
        producer = Producer(handle=stream.handle, own=stream, where="stream", action=self.nested)
        if self.choose.random() < 0.5:
            theirs = Stream.from_object(producer)
        else:
            theirs = Stream.from_handle(stream.handle, owner=producer)
        value = next(self.program.values)
        array = DeviceArray.full(10, value, "u4", stream=theirs)
        self.check(array, value)

    def do_index_with_an_object(self):
        array, value = self.device_array()
        self.check(array[Producer(where="index", action=self.nested)], value)

    def do_capture(self):
        stream, value = Stream(), next(self.program.values)
        target = DeviceArray.zeros(100, "u4", stream=stream)
        source = DeviceArray.full(100, value, "u4", stream=stream)
        tensor = Consumer(source.__dlpack__(stream=stream.handle)).managed
        with stream.capture(self.choose.choice(["thread_local", "relaxed"])) as graph:
            target.copy_from(source)
            if self.choose.random() < 0.5:
                graph.keep(Object())
            self.delete(tensor)
            tensor = None
            if self.choose.random() < 0.5:
                source.close()
                source = None
        executable = graph.instantiate()
        executable.launch(stream)
        if self.choose.random() < 0.5:
            graph.close()
            executable.close()
        self.check(target, value)

    def do_collect_garbage(self):
        gc.collect()

    def do_trim(self):
        if self.program.manager is not None:
            cuda_safe.memory_manager().trim()

    def do_make_a_cycle(self):
        array, _ = self.device_array()
        producer = Producer(array=array, where=None)
        producer.imported = as_cuda_array(producer)

    def do_fork(self):
        program = self.program
        if not program.forks or self.depth > 1 or self.choose.random() < 0.8:
            return
        array, _ = self.new()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                array.synchronize()
            except ForkedError:
                array.close()
                code = 7
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) != 7:
            program.find(f"the forked child ended with the status {status}")


def finish(program):
    """Releases everything, and checks that nothing remains."""
    worker = Worker(program, "end")
    while taken := worker.take_tensor():
        worker.delete(taken[0])
    for address in program.memory:
        program.torch[1][1](address, 1000, 0, None)
    program.memory.clear()
    program.arrays.clear()
    program.streams.clear()
    for _ in range(3):
        gc.collect()
    # Tensors that were deleted in captures are released by a later call at the latest.
    DeviceArray.zeros(0)
    if program.manager is not None:
        # Pending frees are complete afterwards.
        cuda_safe.memory_manager().trim()
        used = cuda_safe.memory_manager().statistics().used
        if used:
            program.find(f"{used} bytes are still in use")
    if Manager.live:
        program.find(f"{len(Manager.live)} allocations of the manager were not finalized")
    if Object.alive:
        kinds = sorted({f"{type(its).__name__} {vars(its)}" for its in Object.alive})
        program.find(f"{len(Object.alive)} objects were not released: {kinds}")
    if cuda_safe.leaked():
        program.find(f"{cuda_safe.leaked()} objects of the driver were leaked")


def main(seed, foreign):
    faulthandler.enable()
    faulthandler.dump_traceback_later(60, exit=True)
    warnings.simplefilter("ignore", DeprecationWarning)
    sys.setswitchinterval(1e-6)
    program = Program(seed, foreign)
    threads = [
        threading.Thread(target=Worker(program, number).run, daemon=program.exits)
        for number in range(program.threads)
    ]
    for thread in threads:
        thread.start()
    if program.exits:
        # The interpreter is finalized while the threads work.
        time.sleep(random.Random(seed).random() * 0.3)
    else:
        for thread in threads:
            thread.join()
        if not program.found:
            finish(program)
    sys.exit(3 if program.found else 0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(int(sys.argv[1]), ctypes.CDLL(sys.argv[2] if len(sys.argv) > 2 else build(folder)))
