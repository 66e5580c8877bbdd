//! What a volume does on simulated disks, one file for each subject. They are one programme, because each of them would compile the whole engine
//! once more.

#[path = "../chaos/mod.rs"]
mod chaos;
mod rig;
mod toy_policies;
mod working_set;

mod addresses;
mod adopted;
mod ahead;
mod apart;
mod cache_table;
mod cache_table_damage;
mod copies;
mod damage;
mod deadlines;
mod degraded;
mod device_campaign;
mod device_changes;
mod device_life;
mod device_returns;
mod epochs;
mod epochs_campaign;
mod epochs_damaged;
mod epochs_failing;
mod epochs_pages;
mod epochs_recovery;
mod epochs_removal;
mod epochs_returns;
mod epochs_shapes;
mod failed_flush;
mod failed_flush_mirrored;
mod faults;
mod first_writes;
mod loss;
mod lost_writes;
mod moves;
mod openings;
mod pass;
mod past_cache;
mod policies;
mod policy_interface;
mod policy_lacks;
mod policy_state;
mod promotions;
mod recovery_campaign;
mod recovery_damage;
mod removals;
mod replace;
mod runs;
mod side_by_side;
mod silent;
mod slow_devices;
mod split;
mod vanished;
mod write_back;
