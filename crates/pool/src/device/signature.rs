//! Finds existing content on a device by the signatures of file systems and volume managers, so that creating a pool
//! does not destroy that content unasked.

use std::io;

use super::{ALIGN, Device};
use crate::format::header::{HEADER_OFFSETS, MAGIC};
use deepram_linux::buffer::AlignedBuf;

/// Size of the searched range at each end of the device, in bytes.
const WINDOW: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// A known signature: what it identifies, its offset from the start, its bytes.
type KnownSignature = (&'static str, u64, &'static [u8]);

const POOL: &str = "a deepram pool";
const RAID: &str = "a Linux RAID member";
const RAID_MAGIC: &[u8] = b"\xFC\x4E\x2B\xA9";
const PARTITIONS: &str = "a partition table (GPT)";
const GPT: &[u8] = b"EFI PART";
const LVM: &str = "an LVM physical volume";
const ZFS: &str = "a ZFS device";
/// The magic number of a ZFS uberblock, in both byte orders.
const UBERBLOCK: [&[u8]; 2] = [b"\x0C\xB1\xBA\0\0\0\0\0", b"\0\0\0\0\0\xBA\xB1\x0C"];
const ZFS_LABEL: u64 = 256 * KIB;

const KNOWN: [KnownSignature; 53] = [
    (POOL, HEADER_OFFSETS[0], &MAGIC),
    (POOL, HEADER_OFFSETS[1], &MAGIC),
    ("an ext2, ext3 or ext4 file system", 0x438, b"\x53\xEF"),
    ("an XFS file system", 0, b"XFSB"),
    ("an XFS log", 0, b"\xFE\xED\xBA\xBE"),
    ("a Btrfs file system", 0x1_0040, b"_BHRfS_M"),
    ("an F2FS file system", 0x400, b"\x10\x20\xF5\xF2"),
    ("a bcachefs file system or bcache device", 0x1018, b"\xC6\x85\x73\xF6"),
    ("swap space", 4086, b"SWAPSPACE2"),
    ("swap space", 4086, b"SWAP-SPACE"),
    ("swap space", 65526, b"SWAPSPACE2"),
    ("a hibernated system's memory", 4086, b"S1SUSPEND"),
    ("a hibernated system's memory", 4086, b"S2SUSPEND"),
    ("a hibernated system's memory", 4086, b"LINHIB0001"),
    (LVM, 0, b"LABELONE"),
    (LVM, 512, b"LABELONE"),
    (LVM, 1024, b"LABELONE"),
    (LVM, 1536, b"LABELONE"),
    ("a LUKS container", 0, b"LUKS\xBA\xBE"),
    ("a LUKS container", 0x4000, b"SKUL\xBA\xBE"),
    ("a BitLocker volume", 3, b"-FVE-FS-"),
    (RAID, 0, RAID_MAGIC),
    (RAID, 4096, RAID_MAGIC),
    (PARTITIONS, 512, GPT),
    (PARTITIONS, 4096, GPT),
    ("a partition table or a boot sector", 510, b"\x55\xAA"),
    ("an NTFS file system", 3, b"NTFS    "),
    ("an exFAT file system", 3, b"EXFAT   "),
    ("a FAT file system", 0x36, b"FAT1"),
    ("a FAT file system", 0x52, b"FAT32   "),
    ("an APFS container", 32, b"NXSB"),
    ("an HFS+ file system", 0x400, b"H+"),
    ("an HFS+ file system", 0x400, b"HX"),
    ("an Apple partition table", 512, b"PM\0\0"),
    ("a JFS file system", 0x8000, b"JFS1"),
    ("a ReiserFS file system", 0x1_0034, b"ReIsEr"),
    ("a ReiserFS file system", 0x2034, b"ReIsEr"),
    ("a Reiser4 file system", 0x1_0000, b"ReIsEr4"),
    ("a NILFS2 file system", 0x406, b"\x34\x34"),
    ("a GFS2 file system", 0x1_0000, b"\x01\x16\x19\x70"),
    ("an OCFS2 file system", 0x2000, b"OCFSV2"),
    ("a UFS file system", 0x255C, b"\x19\x01\x54\x19"),
    ("a UFS file system", 0x1_055C, b"\x19\x01\x54\x19"),
    ("an ISO 9660 file system", 0x8001, b"CD001"),
    ("a UDF file system", 0x8001, b"BEA01"),
    ("a SquashFS file system", 0, b"hsqs"),
    ("an EROFS file system", 0x400, b"\xE2\xE1\xF5\xE0"),
    ("a cramfs file system", 0, b"\x45\x3D\xCD\x28"),
    ("a Ceph BlueStore device", 0, b"bluestore block device"),
    ("a VDO volume", 0, b"dmvdo001"),
    ("a Stratis device", 516, b"!Stra0tis\x86\xFF\x02^Arh"),
    ("an Oracle ASM disk", 32, b"ORCLDISK"),
    ("a Windows storage space", 4096, b"SPACEDB "),
];

/// A signature that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The content that it identifies, with its article.
    pub(crate) what: &'static str,
    /// Offset from the start, in bytes.
    offset: u64,
}

/// A part of a device in memory.
struct DeviceWindow {
    start: u64,
    bytes: AlignedBuf,
}

