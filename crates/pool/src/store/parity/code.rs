//! The erasure code of a stripe: XOR for one parity column, Reed-Solomon for more (ADR 35). Both work on pieces of 64
//! bytes, so that a segment can be rebuilt alone from parity that was computed for many rows at once.

use reed_solomon_simd::{ReedSolomonDecoder, ReedSolomonEncoder};

/// Computes the parity of `columns`, slices of one length, a multiple of 64 bytes.
pub(super) fn encode(columns: &[&[u8]], parity: &mut [&mut [u8]]) {
    if let [parity] = parity {
        parity.fill(0);
        columns.iter().for_each(|column| xor(parity, column));
        return;
    }
    let (data, count) = (columns.len(), parity.len());
    let mut encoder = ReedSolomonEncoder::new(data, count, columns[0].len())
        .expect("32 data columns, 4 parity columns and whole sectors are within the code's limits");
    for column in columns {
        encoder.add_original_shard(column).expect("as many columns of one length as announced");
    }
    let encoded = encoder.encode().expect("every column was added");
    for (to, from) in parity.iter_mut().zip(encoded.recovery_iter()) {
        to.copy_from_slice(from);
    }
}

/// Rebuilds the column `wanted` of a stripe into `out` from the intact columns and parity columns; `None` marks the
/// others. Returns `false` if too many are missing.
pub(super) fn rebuild(
    columns: &[Option<&[u8]>],
    parity: &[Option<&[u8]>],
    wanted: usize,
    out: &mut [u8],
) -> bool {
    let missing = columns.iter().filter(|column| column.is_none()).count();
    let intact = parity.iter().flatten().count();
    if columns[wanted].is_some() || missing > intact {
        return false;
    }
    if let [Some(parity)] = parity {
        out.copy_from_slice(parity);
        columns.iter().flatten().for_each(|column| xor(out, column));
        return true;
    }
    let Ok(mut decoder) = ReedSolomonDecoder::new(columns.len(), parity.len(), out.len()) else {
        return false;
    };
    let originals = columns.iter().enumerate().filter_map(|(n, column)| column.map(|bytes| (n, bytes)));
    let recovery = parity.iter().enumerate().filter_map(|(n, column)| column.map(|bytes| (n, bytes)));
    let mut originals = originals.map(|(n, bytes)| decoder.add_original_shard(n, bytes)).collect::<Vec<_>>();
    originals.extend(recovery.map(|(n, bytes)| decoder.add_recovery_shard(n, bytes)));
    if originals.iter().any(Result::is_err) {
        return false;
    }
    let Ok(decoded) = decoder.decode() else { return false };
    decoded.restored_original(wanted).is_some_and(|bytes| {
        out.copy_from_slice(bytes);
        true
    })
}

fn xor(into: &mut [u8], bytes: &[u8]) {
    into.iter_mut().zip(bytes).for_each(|(a, b)| *a ^= b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::codec::crc32c;

    /// Bytes that differ from column to column and from piece to piece.
    fn columns(data: usize, len: usize) -> Vec<Vec<u8>> {
        let byte = |n: usize, at: usize| (n * 31 + at * 7 + at / 64 * 13 + n * at % 251) as u8;
        (0..data).map(|n| (0..len).map(|at| byte(n, at)).collect()).collect()
    }

    fn parity_of(columns: &[Vec<u8>], count: usize) -> Vec<Vec<u8>> {
        let mut parity = vec![vec![0xEE; columns[0].len()]; count];
        let mut targets: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        encode(&columns.iter().map(Vec::as_slice).collect::<Vec<_>>(), &mut targets);
        parity
    }

    #[test]
    fn every_loss_of_as_many_columns_as_there_are_parity_columns_is_rebuilt() {
        for (data, count) in [(1, 1), (4, 1), (8, 1), (32, 1), (4, 2), (8, 2), (7, 3), (32, 4)] {
            let columns = columns(data, 192);
            let parity = parity_of(&columns, count);
            for lost in 0..1_u64 << (data + count).min(12) {
                // The lost columns are the first and the parity columns, by bit.
                let all = columns.iter().chain(&parity).enumerate();
                let shown: Vec<Option<&[u8]>> =
                    all.map(|(n, bytes)| (lost >> n & 1 == 0).then_some(&bytes[..])).collect();
                let (shown, shown_parity) = shown.split_at(data);
                let total = shown.iter().chain(shown_parity).filter(|bytes| bytes.is_none()).count();
                for wanted in (0..data).filter(|&n| shown[n].is_none()) {
                    let mut out = vec![0; 192];
                    let rebuilt = rebuild(shown, shown_parity, wanted, &mut out);
                    assert_eq!(rebuilt, total <= count, "{data}+{count}, lost {lost:#b}");
                    assert!(!rebuilt || out == columns[wanted], "{data}+{count}, lost {lost:#b}");
                }
            }
        }
    }

    #[test]
    fn a_segment_is_rebuilt_from_parity_of_many_rows() {
        for count in [1, 2, 4] {
            let columns = columns(8, 4096 * 3);
            let parity = parity_of(&columns, count);
            let row = 4096..8192;
            let mut shown: Vec<Option<&[u8]>> =
                columns.iter().map(|bytes| Some(&bytes[row.clone()])).collect();
            shown[5] = None;
            let parity: Vec<Option<&[u8]>> = parity.iter().map(|bytes| Some(&bytes[row.clone()])).collect();
            let mut out = vec![0; 4096];
            assert!(rebuild(&shown, &parity, 5, &mut out));
            assert!(out == columns[5][row], "{count}");
        }
    }

    #[test]
    fn the_parity_of_known_bytes_stays_the_same() {
        // Parity is on the device: another version of the code must compute the same.
        let columns = columns(8, 4096);
        let crcs = |count| parity_of(&columns, count).iter().map(|bytes| crc32c(bytes)).collect::<Vec<_>>();
        assert_eq!([1, 2, 4].map(crcs), KNOWN.map(<[u32]>::to_vec));
    }

    const KNOWN: [&[u32]; 3] = [
        &[3_115_788_841],
        &[1_759_186_962, 1_234_533_298],
        &[581_229_076, 2_565_480_965, 3_602_419_492, 1_303_911_573],
    ];
}
