//! Work queue resources. Unverified (from documentation).

use crate::api::prelude::*;
use crate::state::green::Queues;
use cuda_sys::{
    CUdevResource, CUdevResourceType as Type, CUdevWorkqueueConfigResource,
    CUdevWorkqueueConfigScope as Scope, CUdevWorkqueueResource, CudaVersion,
};

/// The default of `CUDA_DEVICE_MAX_CONNECTIONS`.
const CONNECTIONS: u32 = 8;

impl Queues {
    pub(crate) const USUAL: Self =
        Self::Own { limit: CONNECTIONS, scope: Scope::CU_WORKQUEUE_SCOPE_DEVICE_CTX.0 };
}

fn known(world: &World, kind: Type) -> bool {
    let kinds = [Type::CU_DEV_RESOURCE_TYPE_WORKQUEUE_CONFIG, Type::CU_DEV_RESOURCE_TYPE_WORKQUEUE];
    world.settings.profile.driver >= CudaVersion::new(13, 1) && kinds.contains(&kind)
}

/// Returns the work queue resource of a context or a device. `id` is the id of the context's queues, or
/// `None` for a device.
pub(crate) fn resource(
    world: &World,
    device: usize,
    queues: Queues,
    id: Option<u64>,
    kind: Type,
) -> Answer<CUdevResource> {
    fail_if(!known(world, kind), CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE)?;
    let mut resource = CUdevResource { type_: kind, ..CUdevResource::default() };
    if kind == Type::CU_DEV_RESOURCE_TYPE_WORKQUEUE {
        // Only contexts have queues. A device only has a configuration.
        let id = id.ok_or(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE)?;
        let mut reserved = [0; 40];
        reserved[..8].copy_from_slice(&id.to_ne_bytes());
        resource.__bindgen_anon_1.wq = CUdevWorkqueueResource { reserved };
        return Ok(resource);
    }
    let (limit, scope) = match queues {
        Queues::Own { limit, scope } => (limit, scope),
        Queues::Of(_) => (CONNECTIONS, Scope::CU_WORKQUEUE_SCOPE_DEVICE_CTX.0),
    };
    resource.__bindgen_anon_1.wqConfig = CUdevWorkqueueConfigResource {
        device: i32::try_from(device).unwrap_or(0),
        wqConcurrencyLimit: limit,
        sharingScope: Scope(scope),
    };
    Ok(resource)
}

/// Returns the queues that a work queue resource describes, or `None` for other types of resources.
pub(crate) fn queues(world: &World, resource: &CUdevResource) -> Option<Answer<Queues>> {
    if !known(world, resource.type_) {
        return None;
    }
    if resource.type_ == Type::CU_DEV_RESOURCE_TYPE_WORKQUEUE {
        // SAFETY: this union member is an array of bytes, so all bit patterns are valid.
        let bytes = unsafe { resource.__bindgen_anon_1.wq }.reserved;
        let [a, b, c, d, e, f, g, h, ..] = bytes;
        return Some(Ok(Queues::Of(u64::from_ne_bytes([a, b, c, d, e, f, g, h]))));
    }
    // SAFETY: this union member contains only integers, so all bit patterns are valid.
    let config = unsafe { resource.__bindgen_anon_1.wqConfig };
    let scope = config.sharingScope;
    if config.wqConcurrencyLimit == 0 || scope.0 > Scope::CU_WORKQUEUE_SCOPE_GREEN_CTX_BALANCED.0 {
        return Some(Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION));
    }
    Some(Ok(Queues::Own { limit: config.wqConcurrencyLimit, scope: scope.0 }))
}
