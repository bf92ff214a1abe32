//! A rank of MPI. One thread of its own makes all calls of MPI, so that a library without support for threads will do; it sleeps while nobody
//! asks it for anything.

mod engine;
mod transfer;

use std::iter;
use std::ops::Add;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use firelight_training::{Communicator, CommunicatorError, OrderedSum, from_bf16_bytes, to_bf16_bytes};

use self::engine::{Engine, Order, TELLING};
use crate::{Launch, MpiError, MpiOptions};

/// How many numbers are added up at a time: few enough to stay in the cache of a core, and no message is longer than MPI can count. Segments of
/// 16 million took four to sixteen times as long for 33 million numbers on two ranks of one machine.
const SEGMENT: usize = firelight_training::scaling::SEGMENT;

/// How long MPI has to start at least, however short ranks wait for each other: processes come late on a machine that is busy.
const STARTING: Duration = Duration::from_secs(60);

/// What each rank hands over, in the order of ranks.
pub(crate) type Given = Vec<Vec<u8>>;

/// A rank that is a process.
pub(crate) struct Mpi {
    rank: usize,
    world: usize,
    local_world: usize,
    timeout: Duration,
    orders: Mutex<Sender<Order>>,
}

impl Mpi {
    /// Starts MPI and joins the ranks that `launch` describes.
    pub(crate) fn join(launch: Launch, options: MpiOptions) -> Result<Self, MpiError> {
        let ((orders, asked), (sender, receiver)) = (channel(), channel());
        let work = move || match Engine::start(options.timeout) {
            Ok(engine) => {
                let _ = sender.send(Ok((engine.rank, engine.world)));
                engine.serve(&asked);
            }
            Err(error) => drop(sender.send(Err(error))),
        };
        let unusable = |reason: String| MpiError::Unusable { reason };
        thread::Builder::new().name("mpi".into()).spawn(work).map_err(|error| unusable(error.to_string()))?;
        let (rank, world) = started(&receiver, options.timeout.max(STARTING))??;
        check(launch, [rank, world])?;
        let Launch { local_world, .. } = launch;
        Ok(Self { rank, world, local_world, timeout: options.timeout, orders: Mutex::new(orders) })
    }

    fn order(&self, order: Order) {
        let orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = orders.send(order); // whoever waits for an answer learns that the thread has ended
    }

    /// How long is waited for the thread where nothing depends on its answer.
    fn patience(&self) -> Duration {
        self.timeout.saturating_add(TELLING)
    }

