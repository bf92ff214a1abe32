//! The thread that makes all calls of MPI. It starts messages and asks again and again whether they have arrived, so that every wait ends at its
//! deadline, or with the news that another rank has failed.

use std::mem::ManuallyDrop;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use firelight_training::CommunicatorError;
use mpi::Threading;
use mpi::environment::Universe;
use mpi::request::StaticScope;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Equivalence, Source};

use super::Given;
use super::transfer::Transfer;
use crate::MpiError;

/// The tags of messages: what ranks hand over, and that one has failed.
const GIVEN: i32 = 1;
const FAILED: i32 = 2;

/// A reason is no longer than what MPI sends without waiting for its receiver, in bytes.
const LONGEST_REASON: usize = 2000;

/// How long a rank that fails sees to it that the others are told.
pub(super) const TELLING: Duration = Duration::from_secs(2);

/// How often is asked in a row, before the thread sleeps in between.
const EAGER: usize = 2000;

/// How long it sleeps: little beside a step, and enough to leave the core to those that compute.
const NAP: Duration = Duration::from_micros(100);

/// What the thread is asked for.
pub(super) enum Order {
    Exchange { operation: &'static str, given: Given, answer: Sender<Result<Given, CommunicatorError>> },
    Fail { reason: String, answer: Sender<()> },
    Leave { answer: Sender<Result<(), CommunicatorError>> },
    Abort { code: u8, answer: Sender<()> },
}

/// MPI, as the thread knows it.
pub(super) struct Engine {
    pub(super) rank: usize,
    pub(super) world: usize,
    timeout: Duration,
    ranks: SimpleCommunicator,
    failure: Option<CommunicatorError>,
    /// MPI, which ends when it is dropped, and then waits for the other ranks: only where all part.
    universe: ManuallyDrop<Universe>,
}

impl Engine {
    pub(super) fn start(timeout: Duration) -> Result<Self, MpiError> {
        let unusable = |reason: &str| MpiError::Unusable { reason: reason.into() };
        let (universe, _) = mpi::initialize_with_threading(Threading::Funneled)
            .ok_or_else(|| unusable("this process has started it already"))?;
        let ranks = universe.world();
        let [rank, world] = [ranks.rank(), ranks.size()].map(|number| usize::try_from(number).unwrap_or(0));
        Ok(Self { rank, world, timeout, ranks, failure: None, universe: ManuallyDrop::new(universe) })
    }

    /// Does what it is asked for, until all have parted or nobody asks any longer.
    pub(super) fn serve(mut self, orders: &Receiver<Order>) {
        while let Ok(order) = orders.recv() {
            match order {
                Order::Exchange { operation, given, answer } => drop(answer.send(self.exchange(operation, given))),
                Order::Fail { reason, answer } => {
                    self.fail(reason);
                    let _ = answer.send(());
                }
                Order::Abort { code, answer } => self.abort(code, &answer),
                Order::Leave { answer } => {
                    let parted = self.exchange("end", vec![Vec::new(); self.world]).map(drop);
                    let ends = parted.is_ok();
                    if ends {
                        drop(ManuallyDrop::into_inner(self.universe)); // The others are about to do the same.
                        let _ = answer.send(parted);
                        return;
                    }
                    let _ = answer.send(parted);
                }
            }
        }
    }

    /// Hands each rank what is its own, and returns what all have for this one.
    fn exchange(&mut self, operation: &'static str, given: Given) -> Result<Given, CommunicatorError> {
        self.check()?;
        let (began, mut asked) = (Instant::now(), 0);
        let mut round = Round::begin(self, operation, given)?;
        loop {
            self.listen(); // first, so that what a failed rank has handed over before is found below
            if round.is_done(self) {
                return round.opened();
            }
            if let Some(failure) = self.failure.clone().filter(|failure| !round.outlives(failure)) {
                return Err(failure);
            }
            if began.elapsed() >= self.timeout {
                let failure = CommunicatorError::Timeout {
                    rank: self.rank,
                    operation,
                    missing: round.missing(),
                    waited: self.timeout,
                };
                self.failure = Some(failure.clone());
                return Err(failure);
            }
            pause(&mut asked);
        }
    }

    /// Ends all ranks; whoever waits for the answer does so to the end.
    fn abort(&self, code: u8, _answer: &Sender<()>) -> ! {
        self.ranks.abort(code.into())
    }

    fn check(&self) -> Result<(), CommunicatorError> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Takes notice of a rank that has failed.
    fn listen(&mut self) {
        let Some((message, status)) = self.ranks.any_process().immediate_matched_probe_with_tag(FAILED) else { return };
        let rank = usize::try_from(status.source_rank()).unwrap_or(0);
        let mut transfer = receive(message, &status);
        let (began, mut asked) = (Instant::now(), 0);
        let reason = loop {
            match transfer.arrived() {
                Some(bytes) => break String::from_utf8_lossy(&bytes).into_owned(),
                None if began.elapsed() < TELLING => pause(&mut asked),
                None => break "its reason did not arrive".into(),
            }
        };
        self.failure.get_or_insert(CommunicatorError::Failed { rank, reason });
    }

