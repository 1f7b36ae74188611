//! The recorder, told of the memory of storages.

use remat_core::{DeviceId, StorageId};

use super::blocks::{LiveId, MemoryKind};
use super::event::Event;
use super::places::{NOWHERE, Phase};
use super::recorder::Recorder;

impl Recorder {
    /// A live storage got its memory: the op that ran last made it.
    pub fn born(&mut self, live: LiveId, bytes: u64, device: DeviceId) {
        let kind = match self.phase {
            Phase::Forward => MemoryKind::Activation,
            Phase::Backward | Phase::Update => MemoryKind::Temporary,
        };
        let block = self.blocks.born(live, bytes, device, kind, self.place);
        let at = self.at;
        self.detail.events.push(Event::Born { at, block });
    }

    /// No op of the run made the storage that was born last. `outside`: nor did torch allocate its memory, which is
    /// counted [apart](Self::outside).
    pub fn not_made(&mut self, live: LiveId, outside: bool) {
        self.now += 1;
        let now = self.now;
        let Some(id) = self.blocks.of(live) else {
            return;
        };
        let block = &mut self.blocks.all[id as usize];
        (block.kind, block.place) = (MemoryKind::Other, NOWHERE);
        if outside {
            block.bytes = 0;
        }
        if let Some(Event::Born { at, block }) = self.detail.events.last_mut() {
            if *block == id {
                *at = now;
            }
        }
    }

    /// So many bytes that torch did not allocate came to be used, or are used no more.
    pub fn outside(&mut self, device: DeviceId, bytes: i64) {
        if device != self.device {
            return;
        }
        self.outside_now += bytes;
        self.now += 1;
        let at = self.now;
        self.detail.events.push(Event::Outside { at, bytes });
    }

    /// A live storage died.
    pub fn died(&mut self, live: LiveId) {
        if let Some(block) = self.blocks.died(live) {
            let at = self.now;
            self.detail.events.push(Event::Died { at, block });
        }
    }

    /// A live storage lost its bytes.
    pub fn evicted(&mut self, live: LiveId) {
        let at = self.tick();
        if let Some(id) = self.blocks.of(live) {
            let block = &mut self.blocks.all[id as usize];
            block.present = false;
            let cost = self.places.cost(block.place);
            cost.evictions += 1;
            cost.evicted += block.bytes;
            self.detail.events.push(Event::Evicted { at, block: id });
        }
    }

    /// A live storage got its bytes back: the replay that runs made them.
    pub fn returned(&mut self, live: LiveId) {
        if let Some(id) = self.blocks.of(live) {
            let block = &mut self.blocks.all[id as usize];
            block.present = true;
            let (place, bytes) = (block.place, block.bytes);
            self.places.cost(place).returned += bytes;
            let at = self.replay_began();
            self.detail.events.push(Event::Returned { at, block: id });
        }
    }

    fn replay_began(&self) -> u64 {
        let running = self.replay.and_then(|at| self.detail.events.get(at));
        running.map_or(self.now, Event::at)
    }

    /// A replay made a storage that the program does not hold.
    pub fn scratch(&mut self, sid: StorageId, bytes: u64, device: DeviceId) {
        let place = match self.replay.and_then(|at| self.detail.events.get(at)) {
            Some(Event::Replay { place, .. }) => *place,
            _ => NOWHERE,
        };
        self.places.cost(place).returned += bytes;
        let block = self.blocks.scratch(sid, bytes, device, place);
        let at = self.replay_began();
        self.detail.events.push(Event::Born { at, block });
    }

    /// That storage is needed no more.
    pub fn scratch_gone(&mut self, sid: StorageId) {
        if let Some(block) = self.blocks.scratch_gone(sid) {
            let at = self.now;
            self.detail.events.push(Event::Died { at, block });
        }
    }

    /// The use of a live storage, as it turns out.
    pub fn note_kind(&mut self, live: LiveId, kind: MemoryKind) {
        if let Some(id) = self.blocks.of(live) {
            self.blocks.all[id as usize].kind = kind;
        }
    }

    /// The budget of this device is reported from here on.
    pub fn set_device(&mut self, device: DeviceId) {
        self.device = device;
    }
}
