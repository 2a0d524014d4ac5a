//! The values of attributes of launches and streams as bytes.

use core::ffi::c_char;
use cuda_sys::{CUlaunchAttributeID as Id, CUlaunchAttributeValue};

/// Returns the bytes of a value. The padding in a field of the caller may be uninitialized. In the result it is zero,
/// so equal values have equal bytes.
pub(crate) fn bytes(id: Id, value: &CUlaunchAttributeValue) -> [c_char; 64] {
    let mut clean = CUlaunchAttributeValue::default();
    match id {
        Id::CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW => {
            // SAFETY: this field belongs to the attribute.
            let window = unsafe { value.accessPolicyWindow };
            clean.accessPolicyWindow.base_ptr = window.base_ptr;
            clean.accessPolicyWindow.num_bytes = window.num_bytes;
            clean.accessPolicyWindow.hitRatio = window.hitRatio;
            clean.accessPolicyWindow.hitProp = window.hitProp;
            clean.accessPolicyWindow.missProp = window.missProp;
        }
        Id::CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT => {
            // SAFETY: this field belongs to the attribute.
            let event = unsafe { value.launchCompletionEvent };
            clean.launchCompletionEvent.event = event.event;
            clean.launchCompletionEvent.flags = event.flags;
        }
        Id::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE => {
            // SAFETY: this field belongs to the attribute.
            let node = unsafe { value.deviceUpdatableKernelNode };
            clean.deviceUpdatableKernelNode.deviceUpdatable = node.deviceUpdatable;
            clean.deviceUpdatableKernelNode.devNode = node.devNode;
        }
        // The other fields have no padding.
        _ => clean = *value,
    }
    // SAFETY: every byte was zero and was then written without padding, or the caller passed a complete value.
    unsafe { clean.pad }
}
