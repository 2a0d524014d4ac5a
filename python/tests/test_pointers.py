"""Driver information about the memory of arrays and about addresses."""

import pytest

import cuda_safe
from cuda_safe import DeviceArray, pointer_attributes


def test_the_memory_of_an_array_is_on_its_device(device):
    array = DeviceArray.zeros(1000, "u1")
    known = pointer_attributes(array)
    assert isinstance(known, cuda_safe.PointerAttributes)
    assert (known.device, known.memory_type, known.managed) == (device, "device", False)
    # Memory of a pool belongs to the device.
    assert (known.context, known.host_address) == (None, None)
    assert known.start <= array.address
    assert known.start + known.size >= array.address + 1000
    # A view, its address and an array of another library are in the same allocation.
    view = array[100:200]
    for of in (view, view.address, cuda_safe.as_cuda_array(array)):
        assert pointer_attributes(of) == known


def test_arrays_of_other_libraries_are_accepted(device, produce):
    array = DeviceArray.zeros(3)
    # The stream has no meaning for the memory.
    assert pointer_attributes(produce(array, stream=0)) == pointer_attributes(array)
    with pytest.raises(cuda_safe.ArrayInterfaceError, match="typestr"):
        pointer_attributes(produce(array, typestr="?"))
    for wrong in (object(), "1", None, 1.5, -1, 1 << 64):
        with pytest.raises(TypeError, match="no __cuda_array_interface__"):
            pointer_attributes(wrong)


def test_unknown_memory_is_none(device):
    assert pointer_attributes(0) is None
    assert pointer_attributes(DeviceArray.zeros(0)) is None
    assert pointer_attributes(12345) is None
    array = DeviceArray.zeros(3)
    array.close()
    with pytest.raises(cuda_safe.ClosedError):
        pointer_attributes(array)


def test_the_owning_context_and_the_address_for_the_host_are_reported(run_python, device):
    run_python(
        """
import cuda_safe
from cuda_safe import Context, DeviceArray, PinnedArray, pointer_attributes
manager = cuda_safe.MemoryManager._of()
pinned = PinnedArray.zeros(1000, "u1")
known = pointer_attributes(pinned.as_device_array()[10:])
assert known.host_address == pinned.numpy().ctypes.data + 10
assert known.context == Context.primary().handle
memory = manager._allocate(1000)
known = pointer_attributes(memory.address)
assert (known.context, known.host_address) == (Context.primary().handle, None), known
managed = manager._allocate_managed(1000, True)
known = pointer_attributes(managed.address + 7)
assert known.host_address == managed.address + 7 and known.context == Context.primary().handle
print("done")
"""
    )


def test_managed_and_page_locked_memory_are_distinguished(run_python, device):
    run_python(
        """
import cuda_safe
manager = cuda_safe.MemoryManager._of()
managed = manager._allocate_managed(1000, True)
known = cuda_safe.pointer_attributes(managed.address)
assert known.managed and known.device == cuda_safe.Device(0), known
assert (known.start, known.size) == (managed.address, 1000), known
host = manager._allocate_host(1000, True, False, False)
known = cuda_safe.pointer_attributes(host.address + 10)
assert (known.memory_type, known.managed, known.start) == ("host", False, host.address), known
print("done")
"""
    )


def test_the_device_is_that_of_the_memory(devices):
    first, second = devices
    with second:
        array = DeviceArray.zeros(1000, "u1")
        assert pointer_attributes(array).device == second
    with first:
        for of in (array, array.address):
            known = pointer_attributes(of)
            assert (known.device, known.memory_type) == (second, "device")
            assert known.start <= array.address < known.start + known.size
