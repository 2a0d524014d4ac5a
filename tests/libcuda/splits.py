"""Lists the devices and splits the SMs of the first by each minimum given, as program.c does."""

import sys

from cuda.bindings import driver


def check(answer):
    code, *values = answer
    if code != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(code)
        sys.exit(f"{code.name}: {text.decode()}")
    return values[0] if len(values) == 1 else values


check(driver.cuInit(0))
version = check(driver.cuDriverGetVersion())
for ordinal in range(check(driver.cuDeviceGetCount())):
    device = check(driver.cuDeviceGet(ordinal))
    name = check(driver.cuDeviceGetName(100, device)).rstrip(b"\0 ").decode()
    attributes = driver.CUdevice_attribute
    sms, major, minor = (
        check(driver.cuDeviceGetAttribute(attribute, device))
        for attribute in (
            attributes.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            attributes.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    print(f"device {ordinal}: {name}, {sms} SMs, {major}.{minor}, driver {version}")

kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
device = check(driver.cuDeviceGet(0))
whole = check(driver.cuDeviceGetDevResource(device, kind))
for flags in (0, 1):
    line = f"split flags={flags}:"
    for minimum in map(int, sys.argv[1:]):
        groups, count, rest = check(
            driver.cuDevSmResourceSplitByCount(200, whole, flags, minimum)
        )
        sizes = {group.sm.smCount for group in groups[:count]}
        size = sizes.pop() if len(sizes) == 1 else f"unequal {sizes}"
        left = rest.sm.smCount if rest.type == kind else 0
        line += f" {minimum}:{count}x{size}+{left}"
    print(line)

context = check(driver.cuDevicePrimaryCtxRetain(device))
check(driver.cuCtxPushCurrent(context))
there, back = bytes(range(256)), bytearray(256)
address = check(driver.cuMemAlloc(len(there)))
check(driver.cuMemcpyHtoD(address, there, len(there)))
check(driver.cuMemcpyDtoH(back, address, len(back)))
check(driver.cuMemFree(address))
print("memory:", "as it was" if back == there else "changed")
(code,) = driver.cuTexRefDestroy(driver.CUtexref(0))
print("not simulated:", code.name)
# The context stays on the stack until the interpreter exits.
