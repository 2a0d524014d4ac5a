"""Green contexts and splits of multiprocessors."""

import pytest
from conftest import since

import cuda_safe
from cuda_safe import DeviceArray, GreenContext


def test_green_contexts_share_no_multiprocessor(device):
    since(12, 4)
    resource = device.sm_resource()
    assert resource.sm_count == device.sm_count and resource.device == device
    size = max(resource.min_group, resource.group_multiple)
    groups, rest = resource.split_by_count(size, 2, label="the tests")
    assert [group.sm_count for group in groups] == [size, size]
    assert rest is None or rest.sm_count == resource.sm_count - 2 * size
    with pytest.raises(cuda_safe.InvalidArgumentError, match="the tests"):
        resource.split_by_count(size)
    resource.split_by_count(size, 1, allow_overlap=True)
    green, other = (GreenContext([group]) for group in groups)
    with pytest.raises(cuda_safe.ClosedError, match="used in a green context"):
        GreenContext([groups[0]])
    assert green.sm_count == size and green.device == device
    assert green.context == device.context
    stream = green.stream(priority=-1)
    array = DeviceArray.full(3, 1.5, "f4", stream=stream)
    with green:
        assert array.copy_to_host().tolist() == [1.5] * 3
    # These SMs are in use.
    its = green.sm_resource()
    assert its.sm_count == size and its.device == device
    with pytest.raises(cuda_safe.InvalidArgumentError, match="the tests"):
        its.split_by_count(size)
    its.split_by_count(size, allow_overlap=True)
    del its
    # The stream keeps the green context alive.
    green.close()
    with pytest.raises(cuda_safe.ClosedError):
        green.stream()
    array.fill(2)
    assert array.copy_to_host().tolist() == [2] * 3
    other.close()


def whole(device):
    """Returns a group of four times the smallest size, and the smallest size."""
    resource = device.sm_resource()
    size = max(resource.min_group, resource.group_multiple)
    (group,), _ = resource.split_by_count(4 * size, 1, label="the tests")
    return group, size


def test_a_group_is_split_into_disjoint_groups(device):
    since(12, 4)
    group, size = whole(device)
    groups, rest = group.split_by_count(size, 2)
    assert [part.sm_count for part in [*groups, rest]] == [size, size, 2 * size]
    for use in (lambda: group.split_by_count(size), lambda: GreenContext([group])):
        with pytest.raises(cuda_safe.ClosedError, match="split"):
            use()
    (smallest,), nothing = groups.pop().split_by_count(size)
    assert smallest.sm_count == size and nothing is None
    green, other = GreenContext(groups), GreenContext([smallest])
    array = DeviceArray.full(3, 1.5, "f4", stream=green.stream())
    assert array.copy_to_host().tolist() == [1.5] * 3
    # The device is in use as long as one of the groups exists.
    for last in (rest, other, green, array):
        with pytest.raises(cuda_safe.InvalidArgumentError, match="the tests"):
            device.sm_resource().split_by_count(size)
        last.close()
    device.sm_resource().split_by_count(size)


def test_a_group_is_split_into_sizes(device):
    since(12, 4)
    group, size = whole(device)
    if cuda_safe.driver_version() < (13, 1):
        with pytest.raises(cuda_safe.MissingFunctionError):
            group.split([size])
    else:
        (one, other), rest = group.split([2 * size, size])
        assert (one.sm_count, other.sm_count, rest.sm_count) == (2 * size, size, size)
        with pytest.raises(cuda_safe.ClosedError, match="split"):
            group.split([size])
        with pytest.raises(cuda_safe.InvalidArgumentError):
            one.split([size + 2], coscheduled=size)
        group = one
    assert GreenContext([group]).sm_count == group.sm_count


