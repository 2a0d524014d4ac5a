//! Runs the forms on a GPU.

use std::fs::OpenOptions;
use std::io::Write;

use cuda_safe::{Context, Device, DeviceBuffer, Error, LaunchConfig, Module, Stream};

use crate::create::Created;
use crate::data::{self, Outcome, Record, Recording};
use crate::form::Form;
use crate::kernel;
use crate::tensor::Mapped;

/// The start of the error of a form that the compiler accepts, and that fails when it runs.
pub(crate) const RUN: &str = "run: ";
/// The number of kernels of a module. Loading a module costs more than running its kernels.
const TOGETHER: usize = 32;

/// Adds the results of forms to a file. Forms that the file has are skipped, so that a recording goes on
/// after a fault, which ends the process's use of the GPU.
///
/// # Errors
/// The file cannot be read or written; an error of the driver, with the form.
pub(crate) fn record(forms: &[Form], file: &str, filter: &str) -> Result<(), String> {
    let device = Device::get(0).map_err(text)?;
    let context = Context::primary(&device).map_err(text)?;
    let stream = context.stream().map_err(text)?;
    let known = match std::fs::read(file) {
        Ok(bytes) => data::read(&bytes)?,
        Err(_) => Recording::default(),
    };
    let mut output = OpenOptions::new().create(true).append(true).open(file).map_err(text)?;
    if known.origin.is_empty() {
        let driver = cuda_safe::version().map_err(text)?;
        let name = device.name().map_err(text)?;
        writeln!(output, "{name}, driver for CUDA {driver}").map_err(text)?;
    }
    let wanted =
        |form: &Form| form.name.contains(filter) && !known.records.contains_key(&form.name);
    let wanted: Vec<_> = forms.iter().enumerate().filter(|(_, form)| wanted(form)).collect();
    for chunk in wanted.chunks(TOGETHER) {
        println!("{} to {}", chunk[0].1.name, chunk[chunk.len() - 1].1.name);
        load(&context, chunk, &mut |number, form, module| {
            let (_, input, hash) = data::operands(form);
            let outcome = match module {
                Ok(module) => {
                    run(&context, &stream, module, number, form, &input).map(Outcome::Results)
                }
                Err(error) => Ok(Outcome::Rejected(error.to_owned())),
            };
            let fault = outcome.as_ref().err().cloned();
            let outcome =
                outcome.unwrap_or_else(|(_, error)| Outcome::Rejected(format!("{RUN}{error}")));
            let bytes = data::write(&form.name, &Record { hash, outcome });
            output.write_all(&bytes).map_err(text)?;
            match fault {
                Some((true, error)) => Err(format!("{}: {error}", form.name)),
                Some((false, error)) => {
                    println!("{}: {error}", form.name);
                    Ok(())
                }
                None => Ok(()),
            }
        })?;
    }
    Ok(())
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// Loads forms as one module and calls `each` for each form. If the driver rejects the module, the two
/// halves are tried, down to the forms that are the reason.
fn load(
    context: &Context,
    forms: &[(usize, &Form)],
    each: &mut impl FnMut(usize, &Form, Result<&Module, &str>) -> Result<(), String>,
) -> Result<(), String> {
    match Module::from_ptx(context, &kernel::module(forms.iter().copied())) {
        Ok(module) => forms.iter().try_for_each(|(number, form)| each(*number, form, Ok(&module))),
        Err(error) if !error.is_fatal() => {
            if let [(number, form)] = forms {
                let why = match &error {
                    Error::Compile(error) => first_error(&error.log),
                    error => error.to_string(),
                };
                return each(*number, form, Err(&why));
            }
            let (first, second) = forms.split_at(forms.len() / 2);
            load(context, first, each)?;
            load(context, second, each)
        }
        Err(error) => Err(format!("{}: {error}", forms[0].1.name)),
    }
}

/// Returns the first error of a compiler's log, without the place.
fn first_error(log: &str) -> String {
    let line = log.lines().find(|line| line.contains("error") || line.contains("fatal"));
    let line = line.or(log.lines().next()).unwrap_or("no log");
    let message = line.split_once(": ").map_or(line, |(_, message)| message);
    message.trim().replace('\t', " ")
}

/// Runs a kernel and returns the bytes of its record. An error says whether it is fatal.
fn run(
    context: &Context,
    stream: &Stream,
    module: &Module,
    number: usize,
    form: &Form,
    input: &[u8],
) -> Result<Vec<u8>, (bool, String)> {
    let failed = |error: Error| (error.is_fatal(), error.to_string());
    let refused = |error: String| (false, error);
    let object = form.object.as_ref().map(|object| Created::new(context, object));
    let object = object.transpose().map_err(refused)?;
    let tensor = form.tensor.as_ref().map(|tensor| Mapped::new(context, tensor));
    let tensor = tensor.transpose().map_err(refused)?;
    let things = (object.as_ref(), tensor.as_ref());
    let memory = launch(stream, module, number, form, input, things).map_err(failed)?;
    let mut bytes = data::pack(form, &memory);
    if let Some(surface) = object.filter(|_| form.is_surface()) {
        bytes.extend(surface.read().map_err(refused)?);
    }
    if let Some(tensor) = tensor.filter(|_| form.written() != 0) {
        bytes.extend(tensor.read().map_err(refused)?);
    }
    Ok(bytes)
}

/// Launches a kernel and returns the memory of its results.
fn launch(
    stream: &Stream,
    module: &Module,
    number: usize,
    form: &Form,
    input: &[u8],
    (object, tensor): (Option<&Created>, Option<&Mapped>),
) -> Result<Vec<u8>, Error> {
    let threads = kernel::threads(form, input);
    let shape = kernel::shape(form, threads);
    let kernel = module.kernel(&kernel::name(number))?;
    // A form without operands reads no memory.
    let padded = if input.is_empty() { &[0; 8] } else { input };
    let operands = DeviceBuffer::from_slice(stream, padded)?;
    let mut results = DeviceBuffer::<u8>::zeroed(stream, 8 * form.results.len() * threads)?;
    let mut launch = kernel.launch_builder(stream);
    launch.arg(&operands).arg(&mut results);
    if let Some(object) = object {
        launch.arg(object.handle);
    } else if let Some(tensor) = tensor {
        launch.arg_bytes(&tensor.map);
    } else if kernel::takes_more(form) {
        for value in kernel::MORE_VALUES {
            launch.arg_bytes(value);
        }
    }
    let config = LaunchConfig::new(shape.grid, shape.block);
    // SAFETY: each thread of the kernel reads 8 bytes for each operand of its row and writes 8 bytes for
    // each result, and the buffers have as many rows as there are threads.
    unsafe { launch.launch(config) }?;
    drop(launch);
    results.to_vec()
}
