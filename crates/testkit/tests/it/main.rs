//! Tests of the testkit: the faulty device, its crash images, the reference model, seeds.

mod crash;
mod device;
mod model;
mod seeds;
