//! Memory that torch did not allocate (NumPy arrays, shared memory). Each `from_numpy` makes a storage of its own over
//! the same bytes. They count once, for as long as any of these storages lives.

use remat_core::{DeviceId, TensorId};
use rustc_hash::FxHashMap;

/// Bytes that several storages may lie over.
pub struct Region {
    /// The constant that stands for the bytes in the engine.
    pub tensor: TensorId,
    /// Its size.
    pub bytes: u64,
    /// The device that holds them.
    pub device: DeviceId,
    storages: u32,
}

/// Address and size of a region.
pub type Place = (usize, u64);

/// Whether two regions have bytes in common.
pub fn overlap(a: Place, b: Place) -> bool {
    (a.0 as u64) < b.0 as u64 + b.1 && (b.0 as u64) < a.0 as u64 + a.1
}

/// The regions in use.
#[derive(Default)]
pub struct Outside {
    regions: FxHashMap<Place, Region>,
}

impl Outside {
    /// Notes one more storage over these very bytes. Returns `false` if they are not counted yet.
    pub fn share(&mut self, place: Place) -> bool {
        match self.regions.get_mut(&place) {
            Some(region) => {
                region.storages += 1;
                true
            }
            None => false,
        }
    }

    /// Notes the first storage over these bytes.
    pub fn insert(&mut self, place: Place, tensor: TensorId, device: DeviceId) {
        let storages = 1;
        let region = Region {
            tensor,
            bytes: place.1,
            device,
            storages,
        };
        self.regions.insert(place, region);
    }

    /// Notes one storage less over these bytes. Returns the region if that was the last.
    pub fn leave(&mut self, place: Place) -> Option<Region> {
        let region = self.regions.get_mut(&place)?;
        region.storages -= 1;
        if region.storages > 0 {
            return None;
        }
        self.regions.remove(&place)
    }
}