def test_a_failed_split_leaves_the_group_unchanged(device):
    since(12, 4)
    group, size = whole(device)
    both = {"ignore_coscheduling": True, "max_cluster": True}
    for split in (
        lambda: group.split_by_count(5 * size),
        lambda: group.split_by_count(size, 0),
        lambda: group.split_by_count(size, **both),
        lambda: group.split([]),
    ):
        with pytest.raises(cuda_safe.InvalidArgumentError):
            split()
    groups, rest = group.split_by_count(2 * size)
    assert [part.sm_count for part in groups] == [2 * size] * 2 and rest is None


def test_partitions_have_the_requested_sizes(device):
    since(12, 4)
    resource = device.sm_resource()
    ask = [resource.min_group, "25%", None] if cuda_safe.driver_version() >= (12, 5) else ["25%"]
    parts = resource.partition(ask, label="sizes")
    assert len(parts) == len(ask) and parts[0].sm_count >= 1
    assert sum(part.sm_count for part in parts) <= resource.sm_count
    del parts
    first, second = resource.partition(["equal", "equal"], label="halves")
    assert first.sm_count == second.sm_count > resource.sm_count // 4
    for wrong in (["half"], [0], []):
        with pytest.raises(cuda_safe.InvalidArgumentError):
            resource.partition(wrong, allow_overlap=True)


def green_contexts(device):
    size = max(device.sm_resource().min_group, device.sm_resource().group_multiple)
    groups, _ = device.sm_resource().split_by_count(size, 2, label="the tests")
    return [GreenContext([group]) for group in groups]


def test_an_event_of_a_green_context_follows_the_work_of_all_its_streams(device):
    """With the software driver, work runs as late as possible, so a missing wait would be detected."""
    since(12, 4)
    green, other = green_contexts(device)
    streams, reader = [green.stream(), green.stream()], other.stream()
    arrays = [DeviceArray.zeros(1000, "i4", stream=stream) for stream in streams]
    event = None
    for number in range(1, 10):
        for array in arrays:
            array.fill(number)
        event = green.record_event(event)
        assert isinstance(event, cuda_safe.Event)
        other.wait_event(event)
        for array in arrays:
            elsewhere = cuda_safe.from_cuda_array_interface(
                {**array.__cuda_array_interface__, "stream": reader.handle}, (array, reader)
            )
            assert (elsewhere.copy_to_host() == number).all()
    assert event.context == green.context
    given = cuda_safe.Event(device)
    assert green.record_event(given) is given
    given.synchronize()
    green.close()
    for use in (green.record_event, lambda: green.wait_event(given)):
        with pytest.raises(cuda_safe.ClosedError):
            use()


def test_an_event_of_a_context_follows_the_work_of_all_its_streams(device):
    since(12, 5)
    context, (green, other) = device.context, green_contexts(device)
    streams, reader = [context.stream(), green.stream()], other.stream()
    arrays = [DeviceArray.zeros(1000, "i4", stream=stream) for stream in streams]
    for number in range(1, 10):
        for array in arrays:
            array.fill(number)
        event = context.record_event()
        other.wait_event(event)
        for array in arrays:
            elsewhere = cuda_safe.from_cuda_array_interface(
                {**array.__cuda_array_interface__, "stream": reader.handle}, (array, reader)
            )
            assert (elsewhere.copy_to_host() == number).all()
        # In the other direction, the streams of the context wait.
        elsewhere.fill(-number)
        context.wait_event(other.record_event(event))
        assert (arrays[-1].copy_to_host() == -number).all()


def test_a_context_has_the_multiprocessors_of_its_device(device):
    since(12, 4)
    whole, its = device.sm_resource(), device.context.sm_resource()
    assert its.device == device and its.sm_count <= whole.sm_count
    assert (its.min_group, its.group_multiple) == (whole.min_group, whole.group_multiple)
    groups, _ = its.split_by_count(max(its.min_group, its.group_multiple), 1, label="the tests")
    assert GreenContext(groups).context == device.context
    with pytest.raises(cuda_safe.InvalidArgumentError, match="the tests"):
        whole.split_by_count(whole.min_group)
