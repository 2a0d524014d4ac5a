//! The feature `tracing`: entries of the driver's log become events.

mod common;

use common::child::in_child;
use cuda_safe::Device;
use cuda_safe::process::logs::LogCallback;
use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// Collects the target, the level and the text of each event.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<(String, Level, String)>>>);

impl Subscriber for Collector {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let metadata = event.metadata();
        let found = (metadata.target().to_owned(), *metadata.level(), text.0);
        self.0.lock().expect("no panic").push(found);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_failed_call_becomes_an_event() {
    in_child(&[], || {
        or_skip!(common::gpu());
        or_skip!(common::since(12, 9));
        let collector = Collector::default();
        tracing::subscriber::with_default(collector.clone(), || {
            let callback = LogCallback::to_tracing().expect("registered");
            Device::by_pci_bus_id("no bus").expect_err("no device");
            drop(callback);
            Device::by_pci_bus_id("no bus").expect_err("no device");
        });
        let events = collector.0.lock().expect("no panic");
        let last = events.last().expect("an event");
        assert_eq!((last.0.as_str(), last.1), ("cuda", Level::ERROR));
        assert!(last.2.contains("from cuDeviceGetByPCIBusId"), "{events:?}");
        let returned = events.iter().filter(|its| its.2.contains("Returning"));
        assert_eq!(returned.count(), 1, "{events:?}");
    });
}
