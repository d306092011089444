//! JSON numbers with the range in the error: "expected a whole number from 0 to 4294967295", never "expected u32".

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor, value::MapAccessDeserializer};

/// A number that `f32` holds, or null.
pub(crate) fn real<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f32>, D::Error> {
    Ok(Option::<Real>::deserialize(deserializer)?.map(|number| number.0))
}

/// A whole number in the range of `T`, or null.
pub(crate) fn whole<'de, D: Deserializer<'de>, T: WholeRange>(deserializer: D) -> Result<Option<T>, D::Error> {
    Ok(Option::<Whole<T>>::deserialize(deserializer)?.map(|number| number.0))
}

/// An integer type that [`whole`] reads.
pub(crate) trait WholeRange: Sized + TryFrom<u64> + TryFrom<i64> + fmt::Display {
    const MIN: Self;
    const MAX: Self;
}

macro_rules! whole_range {
    ($($int:ty),*) => {
        $(impl WholeRange for $int {
            const MIN: Self = <$int>::MIN;
            const MAX: Self = <$int>::MAX;
        })*
    };
}
whole_range!(u32, u64, i32);

/// A number that `f32` holds; larger ones are an error, not infinity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Real(pub f32);

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RealVisitor)
    }
}

struct RealVisitor;

impl Visitor<'_> for RealVisitor {
    type Value = Real;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a number from {:e} to {:e}", f32::MIN, f32::MAX)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Real, E> {
        let narrow = value as f32;
        if narrow.is_finite() { Ok(Real(narrow)) } else { Err(E::invalid_value(Unexpected::Float(value), &self)) }
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Real, E> {
        Ok(Real(value as f32))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Real, E> {
        Ok(Real(value as f32))
    }
}

/// A whole number in the range of `T`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whole<T>(pub T);

impl<'de, T: WholeRange> Deserialize<'de> for Whole<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WholeVisitor(PhantomData))
    }
}

struct WholeVisitor<T>(PhantomData<T>);

impl<T: WholeRange> Visitor<'_> for WholeVisitor<T> {
    type Value = Whole<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from {} to {}", T::MIN, T::MAX)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Whole<T>, E> {
        T::try_from(value).map(Whole).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Whole<T>, E> {
        T::try_from(value).map(Whole).map_err(|_| E::invalid_value(Unexpected::Signed(value), &self))
    }
}

/// A whole number as the key of an object, where JSON knows strings only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(pub u32);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(KeyVisitor)
    }
}

struct KeyVisitor;

impl Visitor<'_> for KeyVisitor {
    type Value = Key;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a key that is a whole number from 0 to {}, in quotes", u32::MAX)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Key, E> {
        text.parse().map(Key).map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

/// A `T` written as a JSON object. serde would also take a struct's fields as an array, in the order of our source.
#[derive(Clone, Debug, Default)]
pub(crate) struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}
