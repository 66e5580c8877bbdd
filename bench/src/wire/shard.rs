//! The shard's side of a server by the library: tasks that serve requests out of a mailbox, built as the
//! tasks of Braid's own server.

use crate::wire::library::{Asked, Spare};
use crate::wire::memory::Memory;
use braid_base::Bytes;
use braid_engine::{Durability, Export, Result};
use braid_runtime::{Arena, LockTable, Mode};
use braid_uring::{Receiver, Ring};
use fuser::Errno;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

/// State shared by the tasks.
pub(super) struct Shard {
    arena: Arena,
    memory: Memory,
    spare: Arc<Spare>,
    /// One lock, number 0: the turn to receive.
    turn: LockTable,
    /// Here while no task has the turn.
    receiver: Cell<Option<Receiver<Asked>>>,
}

impl Shard {
    /// Starts `in_flight` tasks, which end with the last sender.
    pub fn start(
        ring: &Ring,
        arena: Arena,
        memory: Memory,
        receiver: Receiver<Asked>,
        spare: Arc<Spare>,
        in_flight: u16,
    ) {
        let (turn, receiver) = (LockTable::default(), Cell::new(Some(receiver)));
        let shard = Rc::new(Shard { arena, memory, spare, turn, receiver });
        for _ in 0..in_flight {
            let shard = shard.clone();
            ring.spawn(async move {
                while let Some(asked) = shard.receive().await {
                    shard.answer(asked).await;
                }
            });
        }
    }

    async fn receive(&self) -> Option<Asked> {
        let _turn = self.turn.lock(0, Mode::Exclusive).await;
        let mut receiver = self.receiver.take().expect("the task with the turn has the receiver");
        let asked = receiver.recv().await;
        self.receiver.set(Some(receiver));
        asked
    }

    async fn answer(&self, asked: Asked) {
        match asked {
            Asked::Read { offset, len, reply } => {
                let bytes = self.arena.alloc(len).await;
                match self.memory.read(offset, &bytes).await {
                    Ok(()) => bytes.with_bytes(|bytes| reply.data(bytes)),
                    Err(_) => reply.error(Errno::EIO),
                }
            }
            Asked::Write { offset, bytes, reply } => {
                let len = bytes.len() as u32;
                match self.write(offset, bytes).await {
                    Ok(()) => reply.written(len),
                    Err(_) => reply.error(Errno::EIO),
                }
            }
        }
    }

    /// Copies the bytes into a buffer of the arena: an export takes nothing else.
    async fn write(&self, offset: Bytes, bytes: Vec<u8>) -> Result<()> {
        let buffer = self.arena.alloc(Bytes(bytes.len() as u64)).await;
        buffer.copy_from_slice(Bytes::ZERO, &bytes);
        self.spare.give_back(bytes);
        self.memory.write(offset, &buffer, Durability::Volatile).await
    }
}
