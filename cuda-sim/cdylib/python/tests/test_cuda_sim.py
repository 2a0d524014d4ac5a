"""The wheel of the software driver: its command, its module, and programs that use them.

A process has one driver, so most tests run programs of their own. Their environment names no other driver.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

cuda_sim = pytest.importorskip("cuda_sim", reason="missing: the wheel of cuda-sim")

REPOSITORY = Path(__file__).parents[4]
PTX = REPOSITORY / "tests/libcuda/scale.ptx"

# Calls of the driver without a package.
CALLS = """
import ctypes
def call(name, *arguments):
    code = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    assert code == 0, (name, code)
def context():
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
def allocate():
    address = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(1000))
    return address
def devices():
    count = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    return count.value
"""


@pytest.fixture
def environment(tmp_path):
    """An environment that names no driver, with a cache of its own."""
    own = {"CUDA_SYS_LIBRARY", "LD_LIBRARY_PATH"}
    kept = {k: v for k, v in os.environ.items() if k not in own and not k.startswith("CUDA_SIM")}
    return {**kept, "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def run(environment):
    """Runs a program, and returns its exit status and its outputs."""

    def run(*command, **options):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, **options)
        return done.returncode, done.stdout, done.stderr

    return run


@pytest.fixture
def python(run):
    """Runs Python code that imports the module. Returns its outputs; it must succeed."""

    def python(code):
        status, out, err = run(sys.executable, "-X", "dev", "-c", f"import cuda_sim\n{CALLS}\n{code}")
        assert status == 0, (out, err)
        return out, err

    return python


def test_the_metadata_has_the_licenses_and_a_description_without_relative_links():
    distribution = metadata.distribution("cuda-sim")
    assert distribution.metadata["License-Expression"] == "MIT OR Apache-2.0"
    for name, word in [("LICENSE-APACHE", "Apache License"), ("LICENSE-MIT", "Permission is hereby granted")]:
        assert word in distribution.read_text(f"licenses/{name}")
    said = distribution.metadata.get_payload() or distribution.metadata["Description"]
    targets = re.findall(r"\]\(([^)\s]+)\)", said)
    assert "cuda_sim.install" in said and all(its.startswith(("https://", "#")) for its in targets)


def test_the_command_is_installed_and_has_the_version_of_the_package(run):
    version = metadata.version("cuda-sim")
    assert run(cuda_sim.command(), "--version") == (0, f"cuda-sim {version}\n", "")


def test_a_command_that_is_not_installed_is_an_error(monkeypatch, tmp_path):
    monkeypatch.setattr(cuda_sim, "__file__", str(tmp_path / "cuda_sim/__init__.py"))
    monkeypatch.setattr("sysconfig.get_path", lambda *_: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError):
        cuda_sim.command()


def test_a_program_in_c_is_linked_with_the_library_and_runs(run, tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("missing: a C compiler")
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(
        """
#include <stdio.h>
int cuInit(unsigned flags);
int cuDeviceGetCount(int *count);
int main(void) {
    int count = 0, codes[] = {cuInit(0), cuDeviceGetCount(&count)};
    printf("%d %d %d\\n", codes[0], codes[1], count);
}
"""
    )
    status, folder, _ = run(cuda_sim.command(), "library")
    assert status == 0
    linked = run("cc", source, "-o", program, "-L", folder.rstrip("\n"), "-lcuda")
    assert linked == (0, "", "")
    ran = run(cuda_sim.command(), "run", "--strict", "--no-account", "--devices=3", program)
    assert ran == (0, "0 0 3\n", "")


def test_the_python_program_of_the_page_on_the_driver_runs(run, tmp_path):
    page = (REPOSITORY / "cuda-sim/README.md").read_text(encoding="utf-8")
    (tmp_path / "scale.py").write_text(re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)[1])
    shutil.copy(PTX, tmp_path / "scale.ptx")
    command = [cuda_sim.command(), "run", "--strict", "--no-account", sys.executable, "scale.py"]
    assert run(*command, cwd=tmp_path) == (0, "", "")


def test_install_chooses_the_devices_and_the_version(python):
    out, err = python(
        """
cuda_sim.install("a100*2@12.4")
version = ctypes.c_int()
call("cuDriverGetVersion", ctypes.byref(version))
print(devices(), version.value)
"""
    )
    assert (out, err) == ("2 12040\n", "")


def test_settings_of_the_environment_remain(python, environment):
    environment["CUDA_SIM"] = "h200*3"
    assert python("cuda_sim.install(); print(devices())") == ("3\n", "")
    assert python("cuda_sim.install('h200*4'); print(devices())") == ("4\n", "")


def test_processes_that_are_started_later_use_the_driver_too(python):
    out, _ = python(
        f"""
