"""Behavior on a machine without a driver."""

NO_DRIVER = {"CUDA_SYS_LIBRARY": "/nonexistent/libcuda.so.1"}


def test_the_first_use_reports_the_missing_driver(run_python):
    run_python(
        """
import cuda_safe
for use in (
    cuda_safe.Device,
    cuda_safe.Device.count,
    cuda_safe.Stream,
    cuda_safe.Event,
    cuda_safe.driver_version,
    lambda: cuda_safe.DeviceArray.zeros(3),
    lambda: cuda_safe.from_cuda_array_interface(
        dict(shape=(1,), typestr="|u1", data=(4096, False), version=3)
    ),
):
    try:
        use()
    except cuda_safe.DriverNotFoundError as why:
        assert "/nonexistent/libcuda.so.1" in str(why), why
        assert why.code is None and why.name is None
    else:
        raise AssertionError(use)
print("done")
""",
        **NO_DRIVER,
    )


def test_invalid_arguments_are_still_refused(run_python):
    run_python(
        """
import cuda_safe
try:
    cuda_safe.from_cuda_array_interface(dict(shape=(1,), typestr="|u1", data=(4096, False)))
except cuda_safe.ArrayInterfaceError as why:
    assert "version" in str(why)
print("done")
""",
        **NO_DRIVER,
    )
