//! Planted bugs: a test campaign is worth something only if it finds them.
//!
//! In a release build [`planted`] is the constant `false`, and the compiler removes every planted bug. In a
//! build with debug assertions, a test (`crates/sim/tests/planted`) switches on one bug at a time for its
//! thread, and must find the bug. Each place in the engine reads `if planted(Bug::…)`, and behaves there as
//! after a plausible mistake of a programmer.

#[cfg(debug_assertions)]
use std::cell::Cell;

/// A planted bug. Each variant describes the wrong behaviour of the engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bug {
    /// A guest's flush commits the journal, but flushes no device that holds data.
    FlushSkipped,
    /// The record of a change is durable before the data in the record.
    RecordBeforeData,
    /// A batch of the journal is written, but not flushed.
    JournalNotFlushed,
    /// A failed flush is tried again, and the later success hides the loss.
    FailedFlushForgotten,
    /// The journal forgets before the map pages are durable.
    TailMovedEarly,
    /// The summary of the map names groups of pages before the pages are durable.
    SummaryBeforeGroups,
    /// Undecided data after a crash passes for decided, but is in one copy only.
    UndecidedNotCopied,
    /// Undecided data after a crash is read from one copy, and stays undecided.
    UndecidedRead,
    /// After a shutdown with undecided spans, the copies in these spans pass for equal.
    UndecidedClosed,
    /// With two required copies, a page is overwritten in place without an earlier write elsewhere.
    PageWrittenOnce,
    /// A checkpoint writes no page of the cache tables.
    CacheTableNotWritten,
    /// A checkpoint does not write the page of the cache table that a dirty copy has left.
    LeftCacheEntryKept,
    /// A page of the cache table shows dirty copies that are not in the journal yet.
    CachePageAheadOfJournal,
    /// Clean copies in dirty spans are trusted after a crash.
    CleanExtrasTrusted,
    /// A checkpoint does not write pages of the cache tables in which only clean copies have changed.
    CleanExtrasNotSaved,
    /// Clean cached copies that recovery forgets are still in the cache table when the volume serves.
    ForgottenExtrasLeft,
    /// A promotion does not notice that a guest wrote between the read and the promotion.
    OlderBytesPromoted,
    /// A write to a block with a clean cached copy does not wait until the journal records that the span may
    /// differ.
    ExtraIntentSkipped,
    /// A write ignores a clean cached copy whose removal is not in the journal yet.
    GoneExtraForgotten,
    /// A slot is free before the record that freed the slot is durable.
    SlotReusedEarly,
    /// The block slot of a dirty cached copy is free before the record that freed the block slot is durable.
    BlockReusedEarly,
    /// As [`Bug::BlockReusedEarly`], for the block slot of a clean cached copy.
    CleanBlockReusedEarly,
    /// A dirty cached copy is recorded as absent.
    DirtyMarkDropped,
    /// A map page shows changes that are not in the journal yet.
    PageAheadOfJournal,
    /// A dirty block becomes clean without a write to the home.
    WriteBackSkipped,
    /// A write-back does not notice that a guest wrote meanwhile.
    WriteBackIgnoresWrites,
    /// A batch in one journal that the other journal lacks is not copied to the other journal.
    JournalGapLeft,
    /// A move does not notice that a guest wrote meanwhile.
    MoveIgnoresWrites,
    /// With two required copies, a move writes a copy without an intent: the copy counts as flushed too
    /// early.
    MoveWithoutIntent,
    /// FUA is ignored: the write is an ordinary write.
    FuaIgnored,
    /// A first write to a part does not zero the rest of the part.
    PaddingForgotten,
    /// A write leaves the cached copy of its range unchanged, and clean.
    ExtraNotUpdated,
    /// A write past cached copies drops the copies before the home has the bytes.
    PastDropsBeforeHome,
    /// A write past cached copies drops the copies while other tasks use the extent.
    PastDropsBesideOthers,
    /// A write leaves the memory cache unchanged.
    CacheNotUpdated,
    /// A write does not drop bytes that were read ahead in its range.
    AheadNotDropped,
    /// Bytes read ahead count although their extent has moved meanwhile.
    AheadOfLeftSlot,
    /// A discard keeps the cached copies of its range.
    DiscardKeepsExtras,
    /// A write goes to only one of two required copies.
    SecondCopyNotWritten,
    /// Closing makes nothing durable.
    CloseWithoutCommit,
    /// A device whose end was cut off counts as whole once its size is restored.
    CutDeviceTaken,
    /// A volume does not check whether another opening has taken its devices over.
    FenceSkipped,
    /// The owner of a volume on shared devices does not renew its lease.
    LeaseNotRenewed,
    /// An opening does not watch whether another host renews the lease.
    LeaseNotWatched,
    /// An opening does not compare the journal with the witness and the notes of the host.
    WitnessIgnored,
    /// An opening does not compare the journals of two devices with each other.
    ForgetfulTaken,
    /// A commit does not list its changed extents on the device without the journal.
    ChangesNotListed,
    /// The witness names a list of recent entries that is not durable yet.
    ListNamedEarly,
    /// Dirty cached copies on devices without the journal are listed nowhere.
    DirtyCopiesNotListed,
    /// After the loss of the journal, new batches get numbers that lost batches may have had.
    NumbersOfLostTaken,
    /// A device that missed several openings counts as current.
    StaleDeviceTaken,
    /// A write to a clean span does not wait until the journal records that the copies may differ.
    IntentTooLate,
    /// A stale copy is read.
    BehindIsRead,
    /// After an unclean stop both copies are read, although they may differ.
    NoResync,
    /// Data that a device may have lost with a failed flush is read from the device.
    LostWritesRead,
    /// A device with a late request gets other requests before the answer.
    LateWriteForgotten,
    /// An epoch counts before its segments are durable.
    EpochNotFlushed,
    /// The room of segments is used again before their applied data is durable.
    SegmentsReusedEarly,
    /// A guest's write does not wait until the epoch has read the old bytes of the range.
    EpochReadsLater,
    /// If several segments have the same range, the first segment counts.
    OldestSegmentWins,
    /// A guest changes a range before a recovery has applied the journal of epochs there.
    JournalOverGuests,
    /// The state page says that an extent has been applied before the applied bytes are durable.
    AppliedBeforeFlush,
    /// Ranges of a damaged segment are read from the image.
    DamagedReadInPlace,
    /// A guest's write over a whole damaged extent counts as applied before the bytes are in the image.
    WholeRecordedEarly,
    /// Only one of the two state pages says which extents have been applied.
    OneStatePage,
    /// A shrinking cache drops dirty copies that have not been written back.
    ShrinkingDropsDirty,
    /// A block of an adopted disk becomes dirty before the record names its span.
    DirtySpanUnnamed,
    /// Without the journal, a dirty entry of another SSD counts although the table of dirty spans does not
    /// name the span.
    DirtyWithoutJournal,
    /// The SSD before an adopted disk is excluded before data written back from the SSD is durable on the
    /// disk.
    AdoptedNotFlushed,
    /// A write to an adopted disk does not wait until the record notes the changed samples and marks.
    SumsNotNoted,
    /// The superblocks name the new places of metadata before these places hold all metadata.
    MetadataNamedEarly,
    /// The superblocks name the new size and the new places of metadata before these places hold anything.
    SizeBeforePages,
    /// A returned device counts as current before the end of its resync.
    ReturnedTakenForCurrent,
    /// After a crash, only the first extent of a span that may differ is behind.
    FirstExtentBehind,
    /// With two required copies, a checkpoint writes only the first image of the map.
    OneMapImage,
    /// A write that one copy missed is acknowledged before the journal records the copy as stale.
    MissedWriteUnrecorded,
    /// An opening writes `Open` to the devices without an earlier `Opening` on all of them.
    OpeningNotAnnounced,
    /// After an unclean stop the journal does not record the new opening. The bug shows only under two
    /// conditions. The opening writes no other batch first (a dirty span is a batch). The opening misses a
    /// batch that the next opening sees: of two journals, the only one with the batch is unreadable for a
    /// while.
    OpeningNotRecorded,
    /// A guest's request is acknowledged before the change is in the pending log.
    LogPublishedLate,
    /// The pending log forgets a change when the batch begins.
    LogForgottenEarly,
    /// The pending log of an earlier opening is trusted.
    OlderLogReplayed,
    /// An opening without the pending log takes the number of an opening that had read the log and ended
    /// early.
    NumberOfReaderTaken,
    /// An opening that reads the pending log does not note its own owner in the log.
    OwnerOfReaderForgotten,
    /// A page is written to its place before the copy in the double-write area is durable.
    AreaNotFlushed,
    /// A returned device is active before a checkpoint has brought its map image up to date.
    ReturnedWithoutCheckpoint,
    /// A span is recorded as clean while a batch that records it as dirty is in flight.
    ClearedBesideBatch,
    /// A span is recorded as clean while a write to the span is in flight.
    ClearedWhileWriting,
    /// A commit records spans as clean although its flush lost a device.
    ClearedThoughLost,
    /// The last block of a missed write is not marked as behind if the write ends within the block.
    BehindRangeShort,
    /// A dirty block becomes clean although the write to the home failed.
    WriteBackErrorIgnored,
    /// An epoch ends while a guest's change is in flight.
    EpochEndsWithinChange,
    /// A returned device that is an older copy of itself counts as lacking no more than the device.
    OlderReturnTaken,
    /// If a device and a copy of the device are both given, the first is taken.
    FirstOfTwoTaken,
    /// Unflushed data of a failed device counts as present once the device has returned.
    LossNotDoubted,
    /// A zeroed range is not zero in the cached copies of the blocks at its edges.
    EdgesOfExtrasKept,
    /// A new cached copy has zeros in the bytes of its block that the write did not cover.
    FilledWithZeros,
}

