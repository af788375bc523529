//! [`StepScheduler`]: background work that is done when the test says so, a step at a time; and [`crash_points`].

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use esker::scheduler::{BackgroundWork, Scheduler};
use esker::vfs::{Call, CrashMode, Event, ObserveVfs, Vfs};
use esker::{Components, Db, ManualClock, Options};

use super::Rig;

/// Does nothing by itself, unless somebody waits for progress and it is not held.
#[derive(Default)]
pub struct StepScheduler {
    work: Mutex<Option<Weak<dyn BackgroundWork>>>,
    held: AtomicBool,
    stopped: AtomicBool,
}

impl StepScheduler {
    /// Opens a database on `rig` with a scheduler of its own.
    pub fn open(rig: &Rig, options: &Options) -> (Db, Arc<StepScheduler>) {
        let scheduler = Arc::new(StepScheduler::default());
        let components = Components {
            scheduler: Arc::clone(&scheduler) as Arc<dyn Scheduler>,
            clock: Arc::new(ManualClock::new()),
            ..rig.components(options)
        };
        (Db::open_with("/db", options.clone(), components).unwrap(), scheduler)
    }

    /// Whether those who wait for progress get none.
    pub fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }

    /// Does one step; `false` when there is nothing to do.
    pub fn step(&self) -> bool {
        let work = self.work.lock().unwrap().as_ref().and_then(Weak::upgrade);
        !self.stopped.load(Ordering::SeqCst) && work.is_some_and(|work| work.step())
    }

    /// Does all there is to do; returns how many steps that took.
    pub fn run(&self) -> usize {
        std::iter::from_fn(|| self.step().then_some(())).count()
    }
}

impl std::fmt::Debug for StepScheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepScheduler").finish_non_exhaustive()
    }
}

impl Scheduler for StepScheduler {
    fn work_available(&self, work: &Arc<dyn BackgroundWork>) {
        *self.work.lock().unwrap() = Some(Arc::downgrade(work));
    }

    fn progressed(&self) {}

    fn wait_for_progress(&self, work: &Arc<dyn BackgroundWork>, _seen: u64) {
        if self.held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        } else {
            work.step();
        }
    }

    fn delay(&self, _duration: Duration) {}

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }
}

/// Runs `work` on a file system over `rig`, and returns an image of the disk at each call that changes something, with
/// the call in words. `mode` chooses the kind of crash by the number of the call.
pub fn crash_points(
    rig: &Rig,
    mode: impl Fn(u64) -> CrashMode + Send + Sync + 'static,
    work: impl FnOnce(Arc<dyn Vfs>),
) -> Vec<(String, Rig)> {
    let images = Arc::new(Mutex::new(Vec::new()));
    let (mem, taken) = (rig.mem.clone(), Arc::clone(&images));
    let observe = move |call: &Call<'_>, event: Event| {
        if event == Event::Before && call.kind.is_change() {
            let mut taken = taken.lock().unwrap();
            let image = mem.crash_clone_with(mode(taken.len() as u64));
            taken.push((call.to_string(), image));
        }
    };
    work(Arc::new(ObserveVfs::new(Arc::new(rig.order.clone()), Arc::new(observe))));
    let images = std::mem::take(&mut *images.lock().unwrap());
    images.into_iter().map(|(call, image)| (call, Rig::on(image))).collect()
}
