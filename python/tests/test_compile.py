"""Kernels that are compiled at run time.

The software driver runs no machine code, which `compile` produces. It knows one kernel, `cuda_safe_record_sm`,
so the tests that check what a kernel has written use this one, and those that need another one need a GPU.
"""

import gc
import os
import subprocess
import sys

import numpy as np
import pytest
from conftest import SIMULATED, since

import cuda_safe
from cuda_safe import DeviceArray, Stream

RECORD = """
extern "C" __global__ void cuda_safe_record_sm(unsigned *sms)
{
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x == 0)
        sms[blockIdx.x] = sm;
}
"""
ALL = """
struct Pair { double a; int b; };
extern "C" __global__ void all(float f, double d, bool t, signed char c, short s, int i, unsigned long long u,
                               Pair p, const int *in, double *out)
{
    out[0] = f; out[1] = d; out[2] = t; out[3] = c; out[4] = s; out[5] = i; out[6] = u;
    out[7] = p.a; out[8] = p.b; out[9] = in ? in[0] : -1;
}
"""
PAIR = np.dtype([("a", "f8"), ("b", "i4")], align=True)


@pytest.fixture(autouse=True)
def _compiler(device):
    try:
        cuda_safe.compile("", cache=False)
    except cuda_safe.CompilerNotFoundError as why:
        pytest.skip(str(why))


def gpu():
    if SIMULATED:
        pytest.skip("needs a GPU")


def record():
    return cuda_safe.compile(RECORD, cache=False).kernel("cuda_safe_record_sm")


def test_a_kernel_writes_to_an_array(device):
    sms = DeviceArray.from_host(np.full(8, 0xFFFFFFFF, "u4"))
    record().launch(8, 32, sms)
    assert (sms.copy_to_host() < device.sm_count).all()


def test_the_kernel_runs_on_the_given_stream_and_in_order_with_the_arrays(device):
    kernel = record()
    for stream in [Stream(), Stream.legacy(), Stream.per_thread(), None]:
        for place in [Stream(), Stream()]:
            with place:
                sms = DeviceArray.from_host(np.full(8, 0xFFFFFFFF, "u4"))
            kernel.launch(8, 32, sms, stream=stream)
            assert (sms.copy_to_host() < device.sm_count).all()


def test_an_array_of_another_library_is_an_argument(produce, device):
    sms = DeviceArray.from_host(np.full(8, 0xFFFFFFFF, "u4"))
    for changes in [{}, {"stream": None}, {"stream": 1}]:
        record().launch((8, 1), (32, 1, 1), produce(sms, **changes))
        assert (sms.copy_to_host() < device.sm_count).all()


def test_a_captured_launch_keeps_its_kernel_and_array(device):
    stream = Stream()
    with stream:
        sms = DeviceArray.from_host(np.full(8, 0xFFFFFFFF, "u4"))
    view = sms[:]
    with stream.capture() as graph:
        record().launch(8, 32, view)
    del view
    gc.collect()
    launch = graph.instantiate()
    launch.launch(stream)
    stream.synchronize()
    assert (sms.copy_to_host() < device.sm_count).all()


def test_a_kernel_keeps_its_module(device):
    kernel = record()
    gc.collect()
    assert kernel.max_threads_per_block >= 32
    assert repr(kernel) == "<Kernel cuda_safe_record_sm(u64)>"


def test_the_results_of_compilation_are_available():
    module = cuda_safe.compile(
        '#include "value.h"\ntemplate <class T> __global__ void f(T *x) { int unused; *x = VALUE + A; }',
        headers={"value.h": "#define VALUE 3"},
        names=["f<short>", "f<int>"],
        defines={"A": "4", "B": None},
        std="c++20",
        name="named.cu",
        fast_math=True,
        line_info=True,
        options=["-default-device"],
        cache=False,
    )
    assert ".entry" in module.ptx
    assert "named.cu" in module.log and "unused" in module.log
    assert module.cubin is None or module.cubin.startswith(b"\x7fELF")
    for name in ["f<short>", "f<int>"]:
        assert module.kernel(name).parameters == ["u64"]
        assert module.kernel(name).name == name
    with pytest.raises(cuda_safe.CudaError, match="f<char>"):
        module.kernel("f<char>")
    assert repr(module).startswith("<Module for ")


def test_the_types_of_parameters_are_known():
    kernel = cuda_safe.compile(ALL, cache=False).kernel("all")
    expected = ["f32", "f64", "u8", "u8", "u16", "u32", "u64", "b8[16]", "u64", "u64"]
    assert kernel.parameters == expected


def arguments(out):
    pair = np.array((7.5, 8), PAIR)[()]
    return [1, 2.5, True, -3, np.int16(4), -5, 1 << 63, pair, None, out]


def test_numbers_are_converted_to_the_types_of_the_parameters():
    gpu()
    kernel = cuda_safe.compile(ALL, cache=False).kernel("all")
    out = DeviceArray.zeros(10, "f8")
    given = arguments(out)
    kernel.launch(1, 1, *given)
    expected = [1, 2.5, 1, -3, 4, -5, 1 << 63, 7.5, 8, -1]
    assert out.copy_to_host().tolist() == expected
    given[0], given[7] = np.float16(1), given[7].tobytes()
    given[8] = DeviceArray.from_host(np.array([9], "i4"))
    kernel.launch(1, 1, *given)
    assert out.copy_to_host().tolist() == [*expected[:-1], 9]


