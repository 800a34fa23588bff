//! Laws of the whole system: no thread waits for what another one will do later, and no resource is busy
//! for longer than time has passed.
