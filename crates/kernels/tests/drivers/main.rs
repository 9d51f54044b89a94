//! The drivers in real interpreters. One program, so that it links once.

mod bash;
mod harness;
mod node;
mod pipes;
mod python;
mod r;
