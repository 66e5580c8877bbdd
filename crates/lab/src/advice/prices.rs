//! Prices of devices, from a TOML file, and the mixes that can be bought.
//!
//! ```toml
//! currency = "EUR"
//!
//! [[ssd]]
//! model = "sata-ssd"              # a name of the library, or FILE.toml
//! sizes = ["500GB", "1TB"]
//! price-per-gb = 0.07             # of 10^9 bytes; or price, of a device of the only size
//! counts = [1, 2]                 # how many there may be of it; 1 if it is left out
//!
//! [[hdd]]
//! model = "exos-x20"
//! sizes = ["20TB"]
//! price = 330
//! ```

use crate::{DeviceSetup, Error, Result, Size};
use braid_base::{Bytes, DeviceClass};
use serde::Deserialize;

/// Prices of devices.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Prices {
    /// Currency of the prices.
    pub currency: String,
    /// SSDs.
    #[serde(default)]
    ssd: Vec<Offer>,
    /// Hard disks.
    #[serde(default)]
    hdd: Vec<Offer>,
}

/// A model for sale.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Offer {
    model: String,
    sizes: Vec<String>,
    price: Option<f64>,
    price_per_gb: Option<f64>,
    #[serde(default = "one")]
    counts: Vec<usize>,
}

/// Devices bought together.
#[derive(Clone, PartialEq, Debug)]
pub struct Mix {
    /// SSDs of one kind, disks of one kind, or both.
    pub devices: Vec<DeviceSetup>,
    /// Price of each kind, for all of its devices together.
    pub prices: Vec<f64>,
}

/// Longest file of prices, in bytes.
pub const LONGEST_PRICES: u64 = 64 << 10;
/// Most devices of one kind in a mix.
const MOST_DEVICES: usize = 64;

fn one() -> Vec<usize> {
    vec![1]
}

impl Prices {
    /// Reads prices from a text.
    ///
    /// # Errors
    /// Names the error and the remedy.
    pub fn parse(text: &str) -> Result<Prices> {
        let prices: Prices =
            toml::from_str(text).map_err(|error| Error::setup(error.to_string().trim().to_owned()))?;
        for (class, offer) in prices.offers() {
            offer.check(class)?;
        }
        if prices.ssd.is_empty() && prices.hdd.is_empty() {
            return Err(Error::setup(
                "no device has a price: add [[ssd]] or [[hdd]], with model, sizes and price-per-gb",
            ));
        }
        Ok(prices)
    }

    /// All mixes with room for `data`, the cheapest first: one kind of SSD or none, and one kind of disk or
    /// none.
    pub fn mixes(&self, data: Bytes) -> Vec<Mix> {
        let of = |offers: &[Offer], class| {
            let all = offers.iter().flat_map(|offer| offer.kinds(class)).map(Some);
            std::iter::once(None).chain(all).collect::<Vec<_>>()
        };
        let (ssds, hdds) = (of(&self.ssd, DeviceClass::Ssd), of(&self.hdd, DeviceClass::Hdd));
        let pair = |(ssd, hdd): (&Option<PricedDevice>, &Option<PricedDevice>)| {
            let (devices, prices) = [ssd, hdd].into_iter().flatten().cloned().unzip();
            Mix { devices, prices }
        };
        let pairs = ssds.iter().flat_map(|ssd| hdds.iter().map(move |hdd| (ssd, hdd)));
        let has_room = |mix: &Mix| mix.room() >= data.0 as f64;
        let mut mixes: Vec<Mix> =
            pairs.map(pair).filter(|mix| !mix.devices.is_empty() && has_room(mix)).collect();
        mixes.sort_by(|a, b| a.price().total_cmp(&b.price()));
        mixes
    }

    fn offers(&self) -> impl Iterator<Item = (DeviceClass, &Offer)> {
        let ssds = self.ssd.iter().map(|offer| (DeviceClass::Ssd, offer));
        ssds.chain(self.hdd.iter().map(|offer| (DeviceClass::Hdd, offer)))
    }
}

type PricedDevice = (DeviceSetup, f64);

impl Offer {
    fn check(&self, class: DeviceClass) -> Result<()> {
        let Offer { model, sizes, price, price_per_gb, counts } = self;
        let wrong = |why: String| Err(Error::setup(format!("[[{class}]] {model}: {why}")));
        if sizes.is_empty() {
            return wrong("sizes is empty: give at least one, as in sizes = [\"1TB\"]".to_owned());
        }
        for size in sizes {
            match size.parse::<Bytes>() {
                Ok(Bytes(0)) => return wrong(format!("sizes has {size}: use more than 0")),
                Ok(_) => {}
                Err(error) => return wrong(format!("sizes: {error}")),
            }
        }
        let is_one_price = price.is_some() != price_per_gb.is_some();
        if !is_one_price || (price.is_some() && sizes.len() > 1) {
            return wrong("give price-per-gb, or price for a device of the only size".to_owned());
        }
        let cost = price.or(*price_per_gb).unwrap_or_default();
        if !(cost >= 0.0 && cost.is_finite()) {
            return wrong(format!("a price of {cost}: use 0 or more"));
        }
        match counts.iter().find(|count| !(1..=MOST_DEVICES).contains(count)) {
            Some(count) => wrong(format!("counts has {count}: use 1 to {MOST_DEVICES}")),
            None if counts.is_empty() => wrong("counts is empty: leave it out for one device".to_owned()),
            None => {
                let setup = |size: &String| DeviceSetup::parse(class, &format!("{size},model={model}"));
                sizes.iter().try_for_each(|size| setup(size)?.spec().map(drop))
            }
        }
    }

