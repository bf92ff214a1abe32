//! Bytes on their way, which MPI reads or writes until it is done with them.

use std::mem;

use mpi::request::Request;

/// Bytes on their way. Dropped before they have arrived they stay in memory for ever, for nobody can tell MPI to let go of them.
pub(super) struct Transfer {
    request: Option<Request<'static, [u8]>>,
    bytes: *mut [u8],
}

impl Transfer {
    /// `start` begins to send the bytes.
    pub(super) fn of(bytes: Vec<u8>, start: impl FnOnce(&'static [u8]) -> Request<'static, [u8]>) -> Self {
        let bytes = Box::into_raw(bytes.into_boxed_slice());
        // SAFETY: `bytes` points to an allocation that `arrived` alone frees, when MPI is done with it.
        let request = Some(start(unsafe { &*bytes }));
        Self { request, bytes }
    }

    /// `start` begins to receive so many bytes.
    pub(super) fn into(length: usize, start: impl FnOnce(&'static mut [u8]) -> Request<'static, [u8]>) -> Self {
        let bytes = Box::into_raw(vec![0; length].into_boxed_slice());
        // SAFETY: as in `of`; nobody else has the pointer.
        let request = Some(start(unsafe { &mut *bytes }));
        Self { request, bytes }
    }

    /// The bytes, when they have arrived, once.
    pub(super) fn arrived(&mut self) -> Option<Vec<u8>> {
        match self.request.take()?.test() {
            // SAFETY: the pointer came from a box, MPI is done with it, and without a request nobody comes here again.
            Ok(_) => Some(unsafe { Box::from_raw(self.bytes) }.into_vec()),
            Err(request) => {
                self.request = Some(request);
                None
            }
        }
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        mem::forget(self.request.take());
    }
}
