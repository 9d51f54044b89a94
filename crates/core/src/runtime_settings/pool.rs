//! How many sandboxes of an image are kept ready.

use super::{
    RuntimeSettings,
    value::{ValueRule, range_schema, text_schema},
};
use crate::bounds::IMAGE;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::BTreeMap;

/// How many of one image are kept ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
pub struct PoolSize {
    /// Without any demand.
    pub min: u32,
    /// With much demand.
    pub max: u32,
}

atoll_types::object_only!(PoolSize);

/// Images with a size of their own.
const IMAGES: usize = 1000;

impl PoolSize {
    /// The most of one image.
    pub const MOST: u32 = 1000;

    pub(super) fn rule() -> ValueRule<impl FnOnce(&BTreeMap<String, Self>) -> Result<(), String>> {
        let count = range_schema(&(0..=Self::MOST));
        let size = json!({
            "type": "object", "additionalProperties": false, "required": ["min", "max"],
            "properties": {"min": count, "max": count},
        });
        let schema = json!({
            "type": "object", "maxProperties": IMAGES, "propertyNames": text_schema(&IMAGE),
            "additionalProperties": size,
        });
        ValueRule { check: Self::check_all, schema }
    }

    fn check_all(sizes: &BTreeMap<String, Self>) -> Result<(), String> {
        if sizes.len() > IMAGES || !sizes.keys().all(|name| IMAGE.fits(name)) {
            return Err(format!("may have {IMAGES} names of 1 to 255 characters"));
        }
        match sizes.iter().find(|(_, size)| size.min > size.max || size.max > Self::MOST) {
            Some((name, _)) => {
                Err(format!("has a min in {name:?} above its max, or a max above {}", Self::MOST))
            }
            None => Ok(()),
        }
    }
}

impl RuntimeSettings {
    /// How many of an image are kept ready.
    pub(crate) fn pool_size(&self, image: &str) -> PoolSize {
        let usual = PoolSize { min: self.pool_min, max: self.pool_max };
        match self.warm_pool_enabled {
            true => self.pool_images.get(image).copied().unwrap_or(usual),
            false => PoolSize { min: 0, max: 0 },
        }
    }
}
