//! One request, in a process of its own: read it, do it, answer it, end.

use crate::{context::Context, ops, staying, trust, wire};
use atoll_launch_proto::{
    Envelope, Launcher, LauncherAnswer, LauncherReply, MAX_PROTOCOL, MIN_PROTOCOL, Request,
};
use atoll_types::{Error, Result};
use rustix::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// The exit status of a worker that shut everything down; the launcher then ends with it.
pub(crate) const SHUT_DOWN: i32 = 77;
/// The same, and the launcher deletes its volumes and images.
pub(crate) const PURGE: i32 = 78;
/// The exit status of a worker after which the launcher applies what [`staying`] stores.
pub(crate) const STAY: i32 = 79;

/// Serves one connection and returns the worker's exit status.
pub(crate) fn serve(context: &Context, mut stream: UnixStream) -> i32 {
    let request = match wire::read_request(&mut stream).and_then(accept) {
        Ok(request) => request,
        Err(error) => {
            wire::write_answer(&mut stream, &LauncherAnswer::Err(error));
            return 0;
        }
    };
    // The client may have gone while its request waited for a hanging launcher or for its turn: the container
    // would have no owner.
    if matches!(request, Request::Create(_)) && wire::is_gone(&stream) {
        return 0;
    }
    match request {
        Request::Create(create) => {
            let mut held = None;
            let made = ops::create(context, &create).map(|made| {
                let (status, redirected) = (Box::new(made.status), made.egress_sockets.redirected());
                held = made.held;
                (LauncherReply::Created { status, redirected }, made.egress_sockets.into_sockets())
            });
            with_descriptors(&mut stream, made);
            if held.is_some() {
                ops::hold(context, &mut stream, create.container);
            }
        }
        Request::Wait(container) => ops::wait(context, &mut stream, container),
        Request::Watch(container) => with_descriptors(&mut stream, ops::watch(context, container)),
        Request::Connect(container) => {
            let made = ops::connect(context, container);
            with_descriptors(&mut stream, made.map(|(reply, fd)| (reply, vec![fd])));
        }
        Request::Pause(container) => {
            let result = ops::pause(context, container);
            let paused = result.is_ok();
            wire::write_answer(&mut stream, &result.map(|()| LauncherReply::Done).into());
            // No client waits for this.
            if paused {
                drop(stream);
                ops::reclaim(context, container);
            }
        }
        Request::Sockets(asked) => {
            let made = ops::sockets(context, asked);
            with_descriptors(
                &mut stream,
                made.map(|fds| (LauncherReply::Sockets { count: asked.count }, fds)),
            );
        }
        Request::EgressSockets(container) => {
            let made = ops::egress_sockets(context, container);
            with_descriptors(
                &mut stream,
                made.map(|egress_sockets| {
                    (
                        LauncherReply::EgressSockets { redirected: egress_sockets.redirected() },
                        egress_sockets.into_sockets(),
                    )
                }),
            );
        }
        end @ (Request::Shutdown | Request::Purge) => {
            let result = ops::destroy_all(context);
            let code = match end {
                _ if result.is_err() => 0,
                Request::Purge => PURGE,
                _ => SHUT_DOWN,
            };
            wire::write_answer(&mut stream, &result.map(|()| LauncherReply::Done).into());
            return code;
        }
        Request::Stay { client_uids } => {
            let result = staying::remember(context, wire::peer_uid(&stream).ok(), &client_uids);
            wire::write_answer(&mut stream, &result.map(|()| LauncherReply::Done).into());
            return STAY;
        }
        request => wire::write_answer(&mut stream, &answer(context, request).into()),
    }
    0
}

fn with_descriptors(stream: &mut UnixStream, made: Result<(LauncherReply, Vec<OwnedFd>)>) {
    if let Err(error) = made.and_then(|(reply, fds)| wire::write_answer_with(stream, reply, &fds)) {
        wire::write_answer(stream, &LauncherAnswer::Err(error));
    }
}

