//! Settings of all policies: as shown, and as documented in docs/policies.

use crate::volume::{Volume, devices};
use braid_base::DeviceClass;
use braid_policy::{DeviceView, NAMES, Plan, parse, parse_with_keys, written};

fn three() -> Vec<DeviceView> {
    devices(&[(DeviceClass::Ssd, 100), (DeviceClass::Hdd, 400), (DeviceClass::Hdd, 400)])
}

/// Every policy, in settings that together cover every key: some keys are valid only beside other keys.
const ALL: &[&str] = &[
    "equi,research.memory=90s,research.horizon=1500ms,research.margin=3",
    "equi,mode=mixed",
    "equi,mode=auto,wear=0.3DWPD,slo=p99<5ms",
    "wardrop,period=12500us,alpha=0.1,allocation-only",
    "wardrop,period=1min,average=period,no-migration",
    "working-set,window=7%,water-mark=20GB,idle=1500us,new-data=64MiB,change=7%,rows=1K,reorganizations=2",
    "working-set,window=90s,water-mark=12.5%,cold=marked",
    "pass",
    "hystor",
    "pass,order=epoch,window=7%,max-lag=400MiB,max-lag-time=1500ms,base=20us,idle=20min,on-disk-failure=stop",
    "pass,window=17sectors",
    "pass,max-lag=none,gap=16KiB,blocking=io-thread,idle=none",
    "hystor,write-back=7%,dirty-high=29%,dirty-low=14%,period=1h,memory=70KiB,bypass=off,part-writes=cache",
    "exclusive,cache=7%,page=10MiB,period=90min,rate=12MB,bypass=4MiB",
    "exclusive,mode=write-through,evict=s3-fifo,threshold=3",
    "exclusive,admit=sievestore",
    "inclusive,admit=sievestore,t1=3",
    "inclusive,dirty-high=7%,dirty-low=3%,fill=all,part-writes=cache",
    "exclusive,dirty-until=purge",
    "inclusive,mode=write-through,evict=s3-fifo",
    "raid1,reads=md",
    "raid1,write-behind,limit=7MiB",
    "ssd-only",
    "hdd-only",
    "stripe",
    "static,ssd=7%",
    "static,d0=29%",
    "ssd-first,cache=7%,evict=s3-fifo,threshold=1,bypass=4MiB",
    "cache,cache=29%,mode=write-back,dirty-high=7%,dirty-low=6%,evict=s3-fifo,bypass=128KiB,part-writes=cache",
    "ssd-first,admit=sievestore,t2=2,sieve-window=90s",
    "cache,admit=sievestore,t1=5,t2=2,sieve-window=90s,subwindows=2",
    "cache,admit=larc",
    "cache",
    "orthus,target=latency,step=7%,interval=50ms,window=1500ms,stable=3%,change=29%,margin=2%,mode=write-back",
    "orthus,evict=s3-fifo,threshold=3,admit=sievestore,t1=3,cache=29%",
    "colloid,round=150ms,weight=0.5,delta=0.07,epsilon=0.02,rate=12MB,latency=all",
    "most,round=150ms,theta=0.07,step=7%,offload=29%,mirror=14%,free=3%,rate=12MB,weight=0.5,clean=2",
];

/// Regression: `braid policy` printed `bypass=4 MiB`, two words for a shell.
#[test]
fn every_policy_is_shown_in_parseable_form() {
    let devices = three();
    for name in NAMES {
        let is_there = |text: &&str| text.split(',').next() == Some(name);
        assert!(ALL.iter().any(is_there), "no settings of {name} are tried");
    }
    for text in ALL {
        let shown = written(&*parse(text, &devices).expect(text));
        let one_word = |c: char| c.is_ascii_alphanumeric() || "-=,.%".contains(c);
        // Users know a latency target with this sign, and quote it, as for `braid plan --slo 'p99<5ms'`.
        assert!(
            shown.replacen(",slo=p99<", ",slo=p99", 1).chars().all(one_word),
            "{shown} is not one word of a shell"
        );
        let again =
            parse(&shown, &devices).unwrap_or_else(|error| panic!("{text} is shown as {shown}: {error}"));
        assert_eq!(written(&*again), shown, "{text}");
        // Settings given in short form are shown in short form; the shares of `static` are shown by device.
        let given = text.split(',').skip(1).filter(|part| !part.starts_with("ssd="));
        for part in given.filter(|part| *part != "rows=1K") {
            assert!(shown.split(',').any(|setting| setting == part), "{part} of {text} is shown as {shown}");
        }
    }
    let shown = written(&*parse("pass", &devices).expect("it has defaults"));
    assert!(shown.contains("window=400Ksectors,max-lag=400MiB,"), "{shown}");
    let shown = written(&*parse("exclusive", &devices).expect("it has defaults"));
    assert!(shown.contains("page=10MB,period=1h,rate=12MB,"), "{shown}");
}

