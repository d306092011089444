//! Packed little-endian arrays, `[u32; n]` and the like in `proto/shard.proto`.

use bytes::Bytes;

/// `[u32; n]`
pub(super) fn pack_u32(values: impl Iterator<Item = u32>) -> Bytes {
    let mut packed = Vec::with_capacity(values.size_hint().0 * 4);
    values.for_each(|value| packed.extend_from_slice(&value.to_le_bytes()));
    packed.into()
}

/// `[u64; n]`
pub(super) fn pack_u64(values: impl Iterator<Item = u64>) -> Bytes {
    let mut packed = Vec::with_capacity(values.size_hint().0 * 8);
    values.for_each(|value| packed.extend_from_slice(&value.to_le_bytes()));
    packed.into()
}

/// `[f32; n]`
pub(super) fn pack_f32(values: impl Iterator<Item = f32>) -> Bytes {
    pack_u32(values.map(f32::to_bits))
}

/// Reads `[u32; count]`.
///
/// # Errors
/// The field's name and both lengths, when it holds another number of bytes.
pub(super) fn unpack_u32<'a>(
    field: &str,
    packed: &'a [u8],
    count: usize,
) -> Result<impl Iterator<Item = u32> + use<'a>, String> {
    let (values, rest) = packed.as_chunks::<4>();
    if values.len() != count || !rest.is_empty() {
        return Err(format!("{field} holds {} bytes, not {count} × 4", packed.len()));
    }
    Ok(values.iter().map(|value| u32::from_le_bytes(*value)))
}

/// Reads `[f32; count]`; errors as [`unpack_u32`].
pub(super) fn unpack_f32<'a>(
    field: &str,
    packed: &'a [u8],
    count: usize,
) -> Result<impl Iterator<Item = f32> + use<'a>, String> {
    Ok(unpack_u32(field, packed, count)?.map(f32::from_bits))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn u32_survive_packing(values in prop::collection::vec(any::<u32>(), 0..50)) {
            let packed = pack_u32(values.iter().copied());
            let unpacked: Vec<_> = unpack_u32("x", &packed, values.len()).expect("its own length").collect();
            prop_assert_eq!(unpacked, values);
        }

        #[test]
        fn f32_survive_packing_bit_for_bit_nan_too(bits in prop::collection::vec(any::<u32>(), 0..50)) {
            let packed = pack_f32(bits.iter().map(|&bits| f32::from_bits(bits)));
            let unpacked: Vec<_> = unpack_f32("x", &packed, bits.len()).expect("its own length").collect();
            prop_assert_eq!(unpacked.into_iter().map(f32::to_bits).collect::<Vec<_>>(), bits);
        }

        #[test]
        fn any_other_length_is_an_error_that_names_the_field(bytes in 0usize..40, count in 0usize..10) {
            let packed = vec![7; bytes];
            let read = unpack_u32("token_ids", &packed, count).map(|values| values.count());
            match read {
                Ok(read) => prop_assert_eq!((read, bytes), (count, count * 4)),
                Err(error) => prop_assert!(bytes != count * 4 && error.contains("token_ids")),
            }
        }
    }

    #[test]
    fn the_bytes_are_little_endian() {
        assert_eq!(&pack_u32([1, 0x0203].into_iter())[..], [1, 0, 0, 0, 3, 2, 0, 0]);
        assert_eq!(&pack_u64([0x0102].into_iter())[..], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(&pack_f32([1.0].into_iter())[..], [0, 0, 0x80, 0x3f]);
    }
}