fn accept(envelope: Envelope) -> Result<Request> {
    let Envelope { protocol, request } = envelope;
    if (MIN_PROTOCOL..=MAX_PROTOCOL).contains(&protocol) || matches!(request, Request::Hello) {
        return Ok(request);
    }
    Err(wire::not_spoken(protocol))
}

fn answer(context: &Context, request: Request) -> Result<LauncherReply> {
    match request {
        Request::Hello => Ok(LauncherReply::Hello(Launcher {
            release: env!("CARGO_PKG_VERSION").into(),
            min_protocol: MIN_PROTOCOL,
            max_protocol: MAX_PROTOCOL,
            ephemeral: context.options.ephemeral,
        })),
        Request::Destroy(container) => ops::destroy(context, container).map(|()| LauncherReply::Done),
        Request::Inspect(container) => {
            ops::inspect(context, container).map(|s| LauncherReply::Container(Box::new(s)))
        }
        Request::List => Ok(LauncherReply::Containers(ops::list(context))),
        Request::SetLimits(container, limits) => {
            ops::set_limits(context, container, &limits).map(|()| LauncherReply::Done)
        }
        Request::Claim(container, limits) => {
            ops::claim(context, container, &limits).map(|()| LauncherReply::Done)
        }
        Request::Current(container) => ops::current(context, container).map(LauncherReply::Current),
        Request::Unpause(container) => ops::unpause(context, container).map(|()| LauncherReply::Done),
        Request::ListVolumes => ops::list_volumes(context).map(LauncherReply::Volumes),
        Request::RemoveVolume(volume) => ops::remove_volume(context, volume).map(|()| LauncherReply::Done),
        Request::ResizeVolume(volume, bytes) => {
            ops::resize_volume(context, volume, bytes).map(|()| LauncherReply::Done)
        }
        Request::PutVolume(volume, bytes) => {
            ops::put_volume(context, volume, bytes).map(|()| LauncherReply::Done)
        }
        Request::InspectVolume(volume) => {
            ops::inspect_volume(context, volume).map(|one| LauncherReply::Volumes(vec![one]))
        }
        Request::Snapshot(asked) => {
            ops::snapshot(context, asked).map(|made| LauncherReply::Snapshots(vec![made]))
        }
        Request::ListSnapshots(volume) => ops::list_snapshots(context, volume).map(LauncherReply::Snapshots),
        Request::DeleteSnapshot(asked) => ops::delete_snapshot(context, asked).map(|()| LauncherReply::Done),
        Request::Rollback(asked) => ops::rollback(context, asked).map(|()| LauncherReply::Done),
        Request::RollbackInPlace(asked) => {
            ops::rollback_in_place(context, asked).map(|()| LauncherReply::Done)
        }
        Request::Fork(asked) => ops::fork(context, asked).map(|()| LauncherReply::Done),
        Request::Diff(asked) => ops::diff(context, asked),
        Request::SealImage(asked) => ops::seal(context, asked).map(|()| LauncherReply::Done),
        Request::VolumeFromImage(asked) => {
            ops::volume_from_image(context, asked).map(|()| LauncherReply::Done)
        }
        Request::RemoveImage(image) => ops::remove_image(context, image).map(|()| LauncherReply::Done),
        Request::ListImages => ops::list_images(context).map(LauncherReply::Images),
        Request::Report => ops::report(context).map(LauncherReply::Report),
        Request::Ports(container) => ops::ports(context, container).map(LauncherReply::Ports),
        Request::Trust(asked) => trust::set(context, &asked.certificate_pem).map(|()| LauncherReply::Done),
        Request::Usage(container) => {
            ops::usage(context, container).map(|one| LauncherReply::Usages(vec![one]))
        }
        Request::Usages => Ok(LauncherReply::Usages(ops::usages(context))),
        Request::Create(_)
        | Request::EgressSockets(_)
        | Request::Wait(_)
        | Request::Watch(_)
        | Request::Connect(_)
        | Request::Pause(_)
        | Request::Sockets(_)
        | Request::Stay { .. }
        | Request::Shutdown
        | Request::Purge => Err(Error::internal("this request is served elsewhere")),
    }
}