#[cfg(debug_assertions)]
impl Bug {
    /// Bugs of epochs. The loss of an SSD reveals them.
    pub const OF_EPOCHS: &[Bug] = &[
        Bug::EpochNotFlushed,
        Bug::SegmentsReusedEarly,
        Bug::EpochReadsLater,
        Bug::OldestSegmentWins,
        Bug::EpochEndsWithinChange,
    ];

    /// Bugs of a recovery beside guests.
    pub const OF_RECOVERY: &[Bug] = &[Bug::JournalOverGuests, Bug::AppliedBeforeFlush];

    /// Bugs of a recovery with bad places in the journal of epochs.
    pub const OF_DAMAGE: &[Bug] = &[Bug::DamagedReadInPlace, Bug::WholeRecordedEarly, Bug::OneStatePage];

    /// Bugs of an adopted disk. The loss of the SSD reveals them.
    pub const OF_ADOPTION: &[Bug] =
        &[Bug::DirtySpanUnnamed, Bug::DirtyWithoutJournal, Bug::AdoptedNotFlushed, Bug::SumsNotNoted];

    /// Bugs of devices that join, leave or return.
    pub const OF_DEVICES: &[Bug] = &[Bug::MetadataNamedEarly, Bug::ReturnedTakenForCurrent];

