use std::{
    cell::Cell,
    io::{self, Read},
    rc::Rc,
};

/// Bound on the text of one series, and on everything outside of the series.
pub(super) const MAX_SERIES_BYTES: usize = 1 << 20;

/// Fails when more than [`MAX_SERIES_BYTES`] were read since `unparsed` was set to zero.
pub(super) struct LimitedReader<R> {
    inner: R,
    unparsed: Rc<Cell<usize>>,
}

impl<R> LimitedReader<R> {
    pub(super) fn new(inner: R, unparsed: Rc<Cell<usize>>) -> Self {
        Self { inner, unparsed }
    }
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.unparsed.set(self.unparsed.get().saturating_add(read));
        if self.unparsed.get() > MAX_SERIES_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok(read)
    }
}
