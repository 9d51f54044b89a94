//! Steps that builds are about to begin with. A build finds a kept step long before it copies the step's image; meanwhile
//! another build may replace the step or remove it as an old one.
//!
//! A build pins the image and then looks for its record again; a removal takes the record out and then looks for pins,
//! and puts the record back where there is one. So of the two, whichever order they come in, one sees the other.

use atoll_types::ImageId;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// The images that are pinned, with how many builds do.
#[derive(Default)]
pub(in crate::images) struct StepPins(Mutex<HashMap<ImageId, usize>>);

/// One build's hold on an image.
pub(super) struct StepPin {
    pins: Arc<StepPins>,
    image: ImageId,
}

impl StepPins {
    pub(super) fn pin(self: &Arc<Self>, image: ImageId) -> StepPin {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(image).or_default() += 1;
        StepPin { pins: Arc::clone(self), image }
    }

    pub(super) fn is_pinned(&self, image: ImageId) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(&image)
    }
}

impl Drop for StepPin {
    fn drop(&mut self) {
        let mut all = self.pins.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = all.get_mut(&self.image) {
            *count -= 1;
            if *count == 0 {
                all.remove(&self.image);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_pinned_until_the_last_build_drops_it() {
        let pins = Arc::new(StepPins::default());
        let (image, other) = (ImageId::random(), ImageId::random());
        let (first, second) = (pins.pin(image), pins.pin(image));
        drop(first);
        assert!(pins.is_pinned(image) && !pins.is_pinned(other));
        drop(second);
        assert!(!pins.is_pinned(image));
    }
}
