"""Arrays, streams, pinned memory and a graph, with no library except NumPy.

usage: arrays.py

Without a GPU, the software driver runs this: cuda-sim run python3 arrays.py. The exit code is 77 if the driver
or a device is missing.
"""

import sys

import numpy

import cuda_safe

N, STEPS = 1 << 16, 5
MISSING = 77

try:
    device = cuda_safe.Device(0)
except (cuda_safe.DriverNotFoundError, cuda_safe.NoDeviceError) as why:
    print(f"missing: {why}")
    sys.exit(MISSING)
print(f"cuda_safe {cuda_safe.__version__} on {device.name}")

# To the device and back. Views have NumPy's rules.
host = numpy.arange(12, dtype="float32").reshape(3, 4)
array = cuda_safe.DeviceArray.from_host(host)
array[2, ::2] = 5
host[2, ::2] = 5
assert (numpy.from_dlpack(array.T[::-1], device="cpu") == host.T[::-1]).all()

# Copies through pinned memory. The host waits only before it reads the result.
stream, other = cuda_safe.Stream(), cuda_safe.Stream()
pinned = cuda_safe.PinnedArray.from_host(numpy.full(N, 3, "int32"), stream=stream)
on_device = cuda_safe.DeviceArray.empty(N, "int32", stream=stream)
on_device.copy_from(pinned)
copy = cuda_safe.DeviceArray.empty(N, "int32", stream=other)
copy.copy_from(on_device)  # on another stream, which waits for the first one
assert (copy.copy_to_host() == 3).all()

# A graph: the work is captured once and launched many times.
source = cuda_safe.DeviceArray.zeros(N, "int32", stream=stream)
target = cuda_safe.DeviceArray.zeros(N, "int32", stream=stream)
with stream.capture() as graph:
    target.copy_from(source)
    target[::2] = -1
executable = graph.instantiate()
for step in range(STEPS):
    source.fill(step)
    executable.launch(stream)
result = target.copy_to_host()
assert (result[::2] == -1).all() and (result[1::2] == STEPS - 1).all()
print(f"{N} elements after {STEPS} launches of a graph of {len(graph.nodes)} nodes: as expected")
