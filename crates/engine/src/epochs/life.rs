//! How epochs begin and end: with the policy, with the volume, and with the disk.

use super::apply::apply_all;
use super::journal::{is_void_alone, state_or_void};
use super::{Adopted, Epochs, Lacks, Stage};
use crate::Result;
use crate::core::{Extents, Upkeep};
use crate::devices::Member;
use braid_base::{Bytes, DeviceId};
use braid_format::epoch_journal::{STATE_PAGES, State, StatePage};
use braid_policy::Origin;
use braid_runtime::{Device, Runtime};

impl<R: Runtime, D: Device> Upkeep<R, D> {
    /// Ends the last epoch and applies the journal, at a shutdown. Only epochs write to the image. The commit
    /// before the epoch makes the SSDs as new as the image. If the epoch cannot end, the disk keeps its
    /// earlier state.
    pub async fn end_last_epoch(&self) {
        let Some(epochs) = self.extents.active_epochs() else { return };
        let ended = async {
            if epochs.stage.get() == Stage::Noted && epochs.lacks.borrow().known() > Bytes::ZERO {
                self.durable.commit(Origin::Background).await?;
                self.extents.read_unreadable(epochs).await?;
                if self.extents.are_epochs_wanted() {
                    self.extents.end_epoch(epochs).await?;
                }
            }
            match self.extents.are_epochs_wanted() {
                true => self.drain_journal(epochs).await,
                false => Ok(()),
            }
        };
        if let Err(error) = ended.await {
            tracing::error!(%error, "the image on the disk is unchanged: its last epoch could not end");
        }
    }
}

impl<R: Runtime, D: Device> Extents<R, D> {
    /// Determines the state of the image at an opening, before anything changes. If the disk's state cannot
    /// be determined, the disk is excluded, provided that the volume has all data elsewhere. `adopted`: this
    /// opening has made the disk the volume, and has written the map. `repair`: damaged extents are given up.
    pub async fn open_epochs(&self, adopted: Option<Adopted>, repair: bool) -> Result<()> {
        let Some(epochs) = &self.epochs else { return Ok(()) };
        if !self.store.member(epochs.device()).is_written() {
            return Ok(());
        }
        match self.open_image(epochs, adopted, repair).await {
            Ok(()) => Ok(()),
            Err(error) => self.durable.give_up(epochs.device(), error).await,
        }
    }

    async fn open_image(&self, epochs: &Epochs, adopted: Option<Adopted>, repair: bool) -> Result<()> {
        let member = self.store.member(epochs.device());
        let superblock = self.store.devices.superblock().clone();
        let mut page = state_or_void(member, &epochs.place, &superblock).await?;
        epochs.take_over_page(page);
        if page.run.segments > 0 && self.open_recovered(epochs, page, adopted, repair).await? {
            return Ok(());
        }
        self.forget_recovery().await?;
        // If a device is lacking, guests may have changed data in the image: no older journal may be applied
        // over their changes.
        let is_whole =
            !self.store.devices.iter().any(Member::is_lacking) && !self.store.has_home_in_image(epochs);
        if is_whole {
            let applied = apply_all(&self.rt, member, &epochs.place, &self.store.shape, &mut page).await;
            epochs.take_over_page(page);
            if let Err(error) = applied {
                // The volume has all data elsewhere.
                tracing::error!(%error, "the disk alone is no longer an image: the image is being rebuilt");
                self.void_image(epochs).await?;
            }
        }
        self.have_both_say_void(epochs).await?;
        if !is_whole || !epochs.is_image() || !self.are_epochs_wanted() || member.lacks_all() {
            self.void_image(epochs).await?;
            if self.are_epochs_wanted() {
                self.begin_epochs(epochs).await;
            }
            return Ok(());
        }
        let mut lacks = epochs.lacks.borrow_mut();
        self.store.state.borrow().behind.ranges().iter().for_each(|range| lacks.unknown.insert(range));
        epochs.stage.set(Stage::Compared);
        epochs.active.set(true);
        self.store.state.borrow_mut().behind.end_undecided();
        Ok(())
    }

