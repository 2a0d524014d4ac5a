//! How the driver and other libraries are found, loaded and initialized.

mod fork;
mod init;
mod install;
mod late_log;
mod library;
mod linker;
mod load_from;
mod lookup;
mod threads;