@pytest.mark.parametrize(
    ("index", "value", "message"),
    [
        (0, "1", "not a number"),
        (0, None, "not a number"),
        (3, 2.5, "float is not an integer"),
        (3, 256, "256 does not fit"),
        (4, -32769, "-32769 does not fit"),
        (5, None, "NoneType is not an integer"),
        (6, np.float32(1), "float is not an integer"),
        (7, b"12345678", "8 bytes were given"),
        (7, 3, "bytes or a NumPy scalar"),
        (8, np.array([1]), "host memory"),
        (8, "x", "str is not an integer"),
    ],
)
def test_a_wrong_argument_is_named(index, value, message):
    kernel = cuda_safe.compile(ALL).kernel("all")
    given = arguments(DeviceArray.zeros(10, "f8"))
    given[index] = value
    with pytest.raises(cuda_safe.InvalidArgumentError, match=f"argument {index} .*{message}"):
        kernel.launch(1, 1, *given)
    given[index] = DeviceArray.zeros(1, "f8")
    if index not in (6, 8):
        with pytest.raises(cuda_safe.InvalidArgumentError, match="passed as a pointer"):
            kernel.launch(1, 1, *given)


def test_wrong_launches_are_refused(device):
    kernel = record()
    sms = DeviceArray.zeros(1, "u4")
    with pytest.raises(cuda_safe.InvalidArgumentError, match="1 parameters, and 2 arguments"):
        kernel.launch(1, 1, sms, 1)
    for grid in [(), (1, 1, 1, 1)]:
        with pytest.raises(cuda_safe.InvalidArgumentError, match="dimensions"):
            kernel.launch(grid, 1, sms)
    for grid in [0, (1, 0)]:
        with pytest.raises(cuda_safe.InvalidArgumentError):
            kernel.launch(grid, 1, sms)
    for wrong in [-1, 1.5, "1"]:
        with pytest.raises((TypeError, OverflowError)):
            kernel.launch(wrong, 1, sms)
    sms.close()
    with pytest.raises(cuda_safe.ClosedError):
        kernel.launch(1, 1, sms)


def test_an_error_of_the_compiler_has_its_log():
    with pytest.raises(cuda_safe.CompileError, match="identifier \"nope\" is undefined"):
        cuda_safe.compile("__global__ void f() { nope; }")
    with pytest.raises(cuda_safe.CompileError, match="--wrong"):
        cuda_safe.compile("", options=["--wrong"])
    with pytest.raises(cuda_safe.InvalidArgumentError, match="NUL"):
        cuda_safe.compile("\0")
    with pytest.raises(cuda_safe.InvalidArgumentError, match="98"):
        cuda_safe.compile("", std="c++98")


def test_the_result_is_cached_on_disk(tmp_path):
    code = f"import cuda_safe; cuda_safe.compile({RECORD!r})"
    for _ in range(2):
        environment = {"CUDA_NVRTC_CACHE_DIR": str(tmp_path)}
        run(code, environment)
        assert len(list(tmp_path.glob("*.cunvrtc"))) == 1


def test_a_folder_that_cannot_be_used_is_not_needed(tmp_path):
    (tmp_path / "file").write_text("")
    run(f"import cuda_safe; cuda_safe.compile({RECORD!r})", {"CUDA_NVRTC_CACHE_DIR": str(tmp_path / "file")})


def run(code, environment):
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **environment}, timeout=60)


def test_a_kernel_runs_in_the_partition_of_a_green_context(device):
    since(12, 4)
    kernel = record()
    resource = device.sm_resource()
    size = max(resource.min_group, resource.group_multiple)
    groups, _ = resource.split_by_count(size, 2, label="the tests")
    for green in [cuda_safe.GreenContext([group]) for group in groups]:
        with green.stream():
            sms = DeviceArray.from_host(np.full(512, 0xFFFFFFFF, "u4"))
        kernel.launch(512, 32, sms)
        assert len(set(sms.copy_to_host().tolist())) <= size
        kernel.launch(512, 32, sms, stream=green.stream())
        assert len(set(sms.copy_to_host().tolist())) <= size


def test_the_context_chooses_the_device(devices):
    sms = []
    for device in devices:
        kernel = cuda_safe.compile(RECORD, context=device.context).kernel("cuda_safe_record_sm")
        with device:
            sms.append(DeviceArray.from_host(np.full(8, 0xFFFFFFFF, "u4")))
        kernel.launch(8, 32, sms[-1])
        assert (sms[-1].copy_to_host() < device.sm_count).all()
    with pytest.raises(cuda_safe.InvalidArgumentError, match="devices"):
        kernel.launch(8, 32, sms[0], stream=devices[1].stream())
    with pytest.raises(cuda_safe.InvalidArgumentError, match="context"):
        kernel.launch(8, 32, sms[0])