    /// Bugs of another size.
    pub const OF_RESIZE: &[Bug] = &[Bug::SizeBeforePages];

    /// Bugs of the end of a resync.
    pub const OF_RESYNC: &[Bug] =
        &[Bug::ClearedBesideBatch, Bug::UndecidedNotCopied, Bug::UndecidedRead, Bug::UndecidedClosed];

    /// Bugs of records that a mirror's journal must hold before an acknowledgement depends on them.
    pub const OF_RECORDS: &[Bug] = &[Bug::ClearedThoughLost, Bug::MissedWriteUnrecorded];

    /// Bugs of the pending log. A death of the daemon reveals them.
    pub const OF_DEATH: &[Bug] = &[
        Bug::LogPublishedLate,
        Bug::LogForgottenEarly,
        Bug::OlderLogReplayed,
        Bug::NumberOfReaderTaken,
        Bug::OwnerOfReaderForgotten,
    ];
    /// Bugs with devices that lie about flushes, that were cut, or that two openings use.
    pub const OF_LIES: &[Bug] = &[
        Bug::CutDeviceTaken,
        Bug::FenceSkipped,
        Bug::WitnessIgnored,
        Bug::ForgetfulTaken,
        Bug::ChangesNotListed,
    ];

    /// Bugs of the lease on shared devices. An opening on a second host reveals them.
    pub const OF_LEASES: &[Bug] = &[Bug::LeaseNotRenewed, Bug::LeaseNotWatched];

