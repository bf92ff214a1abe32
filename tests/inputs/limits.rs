//! What a reader may take for one case: memory, work and time, each far above what an honest reader takes.

use std::io::{self, Write};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use firelight_tests::CountingAllocator;

/// The most bytes that the process may hold beyond what it held before: 2,048 times the largest case. Readers hold up to 20 MB.
const MEMORY: usize = 128 << 20;

/// The most bytes that may be asked for in all, given back or not. It stands for work, and is the same on slow machines and fast
/// ones. Readers ask for up to 40 MB.
const WORK: usize = 512 << 20;

/// A case that takes longer never ends. Readers take less than a second on a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

/// The bytes that the process holds.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// The most that it has held since a case began.
static MOST: AtomicUsize = AtomicUsize::new(0);
/// The bytes that were ever asked for.
static ASKED: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static COUNTING: CountingAllocator = CountingAllocator(count);

/// Counts for all threads: readers share work with others.
fn count(bytes: isize) {
    let size = bytes.unsigned_abs();
    if bytes < 0 {
        HELD.fetch_sub(size, Relaxed);
    } else {
        ASKED.fetch_add(size, Relaxed);
        MOST.fetch_max(HELD.fetch_add(size, Relaxed) + size, Relaxed);
    }
}

/// The case that is checked, and since when.
static RUNNING: Mutex<Option<(String, Instant)>> = Mutex::new(None);

/// Checks one case; an error tells what its reader did wrong, or what it took too much of.
///
/// Whoever calls it is [`alone`]. A case that never ends takes the process with it, which names the case as it ends.
pub(crate) fn within<T>(case: &str, check: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    watch(Some(case));
    let [held, asked] = [&HELD, &ASKED].map(|count| count.load(Relaxed));
    MOST.store(held, Relaxed);
    let answer = check();
    let most = MOST.load(Relaxed).saturating_sub(held);
    let asked = ASKED.load(Relaxed) - asked;
    watch(None);
    let answer = answer?;
    match () {
        () if most > MEMORY => Err(format!("held {} MiB, of {} that a case may take", most >> 20, MEMORY >> 20)),
        () if asked > WORK => Err(format!("asked for {} MiB, of {} that a case may take", asked >> 20, WORK >> 20)),
        () => Ok(answer),
    }
}

/// Keeps other tests of this program waiting: what a case takes is counted for the whole process.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    lock(&ALONE)
}

/// A test that failed with the lock has said so by itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says which case begins, or that none runs, to a thread that looks at the clock.
fn watch(case: Option<&str>) {
    static WATCHER: Once = Once::new();
    WATCHER.call_once(|| drop(thread::spawn(end_with_what_never_ends)));
    *lock(&RUNNING) = case.map(|case| (case.to_string(), Instant::now()));
}

/// Nothing else gets out of an endless loop. What a test prints is lost as the process ends, so that the name goes past it.
fn end_with_what_never_ends() {
    loop {
        thread::sleep(Duration::from_secs(1));
        if let Some(case) = stuck(&lock(&RUNNING), Instant::now()) {
            drop(writeln!(io::stderr(), "{case}: not read within {} s", LONGEST.as_secs()));
            process::abort();
        }
    }
}

fn stuck(running: &Option<(String, Instant)>, now: Instant) -> Option<&str> {
    let (case, begun) = running.as_ref()?;
    (now.duration_since(*begun) > LONGEST).then_some(case.as_str())
}

#[test]
fn a_case_that_takes_too_much_is_wrong() {
    let _alone = alone();
    let take = |times: usize, bytes: usize| {
        (0..times).for_each(|_| drop(std::hint::black_box(vec![0_u8; bytes])));
        Ok(times)
    };
    assert_eq!(within("small", || take(2, MEMORY / 2)), Ok(2));
    assert_eq!(within("wrong", || Err::<(), _>("no".into())), Err("no".into()));
    let beside = || thread::spawn(move || take(1, 2 * MEMORY)).join().expect("a thread");
    for (what, taken) in [
        ("held ", within("large", || take(1, 2 * MEMORY))),
        ("held ", within("beside", beside)),
        ("asked for ", within("busy", || take(9, MEMORY / 2))),
    ] {
        let problem = taken.expect_err(what);
        assert!(problem.starts_with(what), "{problem}");
    }
}

#[test]
fn a_case_that_never_ends_is_named() {
    let now = Instant::now();
    let running = Some(("idx case 3".to_string(), now));
    assert_eq!(stuck(&running, now + LONGEST), None);
    assert_eq!(stuck(&running, now + LONGEST + Duration::from_millis(1)), Some("idx case 3"));
    assert_eq!(stuck(&None, now + LONGEST), None);
}
