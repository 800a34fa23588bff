//! A table of items under way, by reusable numbers.

/// Items by number. The number of an item that is taken is given to a later one.
pub(crate) struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { items: Vec::new(), free: Vec::new() }
    }

    /// Adds an item. Returns its number.
    #[inline]
    pub(crate) fn add(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(at) => {
                self.items[at as usize] = Some(item);
                at
            }
            None => {
                self.items.push(Some(item));
                (self.items.len() - 1) as u32
            }
        }
    }

    #[inline]
    pub(crate) fn get(&mut self, at: u32) -> Option<&mut T> {
        self.items.get_mut(at as usize).and_then(Option::as_mut)
    }

    /// Removes an item.
    #[inline]
    pub(crate) fn take(&mut self, at: u32) -> Option<T> {
        let item = self.items.get_mut(at as usize)?.take();
        if item.is_some() {
            self.free.push(at);
        }
        item
    }

    /// The items under way.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter().flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.len() == self.free.len()
    }
}