/// Rows of all tables of settings in docs/policies: policy and setting. A heading with names of policies
/// applies to the tables that follow.
fn documented() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policies");
    let pages = std::fs::read_dir(folder).expect(folder).map(|page| page.expect(folder).path());
    pages.flat_map(|page| documented_on(&std::fs::read_to_string(page).expect(folder))).collect()
}

fn documented_on(page: &str) -> Vec<(String, String)> {
    let (mut policies, mut rows, mut of_settings) = (Vec::new(), Vec::new(), false);
    for line in page.lines() {
        let quoted: Vec<String> = line.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        if line.starts_with('#') && !quoted.is_empty() {
            policies = quoted;
        } else if line.starts_with("| ") {
            of_settings |= line.starts_with("| setting | default |");
            if of_settings && line.starts_with("| `") {
                rows.extend(policies.iter().map(|policy| (policy.clone(), quoted[0].clone())));
            }
        } else if !line.starts_with('|') {
            of_settings = false;
        }
    }
    rows
}

#[test]
fn policy_documentation_lists_exactly_the_known_settings() {
    let devices = three();
    let mut known = Vec::new();
    for text in ALL {
        let (policy, keys) = parse_with_keys(text, &devices).expect(text);
        let is_place = |key: &str| key.starts_with('d') && key[1..].parse::<u32>().is_ok();
        let name = |key: &'static str| if is_place(key) { "dN" } else { key };
        known.extend(keys.into_iter().map(|key| (policy.name().to_owned(), name(key).to_owned())));
    }
    known.sort();
    known.dedup();
    let mut rows = documented();
    rows.sort();
    let twice = rows.windows(2).find(|pair| pair[0] == pair[1]);
    assert_eq!(twice, None, "docs/policies has a setting twice");
    let missing: Vec<_> = known.iter().filter(|row| !rows.contains(row)).collect();
    assert!(missing.is_empty(), "docs/policies does not have {missing:?}");
    let unknown: Vec<_> = rows.iter().filter(|row| !known.contains(row)).collect();
    assert!(unknown.is_empty(), "docs/policies has what no policy takes: {unknown:?}");
}

/// Only this page documents figures such as `behind_bound_bytes` for programs.
#[test]
fn the_glossary_has_every_figure_of_every_policy() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/json.md");
    let page = std::fs::read_to_string(path).expect(path);
    let mut volume = Volume::new(&three(), 800);
    for text in ALL {
        let mut policy = parse(text, &volume.devices).expect(text);
        volume.allocate(&mut *policy, 0);
        policy.plan(&volume.view(), &mut Plan::default());
        for (figure, _) in volume.devices.iter().flat_map(|device| policy.figures(device.id)) {
            let is_row = |line: &&str| {
                line.starts_with("| ")
                    && line.contains(policy.name())
                    && line.contains(&format!("`{figure}`"))
            };
            assert!(
                page.lines().any(|line| is_row(&line)),
                "docs/json.md does not have {figure} of {}",
                policy.name()
            );
        }
    }
}

#[test]
fn unknown_setting_is_refused_with_pointer_to_documentation() {
    let error = parse("pass,max-lga=1GiB", &three()).err().expect("there is no such setting").to_string();
    for part in ["max-lga", "max-lag", "docs/policies/"] {
        assert!(error.contains(part), "{error}");
    }
}
