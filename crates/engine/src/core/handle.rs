//! Handles of owners, for tasks that outlive the call that starts the task.

use std::ops::Deref;
use std::rc::{Rc, Weak};

/// A volume that contains an owner.
pub(crate) trait Contains<T> {
    /// Returns the owner.
    fn part(&self) -> &T;
}

/// Handle of an owner within a volume; keeps the whole volume.
pub(crate) struct Handle<T>(Rc<dyn Contains<T>>);

impl<T> Deref for Handle<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.part()
    }
}

/// Reference of an owner to itself.
pub(crate) struct Own<T>(Weak<dyn Contains<T>>);

impl<T> Own<T> {
    /// References the owner within a volume under construction.
    pub fn within<V: Contains<T> + 'static>(volume: &Weak<V>) -> Own<T> {
        Own(volume.clone())
    }

    /// Returns a handle of the owner, for a task.
    pub fn handle(&self) -> Handle<T> {
        Handle(self.0.upgrade().expect("an owner's verb runs, so the volume exists"))
    }
}