impl DeviceWindow {
    fn read(device: &dyn Device, start: u64, end: u64) -> io::Result<Self> {
        let len = (end - start) as usize;
        let mut bytes = AlignedBuf::zeroed(len);
        device.read(start, &mut bytes[..len])?;
        Ok(Self { start, bytes })
    }

    fn has(&self, offset: u64, magic: &[u8]) -> bool {
        let at = offset.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        at.is_some_and(|at| self.bytes.get(at..).is_some_and(|rest| rest.starts_with(magic)))
    }
}

/// Returns the signatures on a device; none if the device holds no known content.
///
/// # Errors
/// The device's errors.
pub(crate) fn find(device: &dyn Device) -> io::Result<Vec<Signature>> {
    let len = device.len();
    let head = DeviceWindow::read(device, 0, len.min(WINDOW))?;
    let tail = DeviceWindow::read(device, len.saturating_sub(WINDOW), len)?;
    let mut found = Vec::new();
    let mut search = |what, offset, magic: &[u8]| {
        if head.has(offset, magic) || tail.has(offset, magic) {
            found.push(Signature { what, offset });
        }
    };
    KNOWN.iter().for_each(|&(what, offset, magic)| search(what, offset, magic));
    // Signatures relative to the end: older RAID formats, the second partition table.
    for offset in [
        (len / (64 * KIB)).checked_sub(1).map(|n| n * 64 * KIB),
        (len / 4096).checked_sub(2).map(|n| n * 4096),
    ] {
        offset.into_iter().for_each(|offset| search(RAID, offset, RAID_MAGIC));
    }
    for unit in [512, 4096] {
        len.checked_sub(unit).into_iter().for_each(|offset| search(PARTITIONS, offset, GPT));
    }
    // ZFS has four labels, two at each end, with uberblocks in their second half.
    let end = len / ZFS_LABEL * ZFS_LABEL;
    let labels = [Some(0), Some(ZFS_LABEL), end.checked_sub(2 * ZFS_LABEL), end.checked_sub(ZFS_LABEL)];
    for label in labels.into_iter().flatten() {
        for offset in (label + ZFS_LABEL / 2..label + ZFS_LABEL).step_by(KIB as usize) {
            UBERBLOCK.iter().for_each(|magic| search(ZFS, offset, magic));
        }
    }
    Ok(found)
}

/// Overwrites the signatures with zeros, durably, so that no tool takes the device for its former content.
///
/// # Errors
/// The device's errors.
pub(crate) fn wipe(device: &dyn Device, signatures: &[Signature]) -> io::Result<()> {
    let zeros = AlignedBuf::zeroed(ALIGN);
    let mut places: Vec<u64> = signatures.iter().map(|found| found.offset / ALIGN as u64).collect();
    places.dedup();
    places.iter().try_for_each(|place| device.write(place * ALIGN as u64, &zeros))?;
    device.flush()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Memory(Mutex<Vec<u8>>);

    impl Device for Memory {
        fn len(&self) -> u64 {
            self.0.lock().unwrap().len() as u64
        }

        fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            buf.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..buf.len()]);
            Ok(())
        }

        fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
            self.0.lock().unwrap()[offset as usize..][..buf.len()].copy_from_slice(buf);
            Ok(())
        }

        fn flush(&self) -> io::Result<()> {
            Ok(())
        }

        fn name(&self) -> String {
            "memory".into()
        }
    }

    fn holding(len: u64, offset: u64, magic: &[u8]) -> Memory {
        let mut bytes = vec![0; len as usize];
        bytes[offset as usize..][..magic.len()].copy_from_slice(magic);
        Memory(Mutex::new(bytes))
    }

    #[test]
    fn every_mark_is_found_and_wiped() {
        // This length is not a multiple of the alignments of the signatures at the end.
        let len = (3 << 20) + 12 * KIB;
        let mut marks = KNOWN.to_vec();
        for offset in [len / 65536 * 65536 - 65536, (len / 512 - 16) / 8 * 8 * 512] {
            marks.push((RAID, offset, RAID_MAGIC));
        }
        marks.extend([(PARTITIONS, len - 512, GPT), (PARTITIONS, len - 4096, GPT)]);
        for label in [0, ZFS_LABEL, len / ZFS_LABEL * ZFS_LABEL - ZFS_LABEL] {
            marks.extend(UBERBLOCK.map(|magic| (ZFS, label + 131 * KIB, magic)));
        }
        for (what, offset, magic) in marks {
            let device = holding(len, offset, magic);
            let found = find(&device).unwrap();
            assert!(found.iter().any(|found| found.what == what), "{what} at {offset}: {found:?}");
            wipe(&device, &found).unwrap();
            assert_eq!(find(&device).unwrap(), [], "{what} at {offset}");
        }
    }

    #[test]
    fn a_device_of_any_length_is_looked_at() {
        for len in [0, 4096, 8192, 64 * KIB, 512 * KIB, WINDOW - 4096, WINDOW, WINDOW + 4096] {
            assert_eq!(find(&holding(len, 0, &[])).unwrap(), [], "{len}");
        }
        assert_eq!(find(&holding(4096, 0, b"XFSB")).unwrap().len(), 1);
    }
}