    /// The answer of the thread. All meet within one timeout; what MPI does beside that, as in its end, has no deadline of its own.
    fn answered<T>(
        &self,
        operation: &'static str,
        answer: &Receiver<Result<T, CommunicatorError>>,
    ) -> Result<T, CommunicatorError> {
        let waited = self.patience().saturating_add(self.timeout);
        match answer.recv_timeout(waited) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => Err(CommunicatorError::Ended { rank: self.rank, operation }),
            Err(RecvTimeoutError::Timeout) => {
                self.hang_up();
                let missing = (0..self.world).filter(|&rank| rank != self.rank).collect();
                Err(CommunicatorError::Timeout { rank: self.rank, operation, missing, waited })
            }
        }
    }

    /// Hands each rank what is its own, and returns what all have for this one.
    fn exchange(&self, operation: &'static str, given: Given) -> Result<Given, CommunicatorError> {
        let (answer, answered) = channel();
        self.order(Order::Exchange { operation, given, answer });
        self.answered(operation, &answered)
    }

    pub(crate) fn leave(&self) -> Result<(), CommunicatorError> {
        let (answer, answered) = channel();
        self.order(Order::Leave { answer });
        self.answered("end", &answered)
    }

    /// Asks the thread for nothing more, which does not come back from MPI: who waits for it from now on learns that at once.
    fn hang_up(&self) {
        *self.orders.lock().unwrap_or_else(PoisonError::into_inner) = channel().0;
    }

    pub(crate) fn abort(&self, code: u8) {
        let (answer, answered) = channel();
        self.order(Order::Abort { code, answer });
        let _ = answered.recv_timeout(self.patience()); // comes only where all have parted
    }

    /// Each rank adds up one part of the values and hands its sums to the others, so that each sends and receives twice what it
    /// has, however many ranks there are. Source: reduce-scatter and all-gather, Rabenseifner 2004, Optimization of collective reduction
    /// operations, section 2; here every part goes straight to the rank that adds it up, in the order of the ranks.
    fn sum<T: Number<N>, const N: usize>(&self, values: &mut [T]) -> Result<(), CommunicatorError> {
        match values.len() {
            0 => self.sum_of::<T, N>(0, values), // ranks that have some are told of this one
            length => values.chunks_mut(SEGMENT).try_for_each(|segment| self.sum_of::<T, N>(length, segment)),
        }
    }

    /// The same for a segment of `length` values.
    fn sum_of<T: Number<N>, const N: usize>(&self, length: usize, segment: &mut [T]) -> Result<(), CommunicatorError> {
        let part = segment.len().div_ceil(self.world).max(1);
        let parts = segment.chunks(part).map(|part| written::<T, N>(length, part));
        let parts = parts.chain(iter::repeat_with(|| written::<T, N>(length, &[]))).take(self.world).collect();
        let given = self.exchange("sum", parts)?;
        let mut sums = OrderedSum::of(self.world);
        for (rank, bytes) in given.iter().enumerate() {
            sums.add(read::<T, N>(length, bytes).ok_or_else(|| self.other_length(rank, length))?, plus);
        }
        let own = written::<T, N>(length, &sums.finish(plus).unwrap_or_default());
        let all = self.exchange("sum", vec![own; self.world])?;
        for (rank, (part, bytes)) in iter::zip(segment.chunks_mut(part), all).enumerate() {
            part.copy_from_slice(&read::<T, N>(length, &bytes).ok_or_else(|| self.other_length(rank, length))?);
        }
        Ok(())
    }

    fn other_length(&self, rank: usize, length: usize) -> CommunicatorError {
        let problem = format!("it does not hand over {length} numbers as rank {} does", self.rank);
        CommunicatorError::Mismatch { rank, operation: "sum", problem }
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn world(&self) -> usize {
        self.world
    }

    fn local_world(&self) -> usize {
        self.local_world
    }

    fn gather(&self, operation: &'static str, bytes: Vec<u8>) -> Result<Arc<[Vec<u8>]>, CommunicatorError> {
        Ok(self.exchange(operation, vec![bytes; self.world])?.into())
    }

    fn fail(&self, reason: &str) {
        let (answer, answered) = channel();
        self.order(Order::Fail { reason: reason.into(), answer });
        let _ = answered.recv_timeout(self.patience());
    }

    fn sum_f32(&self, values: &mut [f32]) -> Result<(), CommunicatorError> {
        self.sum(values)
    }

    fn sum_f64(&self, values: &mut [f64]) -> Result<(), CommunicatorError> {
        self.sum(values)
    }

    fn sum_bf16(&self, values: &mut [f32]) -> Result<(), CommunicatorError> {
        let mut rounded: Vec<Rounded> = values.iter().copied().map(Rounded).collect();
        self.sum(&mut rounded)?;
        iter::zip(values, rounded).for_each(|(value, Rounded(sum))| *value = sum);
        Ok(())
    }
}

/// A number that is rounded to `bf16` whenever it travels, and added up in single precision.
#[derive(Clone, Copy)]
struct Rounded(f32);

impl Add for Rounded {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// The message of the thread that MPI has started, which it sends only after all ranks have joined.
fn started<T>(receiver: &Receiver<T>, patience: Duration) -> Result<T, MpiError> {
    receiver.recv_timeout(patience).map_err(|error| MpiError::Unusable {
        reason: match error {
            RecvTimeoutError::Disconnected => "it ended while it was started".into(),
            RecvTimeoutError::Timeout => format!(
                "it has not started within {} s; did all ranks start, and do their machines reach each other?",
                patience.as_secs()
            ),
        },
    })
}

/// Refuses an MPI that finds another rank of another world than the launcher started.
fn check(launch: Launch, [found_rank, found_world]: [usize; 2]) -> Result<(), MpiError> {
    let Launch { rank, world, variable, .. } = launch;
    match [rank, world] == [found_rank, found_world] {
        true => Ok(()),
        false => Err(MpiError::OtherLauncher { variable, rank, world, found_rank, found_world }),
    }
}

/// A number as it travels.
trait Number<const N: usize>: Copy + Add<Output = Self> {
    fn bytes(self) -> [u8; N];
    fn of(bytes: [u8; N]) -> Self;
}

impl Number<4> for f32 {
    fn bytes(self) -> [u8; 4] {
        self.to_le_bytes()
    }

