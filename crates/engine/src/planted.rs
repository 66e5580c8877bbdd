//! Bugs on purpose: a campaign is worth something only if it finds these.
//!
//! Without the feature `planted` [`planted`] is the constant `false`, and nothing of it is left in the code.
//! With it one bug at a time is switched on for the thread, by a test (`crates/sim/tests/planted.rs`) that
//! must find it. Each place in the engine reads `if planted(Bug::…)`, and does there what a programmer might
//! have done by mistake.

#[cfg(feature = "planted")]
use std::cell::Cell;

/// What is done wrong. Each variant says what the engine does instead of what it should.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Bug {
    /// A guest's flush commits the journal, and flushes no device that holds data.
    FlushSkipped,
    /// The record of a change is durable before the data that it speaks of.
    RecordBeforeData,
    /// A batch of the journal is written, and not flushed.
    JournalNotFlushed,
    /// A flush that failed is tried again, and its success hides what was lost.
    FailedFlushForgotten,
    /// The journal forgets before the map pages are durable.
    TailMovedEarly,
    /// The summary of the map names groups of pages before these are durable.
    SummaryBeforeGroups,
    /// What a crash left undecided passes for decided, and is in one copy.
    UndecidedNotCopied,
    /// What a crash left undecided is read from one copy, and stays undecided.
    UndecidedRead,
    /// A shutdown that leaves spans undecided leaves their copies as ones that are alike.
    UndecidedClosed,
    /// With two required copies, a page is overwritten in place without having been written elsewhere before.
    PageWrittenOnce,
    /// A checkpoint writes no page of the cache tables.
    CacheTableNotWritten,
    /// A checkpoint leaves the page of the cache table as it was that a dirty copy has left.
    LeftCacheEntryKept,
    /// A page of the cache table shows dirty copies that the journal does not know yet.
    CachePageAheadOfJournal,
    /// Clean copies in spans that were dirty are believed after a crash.
    CleanExtrasTrusted,
    /// A checkpoint leaves the pages of the cache table as they were in which only clean copies have changed.
    CleanExtrasNotSaved,
    /// What recovery forgets of clean extra copies is still in the cache table when the volume serves.
    ForgottenExtrasLeft,
    /// What a guest wrote between a read and the extra copy of what was read is not noticed.
    OlderBytesPromoted,
    /// A write to a block with a clean extra copy does not wait until the journal says that its span may
    /// differ.
    ExtraIntentSkipped,
    /// A write takes a clean extra copy for gone before the journal says so.
    GoneExtraForgotten,
    /// A slot is free before the record that freed it is durable.
    SlotReusedEarly,
    /// The block slot of a dirty extra copy is free before the record that freed it is durable.
    BlockReusedEarly,
    /// The block slot of a clean extra copy likewise.
    CleanBlockReusedEarly,
    /// A dirty extra copy is recorded as none.
    DirtyMarkDropped,
    /// A map page shows changes that the journal does not know yet.
    PageAheadOfJournal,
    /// A dirty block becomes clean without having been written to the home.
    WriteBackSkipped,
    /// A write-back does not notice that a guest wrote meanwhile.
    WriteBackIgnoresWrites,
    /// A batch that one journal has and the other one lacks is not written to that.
    JournalGapLeft,
    /// A move does not notice that a guest wrote meanwhile.
    MoveIgnoresWrites,
    /// The copy that a move makes beside another one counts as flushed before it is.
    MoveWithoutIntent,
    /// FUA is taken for an ordinary write.
    FuaIgnored,
    /// The rest of a part that is written for the first time does not become zero.
    PaddingForgotten,
    /// A write leaves the extra copy of what it wrote as it was, and clean.
    ExtraNotUpdated,
    /// A write that goes past extra copies drops them before the home has it.
    PastDropsBeforeHome,
    /// It drops them though other tasks use the extent.
    PastDropsBesideOthers,
    /// A write leaves the memory cache as it was.
    CacheNotUpdated,
    /// A write leaves what was read ahead of its range as it was.
    AheadNotDropped,
    /// What was read ahead of an extent counts though the extent has moved meanwhile.
    AheadOfLeftSlot,
    /// A discard leaves the extra copies of what it covers.
    DiscardKeepsExtras,
    /// A write goes to one of two required copies.
    SecondCopyNotWritten,
    /// Closing makes nothing durable.
    CloseWithoutCommit,
    /// A device whose end is gone, and which has its size again, counts as whole.
    CutDeviceTaken,
    /// A volume does not look whether another opening has taken its devices over.
    FenceSkipped,
    /// An opening does not compare the journal with what was noted of it elsewhere.
    WitnessIgnored,
    /// An opening does not compare the journals of two devices with one another.
    ForgetfulTaken,
    /// A commit does not list the extents that it changes on the device without the journal.
    ChangesNotListed,
    /// The witness names a list of recent entries that is not durable yet.
    ListNamedEarly,
    /// Nothing lists the dirty extra copies on devices without the journal.
    DirtyCopiesNotListed,
    /// After the loss of the journal, batches get numbers that lost ones may have had.
    NumbersOfLostTaken,
    /// A device that was left behind several openings ago is taken for a current one.
    StaleDeviceTaken,
    /// A write to a clean span does not wait until the journal says that its copies may differ.
    IntentTooLate,
    /// A copy that is behind is read.
    BehindIsRead,
    /// After an unclean stop both copies are read, though they may differ.
    NoResync,
    /// What a device may have lost with a failed flush is read from it.
    LostWritesRead,
    /// A device that has not answered a request in time gets others before it has.
    LateWriteForgotten,
    /// An epoch counts before its segments are durable.
    EpochNotFlushed,
    /// The room of segments is used again before what was applied of them is durable.
    SegmentsReusedEarly,
    /// A guest's write does not wait until what an epoch lacks of its range has been read.
    EpochReadsLater,
    /// Of several segments with one range the first one counts.
    OldestSegmentWins,
    /// A guest changes what a recovery has not applied of the journal of epochs yet.
    JournalOverGuests,
    /// The disk says that a part of that journal has been applied before that is durable.
    AppliedBeforeFlush,
    /// What a damaged segment of that journal had is read from its place.
    DamagedReadInPlace,
    /// What a guest writes over all of a damaged extent counts as applied before it is in its place.
    WholeRecordedEarly,
    /// One state page alone says what has been applied of that journal.
    OneStatePage,
    /// A cache that becomes smaller drops dirty copies that have not been written back.
    ShrinkingDropsDirty,
    /// A block of an adopted disk becomes dirty before the record names its span.
    DirtySpanUnnamed,
    /// Without the journal, a dirty entry of another SSD counts though the table of dirty spans does not name
    /// its span.
    DirtyWithoutJournal,
    /// The SSD before an adopted disk is given up before what was written back from there is durable on the
    /// disk.
    AdoptedNotFlushed,
    /// A write to an adopted disk does not wait until what the disk is known by says so.
    SumsNotNoted,
    /// The superblocks name the new places of metadata before these hold all of it.
    MetadataNamedEarly,
    /// A device that is back counts as current before it has been brought up to date.
    ReturnedTakenForCurrent,
    /// After a crash, the first extent of a span that may differ is behind, and not the others.
    FirstExtentBehind,
    /// With two required copies, a checkpoint writes the first image of the map alone.
    OneMapImage,
    /// A guest hears of a write that one copy missed before the journal says that the copy is behind.
    MissedWriteUnrecorded,
    /// An opening says `Open` on the devices without having said `Opening` on all of them.
    OpeningNotAnnounced,
    /// After an unclean stop the journal does not say that another opening has begun. That shows only if the
    /// opening writes no other batch first (a dirty span is one), and does not see a batch that the next
    /// opening sees: the one journal of two that has the batch cannot be read for a while.
    OpeningNotRecorded,
    /// A guest is told of success before the change is in the pending log.
    LogPublishedLate,
    /// The pending log forgets a change as its batch begins.
    LogForgottenEarly,
    /// The pending log of an earlier opening is believed.
    OlderLogReplayed,
    /// An opening without the pending log takes the number of one that had read the log and ended early.
    NumberOfReaderTaken,
    /// An opening that reads the pending log does not note in the log which opening reads.
    OwnerOfReaderForgotten,
    /// A page is written to its place before the double-write area that has it is durable.
    AreaNotFlushed,
    /// A device that is back is active before a checkpoint has brought its map image up to date.
    ReturnedWithoutCheckpoint,
    /// A span is called clean though a batch that calls it dirty is on its way.
    ClearedBesideBatch,
    /// A span is called clean though a write is under way in it.
    ClearedWhileWriting,
    /// A commit calls spans clean though a device was lost by its flush.
    ClearedThoughLost,
    /// Of what a copy lacks, the last block is forgotten if a write ends within it.
    BehindRangeShort,
    /// A dirty block becomes clean though it could not be written to the home.
    WriteBackErrorIgnored,
    /// An epoch ends while a guest's change is under way.
    EpochEndsWithinChange,
    /// An older copy of a device that the others went on without counts as if it lacked no more than the
    /// device does.
    OlderReturnTaken,
    /// Of a device and a copy of it, which are given side by side, the first one is taken.
    FirstOfTwoTaken,
    /// What a device that is given up had not flushed counts as there once it is back.
    LossNotDoubted,
    /// What becomes zero is not zero in the extra copies of the blocks at its edges.
    EdgesOfExtrasKept,
    /// A new extra copy has zeros where its write left the block as it was.
    FilledWithZeros,
}

