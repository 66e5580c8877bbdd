//! Declared time of experiments: seconds of processor time of one seed. The seconds predict the time of a run
//! and limit its number of seeds; no other figure depends on their accuracy.
//!
//! The values are rough. Some were measured at 8678da4, before the settings `as-published`, and some in
//! groups divided by the number of simulations. For other experiments, runs of a twentieth were measured on a
//! shared core, which gives a lower bound. Values marked `~` are the number of simulations times the mean of
//! the paper. A run keeps the time of each seed (`seconds` in the files of `lab-results`).

/// Seconds of one seed of an experiment; `None` for an unlisted experiment, such as one from a file.
pub fn seconds(id: &str) -> Option<f64> {
    SECONDS.iter().find(|(known, _)| *known == id).map(|&(_, seconds)| seconds)
}

const SECONDS: &[(&str, f64)] = &[
    ("wardrop/fig1", 12.4), // ~
    ("wardrop/fig5", 21.0), // ~
    ("wardrop/fig6", 18.4), // ~
    ("wardrop/fig7", 18.4), // ~
    ("wardrop/fig8", 15.8), // ~
    ("wardrop/fig9", 9.0),
    ("wardrop/table3", 6.0),
    ("wardrop/fig10", 23.6),     // ~
    ("wardrop/fig11", 23.6),     // ~
    ("wardrop/page-cache", 6.8), // ~
    ("pass/table1", 8.6),
    ("pass/fig1", 25.0),
    ("pass/fig2", 17.8), // ~
    ("pass/fig3", 28.7), // ~
    ("pass/fig4", 39.0),
    ("pass/table2", 23.6), // ~
    ("pass/fig5", 25.3),   // ~
    ("pass/span50", 20.2), // ~
    ("pass/span90", 20.2), // ~
    ("hystor/patterns", 14.8),
    ("hystor/metrics-email", 10.0),    // ~
    ("hystor/metrics-postmark", 10.0), // ~
    ("hystor/metrics-tpcc", 10.0),     // ~
    ("hystor/metrics-netapp", 10.0),   // ~
    ("hystor/metrics-dbench", 10.0),   // ~
    ("hystor/postmark", 22.0),
    ("hystor/email", 2.7),
    ("hystor/tpch", 35.7),
    ("hystor/metadata", 11.7), // ~
    ("hystor/scrub", 2.0),
    ("hystor/chunk", 2.7),
    ("exclusive/fig5", 92.0),
    ("exclusive/fig6", 92.0), // ~
    ("exclusive/fig7", 92.0),
    ("exclusive/fig8", 92.0),         // ~
    ("exclusive/fig9", 383.3),        // ~
    ("exclusive/fig10", 184.0),       // ~
    ("exclusive/dram", 50.0),         // ~
    ("exclusive/drift", 50.0),        // ~
    ("working-set/fig1-writes", 1.9), // ~
    ("working-set/fig1-reads", 0.6),
    ("working-set/model", 2.4),
    ("working-set/fig3-db2", 5.6), // ~
    ("working-set/fig3-web", 12.0),
    ("working-set/seeks-db2", 5.6),         // ~
    ("working-set/seeks-web", 5.6),         // ~
    ("working-set/fig4-db2", 9.8),          // ~
    ("working-set/fig4-web", 9.8),          // ~
    ("working-set/fig5-db2", 11.2),         // ~
    ("working-set/fig5-web", 11.2),         // ~
    ("working-set/checkpoint", 3.8),        // ~
    ("working-set/guests", 2.8),            // ~
    ("working-set/wear", 5.6),              // ~
    ("working-set/nodes-fig1-writes", 1.9), // ~
    ("working-set/nodes-fig1-reads", 1.9),  // ~
    ("working-set/nodes-fig3-db2", 2.8),    // ~
    ("working-set/nodes-fig3-web", 2.8),    // ~
    ("working-set/nodes-seeks-db2", 2.8),   // ~
    ("working-set/nodes-seeks-web", 2.8),   // ~
    ("working-set/nodes-fig4-db2", 9.8),    // ~
    ("working-set/nodes-fig4-web", 9.8),    // ~
    ("working-set/nodes-fig5-db2", 11.2),   // ~
    ("working-set/nodes-fig5-web", 11.2),   // ~
    ("working-set/nodes-checkpoint", 5.6),  // ~
    ("wardrop/worn", 5.0),                  // ~
    ("orthus/disks", 20.0),                 // ~
    ("orthus/load", 20.0),                  // ~
    ("colloid/disks", 20.0),                // ~
    ("colloid/load", 20.0),                 // ~
    ("most/disks", 20.0),                   // ~
    ("most/reads", 20.0),                   // ~
    ("most/writes", 20.0),                  // ~
    ("matrix/dbench", 60.0),                // ~
    ("matrix/netapp", 60.0),                // ~
    ("matrix/postmark", 60.0),              // ~
    ("matrix/tpcc", 60.0),                  // ~
    ("matrix/email", 60.0),                 // ~
    ("matrix/financial1", 60.0),            // ~
    ("matrix/financial2", 60.0),            // ~
    ("matrix/db2", 60.0),                   // ~
    ("matrix/web", 60.0),                   // ~
];