    /// Each size and count, with its price.
    fn kinds(&self, class: DeviceClass) -> Vec<PricedDevice> {
        let sizes = self.sizes.iter().filter_map(|size| size.parse::<Bytes>().ok());
        let kind = |size: Bytes| {
            let each = self.price.or(self.price_per_gb.map(|price| price * size.0 as f64 / 1e9));
            let of_count = move |&count: &usize| {
                let model = self.model.clone();
                let setup = DeviceSetup {
                    class,
                    size: Size::Bytes(size),
                    model,
                    lower: false,
                    write_cache: true,
                    count,
                    nodes: None,
                    group: None,
                };
                (setup, each.unwrap_or_default() * count as f64)
            };
            self.counts.iter().map(of_count)
        };
        sizes.flat_map(kind).collect()
    }
}

/// Share of a device's bytes for data: the rest is spare and metadata.
const ROOM: f64 = 0.95;

impl Mix {
    /// Price of the mix.
    pub fn price(&self) -> f64 {
        self.prices.iter().sum()
    }

    /// Price of the mix if the price of a model is multiplied by `factor`.
    pub fn price_if(&self, model: &str, factor: f64) -> f64 {
        let of = |(device, price): (&DeviceSetup, &f64)| {
            if device.model == model { price * factor } else { *price }
        };
        self.devices.iter().zip(&self.prices).map(of).sum()
    }

    /// The mix in words: `1 × sata-ssd of 500 GB, 2 × exos-x20 of 20 TB`.
    pub fn name(&self) -> String {
        let of = |device: &DeviceSetup| {
            let size = bytes(device).0 as f64 / 1e9;
            let size = if size >= 1000.0 { format!("{} TB", size / 1e3) } else { format!("{size} GB") };
            format!("{} × {} of {size}", device.count, device.model)
        };
        self.devices.iter().map(of).collect::<Vec<_>>().join(" + ")
    }

    /// Bytes of all SSDs together.
    pub fn ssd_bytes(&self) -> u64 {
        let ssds = self.devices.iter().filter(|device| device.class == DeviceClass::Ssd);
        ssds.map(|device| bytes(device).0.saturating_mul(device.count as u64)).sum()
    }

    fn room(&self) -> f64 {
        let of = |device: &DeviceSetup| bytes(device).0 as f64 * device.count as f64;
        ROOM * self.devices.iter().map(of).sum::<f64>()
    }
}

fn bytes(device: &DeviceSetup) -> Bytes {
    match device.size {
        Size::Bytes(bytes) => bytes,
        Size::Share(_) => Bytes::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
        currency = \"EUR\"
        [[ssd]]
        model = \"sata-ssd\"
        sizes = [\"500GB\", \"1TB\"]
        price-per-gb = 0.1
        counts = [1, 2]
        [[hdd]]
        model = \"exos-x20\"
        sizes = [\"20TB\"]
        price = 300
    ";

    #[test]
    fn mixes_with_enough_room_are_listed_cheapest_first() {
        let prices = Prices::parse(TEXT).unwrap();
        let names = |data| prices.mixes(data).iter().map(Mix::name).collect::<Vec<_>>();
        // Four kinds of SSDs or none, with a disk or none.
        assert_eq!(names(Bytes(1)).len(), 4 + 1 + 4);
        assert_eq!(names(Bytes(1))[0], "1 × sata-ssd of 500 GB");
        let large = prices.mixes(Bytes(5_000_000_000_000));
        assert_eq!(large[0].name(), "1 × exos-x20 of 20 TB");
        assert_eq!((large.len(), large[1].price(), large[4].price()), (5, 350.0, 500.0));
        assert_eq!(large[1].price_if("exos-x20", 1.2), 410.0);
        assert_eq!(large[1].ssd_bytes(), 500_000_000_000);
        assert!(names(Bytes(1 << 50)).is_empty());
    }

    #[test]
    fn invalid_price_list_is_rejected_with_the_cause() {
        for (from, to, expected) in [
            ("price = 300", "price = 300\nprice-per-gb = 1", "price-per-gb"),
            ("price-per-gb = 0.1", "price = 3", "only size"),
            ("price = 300", "price = -1", "-1"),
            ("\"20TB\"", "\"big\"", "'big'"),
            ("[1, 2]", "[0]", "1 to 64"),
            ("sata-ssd", "sata-sdd", "sata-ssd"),
            ("sata-ssd", "exos-x20", "--hdd"),
            ("counts", "count", "count"),
            ("currency", "money", "currency"),
        ] {
            let error = Prices::parse(&TEXT.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(expected), "{to}: {error}");
        }
        assert!(Prices::parse("currency = \"EUR\"").is_err());
    }
}