#[cfg(feature = "planted")]
impl Bug {
    /// Those of epochs, which the loss of an SSD shows.
    pub const OF_EPOCHS: &[Bug] = &[
        Bug::EpochNotFlushed,
        Bug::SegmentsReusedEarly,
        Bug::EpochReadsLater,
        Bug::OldestSegmentWins,
        Bug::EpochEndsWithinChange,
    ];

    /// Those of a recovery with guests at work.
    pub const OF_RECOVERY: &[Bug] = &[Bug::JournalOverGuests, Bug::AppliedBeforeFlush];

    /// Those of a recovery whose journal has bad places.
    pub const OF_DAMAGE: &[Bug] = &[Bug::DamagedReadInPlace, Bug::WholeRecordedEarly, Bug::OneStatePage];

    /// Those of an adopted disk, which the loss of the SSD shows.
    pub const OF_ADOPTION: &[Bug] =
        &[Bug::DirtySpanUnnamed, Bug::DirtyWithoutJournal, Bug::AdoptedNotFlushed, Bug::SumsNotNoted];

    /// Those of devices that come and go.
    pub const OF_DEVICES: &[Bug] = &[Bug::MetadataNamedEarly, Bug::ReturnedTakenForCurrent];

    /// Those of the end of a resync.
    pub const OF_RESYNC: &[Bug] =
        &[Bug::ClearedBesideBatch, Bug::UndecidedNotCopied, Bug::UndecidedRead, Bug::UndecidedClosed];

