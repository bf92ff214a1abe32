//! The bytes of a header one after the other. No length that a file tells is believed before the file has so many bytes.

use std::path::Path;

use firelight_storage::InputError;

/// A place in the bytes of a file.
pub(super) struct Reader<'a> {
    file: &'a Path,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(file: &'a Path, bytes: &'a [u8]) -> Self {
        Self { file, bytes, at: 0 }
    }

    pub(super) fn file(&self) -> &'a Path {
        self.file
    }

    /// How many bytes are read.
    pub(super) fn place(&self) -> usize {
        self.at
    }

    /// How many bytes there are.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The next bytes, which are `what`.
    pub(super) fn take(&mut self, len: usize, what: &str) -> Result<&'a [u8], InputError> {
        let found = self.bytes.get(self.at..).and_then(|rest| rest.get(..len));
        let found = found.ok_or_else(|| self.short(len as u64, what))?;
        self.at += len;
        Ok(found)
    }

    /// The next bytes, as many as a number has.
    pub(super) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], InputError> {
        let mut found = [0; N];
        found.copy_from_slice(self.take(N, what)?);
        Ok(found)
    }

    pub(super) fn u32(&mut self, what: &str) -> Result<u32, InputError> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &str) -> Result<u64, InputError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A number of things that take `least` bytes each.
    pub(super) fn count(&mut self, least: usize, what: &str) -> Result<usize, InputError> {
        let stated = self.u64(what)?;
        let rest = self.bytes.len() - self.at;
        match usize::try_from(stated) {
            Ok(count) if count <= rest / least.max(1) => Ok(count),
            _ => {
                let problem = format!(
                    "tells of {stated} {what}, but has {rest} bytes behind byte {}, which hold at most {}",
                    self.at,
                    rest / least.max(1)
                );
                Err(self.damaged(&problem))
            }
        }
    }

    /// A text with its length in front.
    pub(super) fn text(&mut self, what: &str) -> Result<&'a str, InputError> {
        let stated = self.u64(what)?;
        let len = usize::try_from(stated).map_err(|_| self.short(stated, what))?;
        let bytes = self.take(len, what)?;
        std::str::from_utf8(bytes).map_err(|_| self.damaged(&format!("has {what} that is no UTF-8")))
    }

    fn short(&self, len: u64, what: &str) -> InputError {
        let rest = self.bytes.len() - self.at;
        self.damaged(&format!("is cut short: {what} takes {len} bytes behind byte {}, found {rest}", self.at))
    }

    /// An error of a file that is not what it should be.
    pub(super) fn damaged(&self, problem: &str) -> InputError {
        InputError::in_file(self.file, problem).advise("download it again")
    }
}
