"""Tests of a program that uses arrays, on the software driver.

usage: python3 -m pytest test_without_gpu.py

They need the wheel of cuda-sim, NumPy and pytest, and no GPU. Each test fails if it misuses the driver or leaks an object.
"""

import cuda_sim
import numpy
import pytest

cuda_sim.install("a100")  # before anything uses CUDA; in a project, in conftest.py

import cuda_safe  # noqa: E402


class Average:
    """The code under test: the average of rows, which are collected on the device."""

    def __init__(self, device, rows, columns):
        self.stream = device.stream()
        self.rows = cuda_safe.DeviceArray.zeros((rows, columns), "f8", stream=self.stream)
        self.count = 0

    def add(self, row):
        row = cuda_safe.DeviceArray.from_host(row, stream=self.stream)
        self.rows[self.count].copy_from(row)
        self.count += 1

    def get(self):
        return self.rows[: self.count].copy_to_host().mean(axis=0)


@pytest.fixture(scope="session")
def device():
    device = cuda_safe.Device(0)
    cuda_safe.DeviceArray.zeros(1)  # what the package creates once is no leak of the first test
    return device


@pytest.fixture(autouse=True)
def checked(device):
    with cuda_sim.checked(ignore=["events"]):  # the package keeps events for reuse
        yield


def test_the_average_of_two_rows(device):
    average = Average(device, 10, 3)
    average.add(numpy.array([1.0, 2, 3]))
    average.add(numpy.array([3.0, 2, 1]))
    assert average.get().tolist() == [2, 2, 2]


def test_a_row_for_which_there_is_no_memory_is_not_added(device):
    average = Average(device, 10, 3)
    average.add(numpy.ones(3))
    with cuda_sim.faults("cuMemAllocAsync=CUDA_ERROR_OUT_OF_MEMORY"):
        with pytest.raises(MemoryError):
            average.add(numpy.zeros(3))
    assert average.count == 1
    assert average.get().tolist() == [1, 1, 1]


def test_the_device_is_the_one_that_was_chosen(device):
    assert "A100" in device.name and device.compute_capability == (8, 0)