    /// Tells the others, unless it was one of them that failed first.
    fn fail(&mut self, reason: String) {
        self.listen();
        if matches!(self.failure, Some(CommunicatorError::Failed { .. })) {
            return;
        }
        let bytes = shortened(&reason).as_bytes().to_vec();
        self.failure = Some(CommunicatorError::Failed { rank: self.rank, reason });
        let others = (0..self.world).filter(|&rank| rank != self.rank);
        let mut told: Vec<Transfer> = others.map(|rank| self.send(rank, FAILED, bytes.clone())).collect();
        let (began, mut asked) = (Instant::now(), 0);
        while !told.is_empty() && began.elapsed() < TELLING {
            told.retain_mut(|transfer| transfer.arrived().is_none());
            pause(&mut asked);
        }
    }

    fn send(&self, rank: usize, tag: i32, bytes: Vec<u8>) -> Transfer {
        let process = self.ranks.process_at_rank(rank as i32);
        Transfer::of(bytes, |bytes| process.immediate_send_with_tag(StaticScope, bytes, tag))
    }
}

/// One exchange of messages.
struct Round {
    operation: &'static str,
    sent: Vec<(usize, Transfer)>,
    coming: Vec<Option<Transfer>>,
    come: Vec<Option<Vec<u8>>>,
}

impl Round {
    fn begin(engine: &Engine, operation: &'static str, given: Given) -> Result<Self, CommunicatorError> {
        let (mut sent, mut come) = (Vec::new(), vec![None; engine.world]);
        for (rank, bytes) in given.into_iter().enumerate() {
            let message = [&[operation.len() as u8], operation.as_bytes(), &bytes].concat();
            if i32::try_from(message.len()).is_err() {
                let reason =
                    format!("MPI counts no more than 2 GiB in a message, and this one has {} bytes", bytes.len());
                return Err(CommunicatorError::Transport { rank: engine.rank, operation, reason });
            }
            match rank == engine.rank {
                true => come[rank] = Some(message),
                false => sent.push((rank, engine.send(rank, GIVEN, message))),
            }
        }
        Ok(Self { operation, sent, coming: (0..engine.world).map(|_| None).collect(), come })
    }

    /// Whether all has arrived, there and here.
    fn is_done(&mut self, engine: &Engine) -> bool {
        self.sent.retain_mut(|(_, transfer)| transfer.arrived().is_none());
        for (rank, (coming, come)) in self.coming.iter_mut().zip(&mut self.come).enumerate() {
            if come.is_none() && coming.is_none() {
                let process = engine.ranks.process_at_rank(rank as i32);
                let found = process.immediate_matched_probe_with_tag(GIVEN);
                *coming = found.map(|(message, status)| receive(message, &status));
            }
            if let Some(bytes) = coming.as_mut().and_then(Transfer::arrived) {
                (*coming, *come) = (None, Some(bytes));
            }
        }
        self.sent.is_empty() && self.come.iter().all(Option::is_some)
    }

    /// Whether the rank that has failed did so after this round: it has handed over its part, and so will the others.
    fn outlives(&self, failure: &CommunicatorError) -> bool {
        let is_here = |rank: usize| self.come[rank].is_some() || self.coming[rank].is_some();
        matches!(failure, CommunicatorError::Failed { rank, .. } if is_here(*rank))
    }

    /// The ranks that are waited for.
    fn missing(&self) -> Vec<usize> {
        let silent: Vec<usize> = (0..self.come.len()).filter(|&rank| self.come[rank].is_none()).collect();
        if silent.is_empty() { self.sent.iter().map(|(rank, _)| *rank).collect() } else { silent }
    }

    /// What came, if all ranks are in the same operation.
    fn opened(self) -> Result<Given, CommunicatorError> {
        let messages = self.come.into_iter().flatten().enumerate();
        messages
            .map(|(rank, mut message)| {
                let end = 1 + usize::from(message.first().copied().unwrap_or(0));
                let problem = match message.get(1..end).map(|found| String::from_utf8_lossy(found).into_owned()) {
                    Some(found) if found == self.operation => return Ok(message.split_off(end)),
                    Some(found) => format!("it is in the {found}"),
                    None => "its message is cut off".into(),
                };
                Err(CommunicatorError::Mismatch { rank, operation: self.operation, problem })
            })
            .collect()
    }
}

fn receive(message: mpi::point_to_point::Message, status: &mpi::point_to_point::Status) -> Transfer {
    let length = usize::try_from(status.count(u8::equivalent_datatype())).unwrap_or(0);
    Transfer::into(length, |bytes| message.immediate_matched_receive_into(StaticScope, bytes))
}

/// Leaves the core to others for a while.
fn pause(asked: &mut usize) {
    *asked += 1;
    if *asked < EAGER { thread::yield_now() } else { thread::sleep(NAP) }
}

/// As much of a reason as a message holds.
fn shortened(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(LONGEST_REASON)]
}
