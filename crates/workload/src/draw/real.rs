//! Natural logarithm and exponential, built only from sums, products and quotients. IEEE 754 defines these
//! operations to the last bit.

/// Returns the natural logarithm of a positive, normal number, with a relative error of about 1e-15.
///
/// x = 2^k m with m in √½..√2, and ln m = 2 artanh s with s = (m − 1) / (m + 1), |s| < 0.172. The series of
/// artanh goes to s^19.
pub(crate) fn ln(x: f64) -> f64 {
    debug_assert!(x >= f64::MIN_POSITIVE && x.is_finite());
    let shifted = x.to_bits() + (ONE - SQRT_HALF);
    let k = (shifted >> 52) as i64 - 1023;
    let m = f64::from_bits((shifted & MANTISSA) + SQRT_HALF);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let z2 = z * z;
    let z4 = z2 * z2;
    let low = (1.0 + z * (1.0 / 3.0)) + z2 * (1.0 / 5.0 + z * (1.0 / 7.0));
    let high = (1.0 / 9.0 + z * (1.0 / 11.0)) + z2 * (1.0 / 13.0 + z * (1.0 / 15.0));
    let series = low + z4 * (high + z4 * (1.0 / 17.0 + z * (1.0 / 19.0)));
    k as f64 * LN_2 + 2.0 * s * series
}

/// Returns e to the power of x, with a relative error of about 1e-15: 0 below -700, and e^700 above 700.
///
/// x = k ln 2 + r with |r| < 0.35. The series of e^r goes to r^13.
pub(crate) fn exp(x: f64) -> f64 {
    if x < -700.0 {
        return 0.0;
    }
    let x = x.min(700.0);
    // Adding 1.5 · 2^52 rounds x / ln 2 to an integer. The low bits of the sum hold the integer.
    let shifted = x * (1.0 / LN_2) + ROUNDING;
    let k = shifted - ROUNDING;
    let r = (x - k * LN_2_HIGH) - k * LN_2_LOW;
    let (r2, r4) = (r * r, r * r * (r * r));
    let pair = |n: usize| INVERSE_FACTORIAL[n] + r * INVERSE_FACTORIAL[n + 1];
    let low = pair(0) + r2 * pair(2);
    let middle = pair(4) + r2 * pair(6);
    let high = (pair(8) + r2 * pair(10)) + r4 * pair(12);
    let series = low + r4 * (middle + r4 * high);
    series * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

/// 1 / n! for n up to 13.
const INVERSE_FACTORIAL: [f64; 14] = {
    let mut inverse = [1.0; 14];
    let mut factorial = 1.0;
    let mut n = 1;
    while n < 14 {
        factorial *= n as f64;
        inverse[n] = 1.0 / factorial;
        n += 1;
    }
    inverse
};
const ROUNDING: f64 = 6_755_399_441_055_744.0;
const LN_2: f64 = std::f64::consts::LN_2;
/// ln 2 cut after 32 bits, so that the product with any `k` here is exact. `LN_2_LOW` is the rest.
const LN_2_HIGH: f64 = f64::from_bits(LN_2.to_bits() & !0x1f_ffff);
const LN_2_LOW: f64 = 2.319_046_813_846_299_6e-17 + (LN_2 - LN_2_HIGH);
const ONE: u64 = 0x3ff0_0000_0000_0000;
const MANTISSA: u64 = 0x000f_ffff_ffff_ffff;
/// The bits of the square root of a half.
const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;

#[cfg(test)]
mod tests {
    use super::*;
    use braid_base::Rng;

    #[test]
    fn logarithm_and_exponential_are_right_to_fifteen_digits() {
        let mut rng = Rng::new(1);
        for _ in 0..100_000 {
            let x = rng.unit() * 1e-3 + f64::MIN_POSITIVE;
            for x in [x, 1.0 - x, 1.0 + x, 1.0 / x, x * 1e9] {
                assert!((ln(x) - x.ln()).abs() <= 1e-15 * x.ln().abs().max(1e-3), "ln {x}");
            }
            let y = (rng.unit() - 0.5) * 1200.0;
            assert!((exp(y) / y.exp() - 1.0).abs() < 2e-15, "exp {y}");
        }
        assert_eq!((ln(1.0), exp(0.0), exp(-1e9)), (0.0, 1.0, 0.0));
    }

    #[test]
    fn digits_of_ln_and_exp_never_change() {
        let digits = [ln(2.5e-7), ln(0.7), ln(3.0), exp(-3.25), exp(0.1), exp(20.0)].map(f64::to_bits);
        let known = [
            0xc02e_6752_f96f_46de,
            0xbfd6_d3c3_24e1_3f4f,
            0x3ff1_93ea_7aad_030a,
            0x3fa3_da36_8521_902d,
            0x3ff1_aec7_b35a_00d4,
            0x41bc_eb08_8b68_e804,
        ];
        assert_eq!(digits, known);
    }
}
