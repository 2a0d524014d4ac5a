//! Queries and settings of contexts, streams, kernels and graphs.

use super::graphs::Drawn;
use super::{Held, LEN, Operations, Skip};
use cuda_safe::context::{CachePreference, Limit};
use cuda_safe::device::attribute;
use cuda_safe::module::attribute as of;
use cuda_safe::module::{Library, Linker};
use cuda_safe::stream::StreamFuture;
use cuda_safe::{Context, Device, Event, LaunchConfig, Module, Stream};

pub(super) const QUERIES: Operations = &[
    ("context", |s| {
        let context = s.context();
        let _ = (context.id(), context.device(), context.memory_info()?);
        let _ = (context.flags()?, context.api_version()?, context.stream_priorities()?);
        let _ = (context.limit(Limit::StackSize)?, context.cache_preference()?);
        context.enable_peer_access(&s.world.second)?;
        Ok(context.make_current()?.end()?)
    }),
    ("events of a context", |s| {
        let event = s.get::<Event>()?;
        match s.one_in(2) {
            true => s.context().record_event(&event)?,
            false => s.context().wait_event(&event)?,
        }
        Ok(())
    }),
    ("device", |s| {
        let device = s.context().device();
        let _ = (device.name()?, device.uuid()?, device.total_memory()?, device.ordinal());
        let _ = (Device::count()?, Device::all()?, device.compute_capability()?);
        let _ = (device.attribute(attribute::WARP_SIZE)?, device.primary_state()?);
        device.can_access_peer(&s.world.second.device())?;
        device.graph_memory()?;
        Ok(())
    }),
    ("created context", |s| {
        let context = Context::new(&s.context().device(), Default::default())?;
        s.put(context.stream()?);
        Ok(s.put(context))
    }),
    ("drop a created context", |s| Ok(drop(s.take::<Context>()?))),
    ("stream", |s| {
        let stream = s.get::<Stream>()?;
        let _ = (stream.priority()?, stream.id()?, stream.capture_status()?, stream.capture_id()?);
        let _ = (stream.is_blocking()?, stream.memory_sync_domain()?, stream.access_window()?);
        let _ = (stream.downgrade().upgrade(), stream.memory_sync_domain_map()?);
        stream.clear_access_window()?;
        Ok(stream.copy_attributes_from(&s.get()?)?)
    }),
    ("completion", |s| {
        let made = s.get::<Stream>()?.completion()?;
        Ok(s.put(made))
    }),
    ("drop a completion", |s| Ok(drop(s.take::<StreamFuture>()?))),
    ("default streams", |s| {
        let event = s.get::<Event>()?;
        let current = s.context().make_current()?;
        for stream in [current.legacy_stream(), current.per_thread_stream()] {
            stream.wait_event(&event)?;
            stream.launch_host_function(|| ())?;
            stream.record_event(&event)?;
            stream.is_complete()?;
        }
        Ok(())
    }),
    ("kernel", |s| {
        let kernel = s.world.kernel.kernel();
        let _ = (kernel.name(), kernel.parameters()?, kernel.as_raw());
        let _ = (kernel.attribute(of::MAX_THREADS_PER_BLOCK)?, kernel.is_loaded()?);
        kernel.set_cache_preference(CachePreference::Shared)?;
        let _ = (kernel.max_active_blocks(32, Default::default())?, kernel.load()?);
        let _ = kernel.suggested_block(Default::default())?;
        Ok(())
    }),
    ("new module", |s| Ok(s.put(Module::from_ptx(s.context(), super::VECTOR)?))),
    ("kernel of a module", |s| {
        let module = s.get::<Module>()?;
        let _ = (module.kernel_names()?, module.log(), module.context());
        Ok(s.put(module.kernel("scale")?))
    }),
    ("launch the kernel of a module", |s| {
        let kernel = s.get::<cuda_safe::Kernel>()?;
        let kernel = kernel.typed::<(&mut [u32], i32, i32, u32)>().map_err(|_| Skip)?;
        s.with(|_, held: &mut Held| {
            let stream = held.buffer.stream().clone();
            let arguments = (&mut held.buffer, 1, 0, LEN as u32);
            // SAFETY: the kernel reads and writes as many elements as the last argument says.
            Ok(unsafe { kernel.launch(&stream, LaunchConfig::linear(1, 32), arguments) }?)
        })
    }),
    ("drop a module", |s| Ok(drop((s.take::<Module>().ok(), s.take::<cuda_safe::Kernel>().ok())))),
    ("library", |s| {
        let library = Library::from_ptx(super::VECTOR)?;
        let _ = library.kernel_names()?;
        Ok(s.put(library.kernel(s.context(), "scale")?))
    }),
    ("linker", |s| {
        let mut linker = Linker::new(s.context())?;
        linker.add_ptx("vector", super::VECTOR)?;
        let linked = linker.complete()?;
        Ok(s.put(Module::from_linked(s.context(), &linked)?))
    }),
    ("graph", |s| {
        s.with(|_, drawn: &mut Drawn| {
            let last = *drawn.last().first().ok_or(Skip)?;
            let graph = drawn.graph()?;
            let _ = (graph.nodes()?, graph.roots()?, graph.edges()?, graph.node_type(last)?);
            let _ = (graph.dependencies(last)?, graph.dependents(last)?, graph.as_raw());
            let _ = (graph.node_event(last).is_ok(), graph.tools_id()?, graph.context());
            Ok(())
        })
    }),
    ("edges of a graph", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let count = drawn.nodes.len().max(1);
            let (from, to) = (s.below(count), s.below(count));
            let from = *drawn.nodes.get(from).ok_or(Skip)?;
            let to = *drawn.nodes.get(to).ok_or(Skip)?;
            match s.one_in(2) {
                true => drawn.graph()?.add_dependency(from, to)?,
                false => drawn.graph()?.remove_dependency(from, to)?,
            }
            Ok(())
        })
    }),
    ("upload", |s| {
        s.with(|s, drawn: &mut Drawn| {
            let running = drawn.executables.last().ok_or(Skip)?;
            let _ = (running.executable.flags()?, running.executable.take_panic().is_ok());
            Ok(running.executable.upload(&s.get()?)?)
        })
    }),
    ("release replaced objects", |s| {
        s.with(|_, drawn: &mut Drawn| {
            let running = drawn.executables.last_mut().ok_or(Skip)?;
            Ok(running.executable.release_replaced())
        })
    }),
    ("deferred releases", |_| {
        if cuda_safe::deferred_releases() > 0 {
            cuda_safe::attempt_deferred_releases();
        }
        Ok(())
    }),
];
