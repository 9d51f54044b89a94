//! `sandbox.v1.SandboxService` over gRPC and gRPC-Web, with reflection and health. Calls are parsed into operations of the
//! core and their results are rendered; nothing is decided here. A session is a sandbox with a label.
//!
//! `gen/` is written from `proto/sandbox/v1/sandbox.proto` by this crate's test (`ATOLL_BLESS=1`), so that no build
//! needs a protocol compiler.

mod exec;
mod files;
mod health;
mod service;
mod sessions;
mod settings;
mod status;
mod web;

/// The generated messages and services.
#[allow(unreachable_pub, clippy::all)]
#[rustfmt::skip]
pub mod v1 {
    include!("gen/sandbox.v1.rs");
}

pub use sessions::LABEL as SESSION_LABEL;
pub use settings::GrpcSettings;

use atoll_http::{HttpContext, LARGEST_BODY, LARGEST_CALL, Mount};
use atoll_types::{Error, Result};
use axum::{Router, middleware};
use health::ServerHealth;
use service::Service;
use std::sync::Arc;
use tonic_health::pb::health_server::HealthServer;
use tonic_reflection::server::Builder;
use tonic_web::GrpcWebLayer;
use tower::Layer;
use v1::sandbox_service_server::SandboxServiceServer;

/// The messages and services, for reflection.
const DESCRIPTORS: &[u8] = include_bytes!("gen/sandbox.v1.bin");

/// The largest message of calls that need no key: of names alone.
const LARGEST_OPEN: usize = 4 << 10;

/// Everything that the listener of gRPC serves. Health and reflection need no key: they tell what `/health` and
/// `/docs` tell.
pub fn router(context: &HttpContext, settings: GrpcSettings) -> Result<Router> {
    let web = GrpcWebLayer::new();
    let service = Service::new(context.core.clone(), Arc::new(settings));
    let service = Arc::new(service);
    let taking = |most| {
        let service = SandboxServiceServer::from_arc(Arc::clone(&service)).max_decoding_message_size(most);
        web::HoldAnswer(web.layer(service))
    };
    let health =
        HealthServer::new(ServerHealth(context.core.clone())).max_decoding_message_size(LARGEST_OPEN);
    let describe = || {
        Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let broken = |error: tonic_reflection::server::Error| Error::internal(format!("reflection: {error}"));
    let (reflection, old_reflection) =
        (describe().build_v1().map_err(broken)?, describe().build_v1alpha().map_err(broken)?);
    let reflection = reflection.max_decoding_message_size(LARGEST_OPEN);
    let old_reflection = old_reflection.max_decoding_message_size(LARGEST_OPEN);
    let mounts = vec![
        Mount::new("/sandbox.v1.SandboxService/WriteFile", "grpc", taking(LARGEST_CALL)),
        Mount::new("/sandbox.v1.SandboxService/{method}", "grpc", taking(LARGEST_BODY)),
        // Watchers, which stay, take no place from checks.
        Mount::new("/grpc.health.v1.Health/Watch", "grpc", web.layer(health.clone())).open(),
        Mount::new("/grpc.health.v1.Health/{method}", "grpc", web.layer(health)).open(),
        Mount::new("/grpc.reflection.v1.ServerReflection/{method}", "grpc", web.layer(reflection)).open(),
        Mount::new("/grpc.reflection.v1alpha.ServerReflection/{method}", "grpc", web.layer(old_reflection))
            .open(),
    ];
    let mounts = mounts.into_iter().map(|mount| mount.refusing(status::refuse)).collect();
    let origins = Arc::clone(&context.origins);
    Ok(atoll_http::router(context, Router::new(), mounts, |router| {
        router.layer(middleware::from_fn_with_state(origins, web::check_page))
    }))
}
