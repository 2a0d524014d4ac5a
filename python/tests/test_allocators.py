"""Numba, CuPy and PyTorch allocate through the manager: with the libraries where they are installed and
have what they need, and with stand-ins that have their rules (standins.py) everywhere.

Each test is a process, as what allocates holds for one.
"""

import functools
import os
import subprocess
import sys
from pathlib import Path

import catcher
import pytest
from conftest import SIMULATED, missing

START = """
import gc, sys
sys.path.insert(0, {tests!r})
import standins
for library in {libraries!r}:
    standins.install(library)
import cuda_safe
MIB = 1 << 20

def used():
    gc.collect()
    return cuda_safe.memory_manager().statistics().used
"""


def environment():
    """With the software driver also for those who look for the driver by its name."""
    variables = {**os.environ, "NUMBA_CUDA_MEMORY_MANAGER": "cuda_safe.numba"}
    if SIMULATED:
        folder = str(Path(os.environ["CUDA_SYS_LIBRARY"]).parent)
        paths = [folder, *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    return variables


def python(libraries, program, **variables):
    start = START.format(tests=str(Path(__file__).parent), libraries=libraries)
    return subprocess.run(
        [sys.executable, "-c", start + program],
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )


@functools.cache
def why_not(library):
    """Why a library cannot be used, or None."""
    if library.endswith("standin"):
        return None
    if SIMULATED and library != "numba":
        return f"{library} needs a GPU"
    use = {
        "numba": "from numba import cuda; cuda.current_context()",
        "cupy": "import cupy; cupy.cuda.runtime.getDeviceCount()",
        "torch": "import torch; assert torch.cuda.is_available(), 'no GPU'",
    }
    done = python([library], use[library])
    return done.returncode and f"{library}: {done.stderr.strip().splitlines()[-1]}" or None


def run(libraries, program, **variables):
    for library in libraries:
        if why := why_not(library):
            missing(why)
    done = python(libraries, program + "\nprint('done')\n", **variables)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    assert done.stdout.strip().endswith("done"), done.stdout
    # Of finalizers, too.
    assert "Traceback" not in done.stderr and "panicked" not in done.stderr, done.stderr
    return done


def of(name):
    return pytest.mark.parametrize("library", [f"{name}-standin", name])


NUMBA = """
from numba import cuda
context = cuda.current_context()
"""


@of("numba")
def test_numba_gets_device_memory_of_the_pool(device, library):
    run(
        [library],
        NUMBA
        + """
one = context.memalloc(1000)
assert used() == 1000
assert int(one.device_pointer) % 256 == 0 and one.size == 1000
part = one.view(100, 200)
assert int(part.device_pointer) == int(one.device_pointer) + 100
del one
assert used() == 1000
del part
assert used() == 0
# Views that go do not take along what they are of.
one = context.memalloc(1000)
one.view(0, 10)
assert used() == 1000
managed = context.memory_manager.memallocmanaged(1000, True)
assert used() == 1000
del managed, one
assert used() == 0
""",
    )


@of("numba")
def test_a_finalizer_that_comes_after_reset_does_nothing(device, library):
    run(
        [library],
        "cuda_safe.set_memory_manager(limit=33 * MIB)"
        + NUMBA
        + """
keep = cuda_safe.MemoryManager._of()._allocate(5000)
early = context.memalloc(1000)
address = int(early.device_pointer)
context.reset()
assert used() == 5000
# Another one gets the address: tables by address would free that.
late = context.memalloc(1000)
assert int(late.device_pointer) == address
del early
assert used() == 6000
context.reset()
context.reset()
assert used() == 5000
del late
assert used() == 5000
assert context.memory_manager._device_memory == {}
""",
    )


@of("numba")
def test_after_numba_has_closed_the_context_nothing_of_before_is_handed_out(device, library):
    run(
        [library],
        """
if cuda_safe.driver_version() < (12, 0):
    print("done")
    raise SystemExit
"""
        + NUMBA
        + """
import ctypes
first = cuda_safe.memory_manager()
one = context.memalloc(1000)
part = one.view(10, 100)
kept = first._allocate_host(1000, False, False, False)
grown = first.statistics().grown
cuda.close()

context = cuda.current_context()
two = context.memalloc(1000)
# It is memory.
driver = standins.driver()
cuda.current_context()
assert driver.cuMemsetD8_v2(ctypes.c_uint64(int(two.device_pointer)), 1, ctypes.c_size_t(1000)) == 0
manager = cuda_safe.memory_manager()
assert manager != first and manager.statistics().grown == 1
assert used() == 1000

# What was of the other context is given back to nobody, and nothing is taken of it.
freed = manager.statistics().freed
del one, part, kept
assert used() == 1000 and manager.statistics().freed == freed
for use in (
    lambda: first._allocate(1000),
    lambda: first._allocate_managed(1000, True),
    lambda: first._allocate_host(1000, False, False, False),
    lambda: first.statistics(),
    lambda: first.trim(),
):
    try:
        use()
    except cuda_safe.InvalidArgumentError as why:
        assert "was reset" in str(why)
    else:
        raise AssertionError
first._reset()
assert cuda_safe.DeviceArray.zeros(3).to_bytes() == bytes(24)

# Nothing was in use.
del two
for _ in range(3):
    cuda.close()
    one = cuda.current_context().memalloc(1000)
    assert used() == 1000
    del one
    assert used() == 0
assert cuda_safe.leaked() == 0
""",
    )


@pytest.mark.skipif(not SIMULATED, reason="needs a driver before CUDA 12.0")
def test_where_no_reset_is_told_numba_hears_what_stays(device):
    done = run(
        ["numba-standin"],
        NUMBA
        + """
assert cuda_safe.Context.primary().id is None
one = context.memalloc(1000)
context.reset()
one = context.memalloc(1000)
part = one.view(10, 100)
print("now", file=sys.stderr)
context.reset()
""",
        CUDA_SIM="h200@11.8",
    )
    before, after = done.stderr.split("now\n")
    assert "RuntimeWarning" not in before
    assert "RuntimeWarning" in after and "still in use" in after, after


@of("numba")
def test_numbas_manager_takes_calls_in_any_order(device, library):
    run(
        [library],
        NUMBA
        + """
from cuda_safe.numba import MemoryManager
one = context.memalloc(1000)
other = MemoryManager(context=context)
other.reset()
for _ in range(3):
    other.initialize()
two = other.memalloc(1000)
other.initialize()
assert used() == 2000
other.reset()
# That of another manager stays.
assert used() == 1000
assert MemoryManager(context=None).interface_version == 1
del two, other
assert used() == 1000
try:
    MemoryManager()
except RuntimeError:
    pass
else:
    raise AssertionError
""",
    )


@of("numba")
def test_numbas_host_memory_goes_with_its_last_user(device, library):
    run(
        [library],
        NUMBA
        + """
import ctypes, weakref
manager = context.memory_manager
one = context.memhostalloc(1000, mapped=True)
other = context.memhostalloc(1000, portable=True, wc=True)
for some in one, other:
    ctypes.memset(int(some.host_pointer), 7, 1000)
assert int(one.device_pointer)
part = one.view(10, 20)
# Whoever writes to the host's memory still must not write to somebody else's.
context.reset()
assert manager._host_memory
ctypes.memset(int(one.host_pointer), 8, 1000)
del one
assert manager._host_memory
del part
gc.collect()
assert manager._host_memory == {}
del other

class Owner:
    def __init__(self):
        self.memory = ctypes.create_string_buffer(1 << 16)

for mapped in False, True:
    owner = Owner()
    gone = weakref.ref(owner)
    pinned = manager.mempin(owner, ctypes.addressof(owner.memory), 1 << 16, mapped)
    del owner
    gc.collect()
    assert gone() is not None
    del pinned
    manager.reset()
    gc.collect()
    assert gone() is None
assert cuda_safe.leaked() == 0
""",
    )


@of("numba")
def test_numba_hears_how_much_memory_there_is(device, library):
    run(
        [library],
        "cuda_safe.set_memory_manager('caching', limit=256 * MIB)"
        + NUMBA
        + """
info = context.get_memory_info()
assert type(info) is cuda.MemoryInfo
assert info.total == 256 * MIB and info.free == 256 * MIB
one = context.memalloc(100 * MIB)
assert context.get_memory_info().free == 156 * MIB
# What was freed is free, although the pool keeps it.
del one
gc.collect()
assert context.get_memory_info().free == 256 * MIB
try:
    context.memalloc(300 * MIB)
except MemoryError as why:
    assert "limit" in str(why)
else:
    raise AssertionError
one = context.memalloc(1000)
del one
gc.collect()
manager = context.memory_manager
with manager.defer_cleanup():
    with manager.defer_cleanup():
        assert cuda_safe.memory_manager().trim() == 0
assert cuda_safe.memory_manager().trim() > 0
""",
    )


@of("numba")
def test_numbas_handles_for_other_processes_have_their_place(device, library):
    run(
        [library],
        NUMBA
        + """
import pickle
one, two = context.memalloc(1000), context.memalloc(2000)
handle = context.get_ipc_handle(two.view(100, 300))
assert handle.size == 200
base = context.get_ipc_handle(one)
distance = int(two.device_pointer) + 100 - int(one.device_pointer)
assert handle.offset - base.offset == distance
assert handle.source_info == context.device.get_device_identity()
# It keeps the memory.
del two
assert used() == 3000
del handle
assert used() == 1000
"""
        + (
            ""
            if library.endswith("standin")
            else """
sent = pickle.loads(pickle.dumps(base))
assert (sent.base, sent.size, sent.offset) == (None, base.size, base.offset)
assert sent.source_info == base.source_info
"""
        ),
    )


@of("numba")
def test_numbas_memory_stays_to_the_end(device, library):
    run(
        [library],
        """
import atexit, ctypes
# The first of all comes last, behind all finalizers.
atexit.register(lambda: late())
"""
        + NUMBA
        + """
keep = [context.memalloc(1000), context.memhostalloc(1000, mapped=True), context.memhostalloc(1000)]
context.reset()
keep.append(context.memalloc(1000))
circle = [context.memalloc(1000)]
circle.append(circle)
freed = cuda_safe.memory_manager().statistics().freed

def late():
    # As NumPy does with an array over it.
    for host in keep[1:3]:
        ctypes.memset(int(host.host_pointer), 7, 1000)
    assert cuda_safe.memory_manager().statistics().freed == freed
""",
    )


@pytest.mark.skipif(SIMULATED, reason="other processes have another software driver")
def test_another_process_opens_memory_of_numbas(device, tmp_path):
    given = tmp_path / "handle"
    run(
        ["numba"],
        NUMBA
        + f"""
import numpy, pickle, subprocess, sys
array = cuda.to_device(numpy.arange(100))
part = array[10:20]
with open({str(given)!r}, "wb") as file:
    file.write(pickle.dumps(part.get_ipc_handle()))
program = '''
import numpy, pickle, sys
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack
from numba import cuda
cuda.current_context()
with pickle.load(open(sys.argv[1], "rb")) as array:
    assert array.copy_to_host().tolist() == list(range(10, 20))
    array[:] = 7
    cuda.synchronize()
'''
subprocess.run([sys.executable, "-c", program, {str(given)!r}], check=True)
assert array.copy_to_host().tolist() == [*range(10), *[7] * 10, *range(20, 100)]
""",
    )


def test_what_numbas_suite_takes_for_a_loss():
    pytest.importorskip("numpy")
    program = """
import json, numba_suite as suite
one = "passed"
own = {"a": one, "b": one, "c": one, "d": one, "e": one, "f": "failed"}
assert suite.losses(own, {"a": one, "b": "failed", "c": "skipped", "d": "external"}) == ["b", "c", "e"]
suite.importlib.util.find_spec = lambda name: True
for own, ours, code in [
    ({"a": one}, {"a": one}, 0),
    ({"a": one, "b": one}, {"a": one, "b": "external"}, 0),
    ({"a": one, "b": one}, {"a": one, "b": "skipped"}, 1),
    ({}, {"a": one}, 1),
    ({"a": one}, {}, 1),
]:
    both = {"default": own, "cuda_safe.numba": ours}
    # Beside a module that is well.
    suite.run = lambda module, manager: ({"z": one} if module == "well" else both[manager], "", 0)
    assert suite.main(["well", "module"]) == code, (own, ours)
"""
    run([], program)


def test_numba_refuses_another_version(device):
    run(
        ["numba"],
        """
from numba import cuda
from cuda_safe.numba import MemoryManager

class Other(MemoryManager):
    @property
    def interface_version(self):
        return 2

try:
    cuda.set_memory_manager(Other)
except RuntimeError as why:
    assert "version 1 required" in str(why)
else:
    raise AssertionError
""",
    )


CUPY = """
import cupy, cuda_safe.cupy
cuda_safe.cupy.use()
"""


@of("cupy")
def test_cupy_gets_memory_in_the_order_of_its_stream(device, library):
    run(
        [library],
        CUPY
        + """
one = cupy.cuda.alloc(1000)
assert used() == 1000 and one.mem.size == 1000
address = one.ptr
del one
assert used() == 0
# Of the same stream at once, ...
assert cupy.cuda.alloc(1000).ptr == address
with cupy.cuda.Stream() as stream:
    two = cupy.cuda.alloc(1000)
    address = two.ptr
    del two
    assert cupy.cuda.alloc(1000).ptr == address
assert cuda_safe.memory_manager().statistics().grown == 1
empty = cupy.cuda.alloc(0)
assert empty.ptr == 0 and empty.mem.size == 0
assert used() == 0
""",
    )


@of("cupy")
def test_nobody_keeps_an_external_stream_of_cupys(device, library):
    run(
        [library],
        CUPY
        + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
ours = cuda_safe.Stream()
with cupy.cuda.ExternalStream(ours.handle):
    one = cupy.cuda.alloc(1000)
del ours
gc.collect()
del one
assert used() == 0
with cupy.cuda.Stream.ptds:
    one = cupy.cuda.alloc(1000)
del one
assert used() == 0
assert cuda_safe.leaked() == 0
""",
    )


def test_memory_keeps_the_stream_of_cupys_that_it_is_in_the_order_of(device):
    run(
        ["cupy-standin"],
        CUPY
        + """
with cupy.cuda.Stream() as stream:
    one = cupy.cuda.alloc(1000)
handle = stream.ptr
del stream
def others():
    for _ in range(100):
        with cupy.cuda.Stream() as stream:
            cupy.cuda.alloc(1000)
    gc.collect()
others()
# Some of those have gone, and this one not.
assert cupy.gone and handle not in cupy.gone
assert len(cuda_safe.cupy._streams) == 64
del one
others()
assert handle in cupy.gone
assert used() == 0
assert cuda_safe.leaked() == 0
""",
    )


def test_cupys_threads_allocate_at_once(device):
    run(
        ["cupy-standin"],
        CUPY
        + """
import threading
errors = []
def work():
    try:
        for _ in range(50):
            stream = cupy.cuda.Stream()
            for _ in range(5):
                cupy.cuda.alloc(1000)
    except Exception as why:
        errors.append(why)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert errors == [], errors
assert used() == 0
""",
    )


TORCH = """
import torch, cuda_safe.torch
cuda_safe.torch.use()
allocate, delete = torch.cuda.caching_allocator_alloc, torch.cuda.caching_allocator_delete
"""


@of("torch")
def test_pytorch_gets_memory_of_the_pool(device, library):
    run(
        [library],
        TORCH
        + """
before = used()
one, two = allocate(1000), allocate(3000)
assert used() - before == 4000 and two != one
delete(one)
assert used() - before == 3000
assert allocate(1000) == one
delete(one)
delete(two)
assert used() == before
# On one of its own streams.
stream = torch.cuda.Stream()
handle = stream.cuda_stream
one = allocate(1000, 0, handle if """
        + repr(library.endswith("standin"))
        + """ else stream)
assert used() - before == 1000
delete(one)
assert used() == before
""",
    )


def test_memory_that_pytorch_does_not_have_is_reported(device):
    done = run(
        ["torch-standin"],
        TORCH
        + """
one = allocate(1000)
known = torch.cuda.memory.CUDAPluggableAllocator
import ctypes
library = ctypes.PyDLL(cuda_safe._native.__file__)
free = library.cuda_safe_torch_free
free.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
free(None, 0, 0, None)
free(one + 512, 1000, 0, None)
delete(one)
free(one, 1000, 0, None)
record = library.cuda_safe_torch_record_stream
record.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
record(None, None)
record(one, None)
assert used() == 0
""",
    )
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2 and all("PyTorch gives back memory" in line for line in lines), lines


def test_memory_that_another_stream_of_pytorchs_uses_comes_again_behind_all_work(device):
    run(
        ["torch-standin"],
        TORCH
        + """
ours = torch.cuda.Stream().cuda_stream
one = allocate(1000, 0, ours)
# Of the same stream there is nothing to wait for.
torch.cuda.record_stream(one, ours)
delete(one)
assert allocate(1000, 0, ours) == one
torch.cuda.record_stream(one, 0)
delete(one)
assert allocate(1000, 0, ours) != one
# And a stream that is not known to stay.
foreign = cuda_safe.Stream()
two = allocate(1000, 0, foreign.handle)
del foreign
gc.collect()
delete(two)
cuda_safe.memory_manager().trim()
assert used() == 1000
assert cuda_safe.leaked() == 0
""",
    )


def test_frees_of_pytorch_that_would_wait_come_later(device):
    run(
        ["torch-standin"],
        "cuda_safe.set_memory_manager('driver')"
        + TORCH
        + """
many = [allocate(1000) for _ in range(20)]
for one in many:
    delete(one)
# Tensors go with the GIL held.
assert used() == 20000
one = allocate(1000)
assert used() == 1000
delete(one)
cuda_safe.memory_manager().trim()
assert used() == 0
""",
    )


FAILS = """
def fails(call, *words):
    try:
        call()
    except RuntimeError as why:
        assert all(word in str(why) for word in words), why
    else:
        raise AssertionError("it did not fail")
"""


@pytest.fixture(scope="session")
def catching(tmp_path_factory):
    """The variables with which the stand-in of PyTorch allocates by way of C++."""
    library = catcher.build(tmp_path_factory.mktemp("catcher"))
    if library is None:
        pytest.skip("there is no compiler of C++ that links libstdc++.so.6")
    return {"CATCHER": str(library)}


def test_what_goes_wrong_is_thrown_through_the_wheel(device, catching):
    run(
        ["torch-standin"],
        "cuda_safe.set_memory_manager(limit=64 * MIB)"
        + TORCH
        + FAILS
        + """
for _ in range(3):
    fails(lambda: allocate(100 * MIB), "CUDA out of memory: tried to allocate 104857600 bytes", "limit")
    fails(lambda: allocate(100, 7), "cuda_safe: ", "no device 7")
    assert allocate(0) is None
    delete(allocate(100))
assert used() == 0
""",
        **catching,
    )


def without_thrower(program):
    """Runs it where nothing has loaded C++'s library."""
    loaded = """
with open("/proc/self/maps") as maps:
    assert "libstdc++" not in maps.read()
"""
    if "AssertionError" in python(["torch-standin"], TORCH + loaded).stderr:
        pytest.skip("something loads C++'s library into every Python here")
    return run(["torch-standin"], program)


def test_without_a_library_of_c_plus_plus_pytorch_gets_null_and_a_line(device):
    done = without_thrower(
        "cuda_safe.set_memory_manager(limit=64 * MIB)"
        + TORCH
        + """
assert allocate(0) is None
assert allocate(100 * MIB) is None
assert allocate(100, 7) is None
assert allocate(100) is not None
""",
    )
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2 and "CUDA out of memory" in lines[0] and "limit" in lines[0], lines
    assert "no device 7" in lines[1], lines


CAPTURE = """
import ctypes

def capture(stream, while_it_is):
    driver, graph = standins.driver(), ctypes.c_void_p()
    # In the mode in which nobody may allocate.
    assert driver.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 0) == 0
    while_it_is()
    assert driver.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph)) == 0
    assert driver.cuGraphDestroy(graph) == 0
"""


def test_pytorch_gets_no_memory_in_a_capture(device, catching):
    run(
        ["torch-standin"],
        TORCH
        + FAILS
        + CAPTURE
        + """
stream = torch.cuda.Stream().cuda_stream
one = allocate(1000, 0, stream)

def while_it_is():
    fails(lambda: allocate(1000, 0, stream), "the stream is captured")
    delete(one)
    # On others nothing is in the way, also where the driver is asked for memory.
    delete(allocate(100 * MIB))

capture(stream, while_it_is)
delete(allocate(1000, 0, stream))
cuda_safe.memory_manager().trim()
assert used() == 0
assert cuda_safe.leaked() == 0
""",
        **catching,
    )


@of("cupy")
@pytest.mark.parametrize(
    "stream",
    ["cupy.cuda.Stream()", "cupy.cuda.ExternalStream(ours.handle)", "cupy.cuda.Stream.ptds"],
    ids=["stream", "external", "of-the-thread"],
)
def test_cupy_gets_no_memory_in_a_capture(device, library, stream):
    run(
        [library],
        CUPY
        + CAPTURE
        + f"""
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
ours = cuda_safe.Stream()
with {stream} as stream:
    one = cupy.cuda.alloc(1000)

    def while_it_is():
        global one
        for size in 1000, 1000, 20 * MIB:
            try:
                cupy.cuda.alloc(size)
            except cuda_safe.InvalidArgumentError as why:
                assert "graph" in str(why), why
            else:
                raise AssertionError
        del one
        assert used() == 0
        with cupy.cuda.Stream.null:
            cupy.cuda.alloc(100 * MIB)

    capture(stream.ptr, while_it_is)
    cupy.cuda.alloc(1000)
cuda_safe.memory_manager().trim()
assert used() == 0
assert cuda_safe.leaked() == 0
""",
    )


def test_errors_are_exceptions_of_pytorchs(device):
    run(
        ["torch"],
        "cuda_safe.set_memory_manager(limit=1024 * MIB)"
        + TORCH
        + FAILS
        + """
fails(lambda: torch.empty(2048 * MIB, dtype=torch.uint8, device="cuda"), "CUDA out of memory", "limit")
tensor = torch.arange(1000, device="cuda")
assert int(tensor.sum()) == 499500
with torch.cuda.stream(torch.cuda.Stream()):
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    try:
        fails(lambda: torch.empty(100, device="cuda"), "captured")
    finally:
        try:
            graph.capture_end()
        except RuntimeError:
            pass
assert int((tensor * 2).sum()) == 999000
""",
    )


ALL = """
import numpy
from numba import cuda
import cupy, torch
import cuda_safe.cupy, cuda_safe.torch
cuda_safe.cupy.use()
cuda_safe.torch.use()
"""


@pytest.mark.parametrize(
    "libraries",
    [["numba-standin", "cupy-standin", "torch-standin"], ["numba", "cupy", "torch"]],
    ids=["standins", "libraries"],
)
def test_one_pool_serves_all_three(device, libraries):
    run(
        libraries,
        """
cuda_safe.set_memory_manager("caching", limit=1024 * MIB)
"""
        + (ALL if "numba" in libraries else ALL.replace("import numpy\n", ""))
        + """
manager = cuda_safe.memory_manager()
context = cuda.current_context()

def allocate(size):
    return [
        lambda: context.memalloc(size),
        lambda: cupy.cuda.alloc(size),
        lambda: torch.cuda.caching_allocator_alloc(size),
        lambda: cuda_safe.DeviceArray.empty(size, "u1"),
    ]

# So that there is enough in one piece.
keep = manager._allocate(512 * MIB)
before = manager.statistics()
keep.close()
manager._allocate(1).close()
cuda_safe.Device(0).synchronize()
at = used()
memory = []
for call in allocate(16 * MIB):
    memory.append(call())
    at += 16 * MIB
    assert used() == at
addresses = sorted([
    int(memory[0].device_pointer), memory[1].ptr, memory[2], memory[3].address,
])
assert all(b - a >= 16 * MIB for a, b in zip(addresses, addresses[1:]))
torch.cuda.caching_allocator_delete(memory[2])
del memory
at -= 4 * 16 * MIB
assert used() == at
figures = manager.statistics()
assert figures.reserved <= 1024 * MIB
# One's memory is another's afterwards.
manager.trim()
one = context.memalloc(900 * MIB)
del one
gc.collect()
two = cupy.cuda.alloc(900 * MIB)
del two
three = torch.cuda.caching_allocator_alloc(900 * MIB)
torch.cuda.caching_allocator_delete(three)
assert used() == at
assert cuda_safe.leaked() == 0
""",
    )
