//! Tests of the device models and their presets.

mod bit_errors;
mod closed_forms;
mod hostile;
mod peers;
mod presets;
mod registry;
