//! What each request does. Every operation may be repeated, and may be cut off at any line: what it
//! leaves is either whole or freed by the next destroy or start.

mod create;
mod destroy;
mod egress_sockets;
mod images;
mod inspect;
mod limits;
mod pause;
mod ports;
mod snapshots;
mod usage;
mod volumes;

pub(crate) use create::create;
pub(crate) use destroy::{destroy, destroy_all, free, hold};
pub(crate) use egress_sockets::egress_sockets;
pub(crate) use images::{list_images, remove_image, seal, volume_from_image};
pub(crate) use inspect::{connect, inspect, list, report, wait, watch};
pub(crate) use limits::{claim, current, set_limits};
pub(crate) use pause::{complete_rollback, pause, reclaim, thaw_abandoned, unpause};
pub(crate) use ports::{ports, sockets};
pub(crate) use snapshots::{
    delete_snapshot, diff, fork, list_snapshots, rollback, rollback_in_place, snapshot,
};
pub(crate) use usage::{usage, usages};
pub(crate) use volumes::{inspect_volume, list_volumes, put_volume, remove_volume, resize_volume};
