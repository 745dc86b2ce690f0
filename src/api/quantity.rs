//! A Kubernetes quantity (`500m`, `2Gi`), in the spelling that the API server gives back. Pure.
//!
//! The API server rewrites quantities (`1024Mi` becomes `1Gi`); if we compared another spelling with
//! what it stores, every pass of the controller would see a difference.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};

/// An amount as written, a number or a text; see [`Quantity::thousandths`] for its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Quantity(pub String);

const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 6] = ["k", "M", "G", "T", "P", "E"];

impl Quantity {
    /// The amount in thousandths, rounded up (as Kubernetes does); `None` when the text is no amount, is
    /// negative, or is too large to be meant.
    pub fn thousandths(&self) -> Option<u128> {
        let text = self.0.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, suffix) = text.split_at(digits);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') || number.len() > 20 {
            return None;
        }
        // mantissa / 10^fraction digits * scale, where scale already counts in thousandths
        let mantissa: u128 = format!("{whole}{fraction}").parse().ok()?;
        let divisor = 10_u128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        let scale = match suffix {
            "m" => 1,
            "" => 1000,
            other => 1000 * multiplier(other)?,
        };
        Some(mantissa.checked_mul(scale)?.div_ceil(divisor))
    }

    /// Whole units (bytes, cores), rounded up.
    pub fn units(&self) -> Option<u64> {
        u64::try_from(self.thousandths()?.div_ceil(1000)).ok()
    }

    /// The API server's own spelling of this amount.
    pub fn canonical(&self) -> Option<String> {
        let thousandths = self.thousandths()?;
        if !thousandths.is_multiple_of(1000) {
            return Some(format!("{thousandths}m"));
        }
        let units = thousandths / 1000;
        let binary = self.0.ends_with('i') && units >= 1024;
        Some(if binary { shorten(units, 1024, &BINARY) } else { shorten(units, 1000, &DECIMAL) })
    }
}

fn multiplier(suffix: &str) -> Option<u128> {
    let power = |suffixes: &[&str], base: u128| {
        let exponent = suffixes.iter().position(|s| *s == suffix)? + 1;
        base.checked_pow(u32::try_from(exponent).ok()?)
    };
    power(&BINARY, 1024).or_else(|| power(&DECIMAL, 1000))
}

fn shorten(mut units: u128, base: u128, suffixes: &[&str]) -> String {
    let mut suffix = "";
    for next in suffixes {
        if units == 0 || !units.is_multiple_of(base) {
            break;
        }
        units /= base;
        suffix = next;
    }
    format!("{units}{suffix}")
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i64),
            Text(String),
        }
        Ok(match Written::deserialize(deserializer)? {
            Written::Number(number) => Self(number.to_string()),
            Written::Text(text) => Self(text),
        })
    }
}

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "maxLength": 24,
            "pattern": "^([0-9]+([.][0-9]*)?|[.][0-9]+)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_spelled_as_the_api_server_does() {
        for (written, units, canonical) in [
            ("0", 0, "0"),
            ("1024Mi", 1 << 30, "1Gi"),
            ("1.5Gi", 1536 << 20, "1536Mi"),
            ("1073741824", 1 << 30, "1073741824"),
            ("2000000000", 2_000_000_000, "2G"),
            ("0.5", 1, "500m"),
            ("1500m", 2, "1500m"),
            ("2000m", 2, "2"),
            (".25", 1, "250m"),
            ("512Ki", 512 << 10, "512Ki"),
        ] {
            let quantity = Quantity(written.to_owned());
            assert_eq!(quantity.units(), Some(units), "{written}");
            assert_eq!(quantity.canonical().as_deref(), Some(canonical), "{written}");
        }
    }

    #[test]
    fn what_is_no_amount_has_no_value() {
        for written in ["", ".", "much", "-1", "1.2.3", "1Gib", "1e3", "99999999999999999999999"] {
            assert_eq!(Quantity(written.to_owned()).thousandths(), None, "{written}");
        }
    }
}