    /// Bugs of the witness and the recent entries. The loss of the SSD with the journal in a power cut
    /// reveals them.
    pub const OF_LOSS: &[Bug] = &[Bug::ListNamedEarly, Bug::NumbersOfLostTaken, Bug::DirtyCopiesNotListed];

    /// Bugs of a journal that one opening cannot read, and the next opening can.
    pub const OF_UNREAD: &[Bug] = &[Bug::OpeningNotRecorded];

    /// Bugs of reading ahead. An extent that moves meanwhile reveals them.
    pub const OF_STREAMS: &[Bug] = &[Bug::AheadOfLeftSlot];

    /// All other bugs. Crashes and failing disks reveal them.
    pub const ALL: &[Bug] = &[
        Bug::FlushSkipped,
        Bug::RecordBeforeData,
        Bug::JournalNotFlushed,
        Bug::FailedFlushForgotten,
        Bug::TailMovedEarly,
        Bug::SummaryBeforeGroups,
        Bug::PageWrittenOnce,
        Bug::CacheTableNotWritten,
        Bug::LeftCacheEntryKept,
        Bug::CachePageAheadOfJournal,
        Bug::CleanExtrasTrusted,
        Bug::CleanExtrasNotSaved,
        Bug::ForgottenExtrasLeft,
        Bug::OlderBytesPromoted,
        Bug::ExtraIntentSkipped,
        Bug::GoneExtraForgotten,
        Bug::SlotReusedEarly,
        Bug::BlockReusedEarly,
        Bug::CleanBlockReusedEarly,
        Bug::DirtyMarkDropped,
        Bug::PageAheadOfJournal,
        Bug::WriteBackSkipped,
        Bug::WriteBackIgnoresWrites,
        Bug::JournalGapLeft,
        Bug::MoveIgnoresWrites,
        Bug::MoveWithoutIntent,
        Bug::FuaIgnored,
        Bug::PaddingForgotten,
        Bug::ExtraNotUpdated,
        Bug::PastDropsBeforeHome,
        Bug::PastDropsBesideOthers,
        Bug::CacheNotUpdated,
        Bug::AheadNotDropped,
        Bug::DiscardKeepsExtras,
        Bug::SecondCopyNotWritten,
        Bug::CloseWithoutCommit,
        Bug::StaleDeviceTaken,
        Bug::IntentTooLate,
        Bug::BehindIsRead,
        Bug::NoResync,
        Bug::LostWritesRead,
        Bug::LateWriteForgotten,
        Bug::ShrinkingDropsDirty,
        Bug::FirstExtentBehind,
        Bug::AreaNotFlushed,
        Bug::ReturnedWithoutCheckpoint,
        Bug::ClearedWhileWriting,
        Bug::OneMapImage,
        Bug::BehindRangeShort,
        Bug::WriteBackErrorIgnored,
        Bug::OpeningNotAnnounced,
        Bug::OlderReturnTaken,
        Bug::FirstOfTwoTaken,
        Bug::LossNotDoubted,
        Bug::EdgesOfExtrasKept,
        Bug::FilledWithZeros,
    ];
}

#[cfg(debug_assertions)]
thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Gives the volumes of this thread this bug, and no other.
#[cfg(debug_assertions)]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// True if the engine has this bug.
#[cfg(debug_assertions)]
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// False: a release build has no planted bug.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}