import subprocess, sys
cuda_sim.install("h200*5")
subprocess.run([sys.executable, "-c", {CALLS + 'print(devices())'!r}], check=True)
"""
    )
    assert out == "5\n"


def test_a_wrong_setting_leaves_the_driver_without_devices(python):
    out, err = python("cuda_sim.install('h100x'); print(ctypes.CDLL('libcuda.so.1').cuInit(0))")
    assert out == "100\n"
    assert err.startswith("cuda-sim: CUDA_SIM: ") and "the driver reports no devices" in err


def test_a_process_has_one_driver(python, environment):
    refused = """
try:
    cuda_sim.install()
except RuntimeError as why:
    print(why)
"""
    said = "this process has loaded a CUDA driver; call cuda_sim.install() before its first use\n"
    assert python(f"cuda_sim.install()\n{refused}") == (said, "")
    loaded = f"ctypes.CDLL({str(cuda_sim.library())!r})"
    assert python(f"{loaded}\n{refused}") == (said, "")


def test_functions_need_the_driver(python):
    said, _ = python(
        """
for use in (cuda_sim.live_objects, cuda_sim.misuses, cuda_sim.checked().__enter__, cuda_sim.faults().__enter__):
    try:
        use()
    except RuntimeError as why:
        print(why)
"""
    )
    assert said == "the software driver is not installed; call cuda_sim.install()\n" * 4


def test_within_the_command_the_driver_is_that_of_the_command(run):
    code = f"import cuda_sim\n{CALLS}\ncuda_sim.install(); print(devices())"
    command = [cuda_sim.command(), "run", "--devices=2", "--strict", "--", sys.executable, "-c", code]
    status, out, err = run(*command)
    assert (status, out) == (0, "2\n")
    # The account has the calls of this process.
    assert "1 cuDeviceGetCount" in err, err


def test_the_library_that_the_environment_names_is_loaded(python, environment, tmp_path):
    own = tmp_path / "libcuda.so.1"
    shutil.copy(cuda_sim.library(), own)
    environment["CUDA_SYS_LIBRARY"] = str(own)
    code = f"from pathlib import Path; own = {str(own)!r}; cuda_sim.install()"
    assert python(f"{code}; print(own in Path('/proc/self/maps').read_text())") == ("True\n", "")


def test_live_objects_are_counted_by_kind(python):
    out, _ = python(
        """
cuda_sim.install()
print(cuda_sim.live_objects())
context()
allocate()
print(cuda_sim.live_objects())
"""
    )
    assert out.splitlines() == ["{}", "{'retains': 1, 'device allocations': 1, 'bytes of device memory': 1000}"]


def test_texts_of_the_driver_are_cut_off_at_the_room_for_them(python):
    out, _ = python(
        """
cuda_sim.install()
cu = ctypes.CDLL("libcuda.so.1")
text = ctypes.create_string_buffer(b"........")
whole = cu.cuSimDescribeLiveObjects(None, ctypes.c_size_t(100))
for size in 0, 1, 4:
    assert cu.cuSimDescribeLiveObjects(text, ctypes.c_size_t(size)) == whole > 100
    print(text.raw)
print(cu.cuSimMisuseText(ctypes.c_size_t(0), text, ctypes.c_size_t(4)), text.raw)
print(cu.cuSimInject(None))
"""
    )
    assert out.splitlines() == [
        r"b'........\x00'",
        r"b'\x00.......\x00'",
        r"b'0 r\x00....\x00'",
        r"0 b'\x00 r\x00....\x00'",
        "1",
    ]


def test_a_leak_in_a_checked_block_is_an_error(python):
    out, _ = python(
        """
cuda_sim.install()
context()
before = allocate()
with cuda_sim.checked():
    call("cuMemFree_v2", allocate())
    call("cuMemFree_v2", before)
for options in {}, {"leaks": False}, {"ignore": ["device allocations"]}:
    try:
        with cuda_sim.checked(**options):
            allocate()
        print("no error")
    except AssertionError as why:
        print(*str(why).splitlines(), sep="; ")
"""
    )
    assert out.splitlines() == [
        "leak: 1 device allocations; leak: 1000 bytes of device memory",
        "no error",
        "leak: 1000 bytes of device memory",
    ]


def test_a_misuse_in_a_checked_block_is_an_error_and_an_earlier_one_is_not(python):
    out, err = python(
        """
