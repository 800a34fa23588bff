//! The page map: logical page to physical page and to the sectors written in it.
//!
//! Memory follows what is written: the directory holds one number for eight pages, and leaves of eight
//! pages exist where something is mapped. A million pages strewn over half a terabyte take 100 MB, not
//! half a gigabyte.

/// No physical page.
pub(crate) const NONE: u32 = u32::MAX;

const LEAF: usize = 8;

#[derive(Debug, Clone, Copy)]
struct Leaf {
    physical: [u32; LEAF],
    sectors: [u32; LEAF],
}

/// Logical to physical.
#[derive(Debug, Clone)]
pub(crate) struct PageMap {
    /// Leaf number plus one; 0 where there is none.
    directory: Vec<u32>,
    leaves: Vec<Leaf>,
}

impl PageMap {
    pub(crate) fn new(pages: u64) -> Self {
        Self { directory: vec![0; (pages as usize).div_ceil(LEAF)], leaves: Vec::new() }
    }

    /// Where the page is and which of its sectors are written; [`NONE`] and 0 if it is not mapped.
    #[inline]
    pub(crate) fn get(&self, logical: u32) -> (u32, u32) {
        match self.directory[logical as usize / LEAF] {
            0 => (NONE, 0),
            leaf => {
                let leaf = &self.leaves[leaf as usize - 1];
                let index = logical as usize % LEAF;
                (leaf.physical[index], leaf.sectors[index])
            }
        }
    }

    #[inline]
    pub(crate) fn set(&mut self, logical: u32, physical: u32, sectors: u32) {
        let entry = &mut self.directory[logical as usize / LEAF];
        if *entry == 0 {
            if physical == NONE {
                return;
            }
            self.leaves.push(Leaf { physical: [NONE; LEAF], sectors: [0; LEAF] });
            *entry = self.leaves.len() as u32;
        }
        let leaf = &mut self.leaves[*entry as usize - 1];
        leaf.physical[logical as usize % LEAF] = physical;
        leaf.sectors[logical as usize % LEAF] = sectors;
    }

    /// All mapped pages: logical, physical.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.directory.iter().enumerate().filter(|(_, leaf)| **leaf != 0).flat_map(|(number, leaf)| {
            let leaf = &self.leaves[*leaf as usize - 1];
            (0..LEAF)
                .filter(|index| leaf.physical[*index] != NONE)
                .map(move |index| ((number * LEAF + index) as u32, leaf.physical[index]))
        })
    }
}