    /// Those of what the journal of a mirror must say before anything depends on it.
    pub const OF_RECORDS: &[Bug] = &[Bug::ClearedThoughLost, Bug::MissedWriteUnrecorded];

    /// Those of the pending log, which a crash of the daemon shows.
    pub const OF_DEATH: &[Bug] = &[
        Bug::LogPublishedLate,
        Bug::LogForgottenEarly,
        Bug::OlderLogReplayed,
        Bug::NumberOfReaderTaken,
        Bug::OwnerOfReaderForgotten,
    ];
    /// Those of devices that tell lies, or that were cut.
    pub const OF_LIES: &[Bug] = &[
        Bug::CutDeviceTaken,
        Bug::FenceSkipped,
        Bug::WitnessIgnored,
        Bug::ForgetfulTaken,
        Bug::ChangesNotListed,
    ];

    /// Those of what outlives the SSD with the journal, which its loss in a power cut shows.
    pub const OF_LOSS: &[Bug] = &[Bug::ListNamedEarly, Bug::NumbersOfLostTaken, Bug::DirtyCopiesNotListed];

    /// Those of a journal that one opening cannot read, and the next one can.
    pub const OF_UNREAD: &[Bug] = &[Bug::OpeningNotRecorded];

    /// Those of what is read ahead, which an extent that moves meanwhile shows.
    pub const OF_STREAMS: &[Bug] = &[Bug::AheadOfLeftSlot];

    /// All others, which crashes and failing disks show.
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

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// From now on the volumes of this thread have this bug, and no other.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether the engine has this bug.
#[cfg(feature = "planted")]
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether the engine has this bug: no.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub(crate) const fn planted(_: Bug) -> bool {
    false
}