    /// Starts recording all changes. Ranges that the image lacks are unknown until a comparison, which needs
    /// an image without other writers. The comparison itself waits for writers with an extent's lock. This
    /// method waits for all other jobs.
    pub(super) async fn begin_epochs(&self, epochs: &Epochs) {
        epochs.lacks.borrow_mut().unknown.insert(Bytes::ZERO..self.store.shape.image_len());
        epochs.stage.set(Stage::Void);
        epochs.active.set(true);
        self.store.state.borrow_mut().behind.end_undecided();
        epochs.event.wait_for(|| (epochs.in_place.get() == 0).then_some(())).await;
    }

    /// Ends epochs. From now on the image may be written like any other copy, and must not pass for a state
    /// of the volume.
    pub(super) async fn stop_epochs(&self, epochs: &Epochs) -> Result<()> {
        match self.store.member(epochs.device()).is_current() {
            true => self.alone(epochs, self.void_image(epochs)).await?,
            false => epochs.event.wait_for(|| (!epochs.applying.get()).then_some(())).await,
        }
        epochs.active.set(false);
        epochs.given_up.set(epochs.given_up.get() + 1);
        *epochs.lacks.borrow_mut() = Lacks::default();
        epochs.captured.borrow_mut().clear();
        epochs.unreadable.take();
        // Ranges that are behind were waiting for an epoch; now a resync copies these ranges.
        self.store.state.borrow_mut().behind.end_deferring();
        epochs.event.notify();
        Ok(())
    }

    /// Makes the image void, durably: other tasks may write to the image. The journal is not needed for this.
    /// Ranges that are missing in place count as behind, and are copied from the SSDs. No other task may
    /// apply segments meanwhile.
    pub(super) async fn void_image(&self, epochs: &Epochs) -> Result<()> {
        if epochs.disk.get().state == State::Void {
            return self.have_both_say_void(epochs).await;
        }
        self.say_void(epochs).await?;
        self.have_both_say_void(epochs).await?;
        epochs.take_over_page(epochs.disk.get());
        let mut lacks = epochs.lacks.borrow_mut();
        let journaled = std::mem::take(&mut lacks.journaled);
        journaled.ranges().for_each(|range| lacks.unknown.insert(range));
        Ok(())
    }

    /// Makes both state pages say "void" if the newest page does. With a single void page, the other page
    /// would count again if the void page were lost.
    async fn have_both_say_void(&self, epochs: &Epochs) -> Result<()> {
        let member = self.store.member(epochs.device());
        for _ in 0..STATE_PAGES {
            if is_void_alone(member, &epochs.place, &epochs.disk.get()).await {
                self.say_void(epochs).await?;
            }
        }
        Ok(())
    }

    /// Writes "void" to the next state page. If the page cannot be written and the volume cannot continue
    /// without the disk, only the other page says "void".
    async fn say_void(&self, epochs: &Epochs) -> Result<()> {
        let void = |page: StatePage| StatePage { state: State::Void, run: page.run.emptied(), ..page };
        let Err(error) = self.set_disk(epochs, void).await else { return Ok(()) };
        if self.durable.survives(epochs.device()) {
            return Err(error);
        }
        tracing::warn!(
            %error,
            "one of the two state pages of the image cannot be written: the other page counts"
        );
        let page = epochs.disk.get();
        epochs.disk.set(StatePage { sequence: page.sequence + 1, ..page });
        self.set_disk(epochs, void).await
    }

    /// Makes the image void on a returned device, before the device is resynchronised.
    pub async fn void_returned(&self, device: DeviceId) -> Result<()> {
        let Some(epochs) = self.epochs.as_ref().filter(|epochs| epochs.device() == device) else {
            return Ok(());
        };
        let superblock = self.store.devices.superblock().clone();
        epochs.take_over_page(state_or_void(self.store.member(device), &epochs.place, &superblock).await?);
        self.void_image(epochs).await?;
        if self.is_recovering() {
            return Ok(());
        }
        self.forget_recovery().await
    }
}

impl Epochs {
    /// Takes over a state page. No segments of its run are known; once the run is empty, the next segment
    /// lies at the start of the run.
    fn take_over_page(&self, page: StatePage) {
        self.disk.set(page);
        self.segments.borrow_mut().clear();
        self.next_segment.set(page.run.at);
    }
}