    fn of(bytes: [u8; 4]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

impl Number<2> for Rounded {
    fn bytes(self) -> [u8; 2] {
        to_bf16_bytes(self.0)
    }

    fn of(bytes: [u8; 2]) -> Self {
        Self(from_bf16_bytes(bytes))
    }
}

impl Number<8> for f64 {
    fn bytes(self) -> [u8; 8] {
        self.to_le_bytes()
    }

    fn of(bytes: [u8; 8]) -> Self {
        Self::from_le_bytes(bytes)
    }
}

/// A part of so many numbers.
fn written<T: Number<N>, const N: usize>(length: usize, part: &[T]) -> Vec<u8> {
    let mut bytes = (length as u64).to_le_bytes().to_vec();
    bytes.resize(bytes.len() + N * part.len(), 0);
    let (places, _) = bytes[size_of::<u64>()..].as_chunks_mut();
    iter::zip(places, part).for_each(|(place, number)| *place = number.bytes());
    bytes
}

/// A part of as many numbers; none if there were others.
fn read<T: Number<N>, const N: usize>(length: usize, bytes: &[u8]) -> Option<Vec<T>> {
    let (found, part) = bytes.split_first_chunk()?;
    let part = || part.as_chunks().0.iter().map(|bytes| T::of(*bytes)).collect();
    (u64::from_le_bytes(*found) == length as u64).then(part)
}

fn plus<T: Copy + Add<Output = T>>(mut one: Vec<T>, other: Vec<T>) -> Vec<T> {
    iter::zip(&mut one, other).for_each(|(one, other)| *one = *one + other);
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank whose thread does not come back from MPI, and what it is asked for.
    fn in_vain() -> (Mpi, Receiver<Order>) {
        let (orders, asked) = channel();
        let (timeout, orders) = (Duration::from_millis(5), Mutex::new(orders));
        (Mpi { rank: 1, world: 3, local_world: 1, timeout, orders }, asked)
    }

    #[test]
    fn an_exchange_that_mpi_does_not_come_back_from_is_not_waited_for_without_end() {
        let (mpi, asked) = in_vain();
        let waited = Duration::from_millis(10) + TELLING;
        let expected = CommunicatorError::Timeout { rank: 1, operation: "sum", missing: vec![0, 2], waited };
        assert_eq!(mpi.sum_f32(&mut [1.0]), Err(expected));
        assert!(matches!(asked.recv(), Ok(Order::Exchange { operation: "sum", .. })));
        assert_eq!(mpi.barrier(), Err(CommunicatorError::Ended { rank: 1, operation: "barrier" }));
    }

    #[test]
    fn an_end_that_mpi_does_not_come_to_is_not_waited_for_without_end() {
        let (mpi, asked) = in_vain();
        let waited = Duration::from_millis(10) + TELLING;
        let expected = CommunicatorError::Timeout { rank: 1, operation: "end", missing: vec![0, 2], waited };
        assert_eq!(mpi.leave(), Err(expected));
        assert!(matches!(asked.recv(), Ok(Order::Leave { .. })));
        // Nothing more reaches the thread, so that the process can end.
        mpi.fail("it did not end");
        mpi.abort(1);
        assert!(asked.recv().is_err());
        assert_eq!(mpi.barrier(), Err(CommunicatorError::Ended { rank: 1, operation: "barrier" }));
    }

    #[test]
    fn an_mpi_that_does_not_start_is_not_waited_for_without_end() {
        let (sender, receiver) = channel();
        let error = started::<()>(&receiver, Duration::from_millis(5)).unwrap_err().to_string();
        assert!(error.starts_with("MPI cannot be used: it has not started within 0 s; did all ranks start"), "{error}");
        sender.send(()).unwrap();
        started(&receiver, Duration::from_secs(60)).unwrap();
        drop(sender);
        let error = started(&receiver, Duration::from_secs(60)).unwrap_err().to_string();
        assert!(error.ends_with("it ended while it was started"), "{error}");
    }

    #[test]
    fn another_place_than_that_of_the_launcher_is_refused() {
        let variable = "OMPI_COMM_WORLD_SIZE";
        let launch = Launch { rank: 2, world: 4, variable, local_rank: 0, local_world: 1, cores: None };
        check(launch, [2, 4]).unwrap();
        for (found, text) in [([0, 1], "MPI finds 1 and this as rank 0"), ([3, 4], "MPI finds 4 and this as rank 3")] {
            let error = check(launch, found).unwrap_err().to_string();
            assert!(
                error.contains("OMPI_COMM_WORLD_SIZE=4 and this is rank 2 of them") && error.contains(text),
                "{error}"
            );
        }
    }
}