cuda_sim.install()
context()
def misuse():
    stream = ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(stream), 0)
    call("cuStreamDestroy_v2", stream)
    ctypes.CDLL("libcuda.so.1").cuStreamDestroy_v2(stream)
misuse()
with cuda_sim.checked():
    pass
try:
    with cuda_sim.checked():
        misuse()
except AssertionError as why:
    text = str(why)
    assert text == "misuse: " + cuda_sim.misuses()[1]
    print(len(cuda_sim.misuses()), text)
"""
    )
    assert out.startswith("2 misuse: a stream is destroyed twice, or after its context")
    assert err.count("cuda-sim: misuse: ") == 2


def test_an_exception_in_a_checked_block_is_not_replaced(python):
    out, _ = python(
        """
cuda_sim.install()
context()
try:
    with cuda_sim.checked():
        allocate()
        raise KeyError("mine")
except KeyError as why:
    print(why)
"""
    )
    assert out == "'mine'\n"


def test_faults_make_calls_fail_in_their_block_only(python):
    out, _ = python(
        """
cuda_sim.install()
cu = ctypes.CDLL("libcuda.so.1")
with cuda_sim.faults("cuInit:2=CUDA_ERROR_OUT_OF_MEMORY", "cuDriverGetVersion:1+=3"):
    print(*[cu.cuInit(0) for _ in range(3)], *[cu.cuDriverGetVersion(ctypes.byref(ctypes.c_int())) for _ in range(2)])
print(cu.cuInit(0))
"""
    )
    assert out == "0 2 0 3 3\n0\n"


def test_faults_that_make_no_call_fail_and_texts_that_are_no_faults_are_errors(python):
    out, err = python(
        """
cuda_sim.install()
cu = ctypes.CDLL("libcuda.so.1")
try:
    with cuda_sim.faults("cuInit:2"):
        cu.cuInit(0)
except AssertionError as why:
    print(why)
try:
    with cuda_sim.faults("cuInit", "cuNever"):
        print("not reached")
except ValueError as why:
    print(why)
print(cu.cuInit(0))
"""
    )
    assert out.splitlines() == [
        "no call failed by cuInit:2",
        "no fault: 'cuNever'; the driver has printed the reason to stderr",
        "0",
    ]
    assert "cuda-sim: no fault cuNever: " in err


def test_races_and_checks_of_kernels_are_detected_on_request(python, tmp_path):
    ptx = tmp_path / "read.ptx"
    ptx.write_text(
        """
.version 7.0
.target sm_70
.address_size 64
.visible .entry read(.param .u64 x)
{
    .reg .u64 %a;
    .reg .u32 %v;
    ld.param.u64 %a, [x];
    ld.global.u32 %v, [%a];
    add.u32 %v, %v, 1;
    st.global.u32 [%a], %v;
    ret;
}
"""
    )
    code = f"""
context()
module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
call("cuModuleLoad", ctypes.byref(module), {str(ptx).encode()!r})
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"read")
x = allocate()
arguments = (ctypes.c_void_p * 1)(ctypes.addressof(x))
call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None)
call("cuMemcpyDtoH_v2", ctypes.create_string_buffer(4), x, ctypes.c_size_t(4))
print(len(cuda_sim.misuses()))
"""
    assert python(f"cuda_sim.install()\n{code}")[0] == "0\n"
    out, err = python(f"cuda_sim.install(checks=['initcheck', 'racecheck'])\n{code}")
    assert out == "1\n" and "misuse: initcheck: " in err, err
    variables = "import os; print(os.environ['CUDA_SIM_RACES'], os.environ['CUDA_SIM_LENIENT'])"
    assert python(f"cuda_sim.install(races=True, lenient=True); {variables}")[0] == "1 1\n"


def test_the_module_is_typed(tmp_path):
    pytest.importorskip("mypy")
    package = Path(cuda_sim.__file__).parent
    shutil.copytree(package, tmp_path / "cuda_sim")
    assert (tmp_path / "cuda_sim/py.typed").exists()
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "-p", "cuda_sim"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_everything_that_is_public_has_a_docstring():
    public = {name for name in dir(cuda_sim) if not name.startswith("_")}
    assert set(cuda_sim.__all__) <= public
    assert [name for name in cuda_sim.__all__ if not getattr(cuda_sim, name).__doc__] == []
