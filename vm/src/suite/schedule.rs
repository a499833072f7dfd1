//! Runs jobs in parallel, as many as the machine can take.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::suite::process;
use crate::suite::result::{TestResult, Verdict};
use crate::suite::tier::Section;

/// Something that must be built before a job can run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    /// The workspace's test programs, commands and libraries.
    Programs,
    /// The guest's first process.
    Init,
    /// The release kernel.
    ReleaseKernel,
    /// The debug kernel.
    DebugKernel,
    /// The series' own test program in C.
    Kselftest,
    /// The benchmark that counts instructions in a guest.
    GuestBench,
    /// The kernels for arm64 and riscv64.
    CrossKernels,
    /// The kernels that `scripts/compare` compares.
    CompareKernels,
    /// The kernel's Debian packages.
    KernelPackage,
}

/// The result of a job.
#[derive(Default)]
pub(crate) struct JobResult {
    /// The tests that it ran.
    pub(crate) results: Vec<TestResult>,
    /// Further jobs that it found.
    pub(crate) jobs: Vec<Job>,
}

impl JobResult {
    /// Jobs that were found, without a result yet.
    pub(crate) fn found(jobs: Vec<Job>) -> Self {
        Self {
            results: Vec::new(),
            jobs,
        }
    }
}

impl From<Vec<TestResult>> for JobResult {
    fn from(results: Vec<TestResult>) -> Self {
        Self {
            results,
            jobs: Vec::new(),
        }
    }
}

type TestFn = Box<dyn FnOnce(&ResultSender) -> JobResult + Send>;
type BuildFn = Box<dyn FnOnce() -> Result<(), String> + Send>;

/// The work of a job.
pub(crate) enum Task {
    /// Builds something for others.
    Build(Need, BuildFn),
    /// Runs tests.
    Test(TestFn),
}

/// A part of a run.
pub(crate) struct Job {
    /// The section that it belongs to.
    pub(crate) section: Section,
    /// Its name in reports.
    pub(crate) name: String,
    /// The builds that it needs.
    pub(crate) needs: Vec<Need>,
    /// How many of the [`capacity`] it takes while it runs.
    pub(crate) weight: usize,
    /// Its expected duration: the longest jobs are started first.
    pub(crate) expected: Duration,
    /// Whether the tests of a program run in one process, and are not timed one by one.
    pub(crate) is_whole: bool,
    /// Its work.
    pub(crate) task: Task,
}

/// A job's part of the whole run's time.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// The job's section.
    pub(crate) section: Section,
    /// The job's name.
    pub(crate) name: String,
    /// How long it ran.
    pub(crate) time: Duration,
    /// The processor time of its programs, which depends less on parallel jobs.
    pub(crate) cpu_time: Duration,
    /// Whether it built something.
    pub(crate) is_build: bool,
    /// Whether it ran the tests of a program in one process.
    pub(crate) is_whole: bool,
}

/// The total weight of parallel jobs: three for each processor, because most tests wait most of the
/// time, and another guest, or two short tests. With two, a quarter of the processors' time was
/// unused.
pub(crate) fn capacity() -> usize {
    2 + 3 * std::thread::available_parallelism().map_or(1, usize::from)
}

enum BuildState {
    Pending,
    Built,
    Failed(String),
}

/// Takes results of a running job: a guest runs many tests.
pub(crate) struct ResultSender(Sender<Event>);

impl ResultSender {
    /// Shows the result now.
    pub(crate) fn send(&self, result: TestResult) {
        // The receiver outlives all jobs.
        let _ = self.0.send(Event::Result(result));
    }
}

enum Event {
    Result(TestResult),
    Ended(EndedJob),
}

/// A job that has ended.
struct EndedJob {
    weight: usize,
    span: Span,
    built: Option<(Need, Result<(), String>)>,
    done: JobResult,
}

/// Runs all jobs, and those that they find. Calls `show` with each result at once.
pub(crate) fn run(
    jobs: Vec<Job>,
    capacity: usize,
    mut show: impl FnMut(&TestResult),
) -> (Vec<TestResult>, Vec<Span>) {
    let mut needs: HashMap<Need, BuildState> = HashMap::new();
    for job in &jobs {
        if let Task::Build(need, _) = job.task {
            needs.insert(need, BuildState::Pending);
        }
    }
    let (mut waiting, mut results, mut spans) = (jobs, Vec::new(), Vec::new());
    let mut running: Vec<usize> = Vec::new();
    let (sender, events): (Sender<Event>, Receiver<Event>) = channel();
    std::thread::scope(|scope| {
        loop {
            waiting.sort_by_key(|job| std::cmp::Reverse(job.expected));
            for result in without_needs(&mut waiting, &mut needs) {
                show(&result);
                results.push(result);
            }
            while let Some(at) = next(&waiting, &needs, capacity, &running) {
                let job = waiting.remove(at);
                running.push(job.weight);
                let sender = sender.clone();
                scope.spawn(move || {
                    let early = ResultSender(sender.clone());
                    // The receiver outlives all jobs.
                    let _ = sender.send(Event::Ended(execute(job, &early)));
                });
            }
            if running.is_empty() {
                break;
            }
            let event = match events.recv() {
                Ok(Event::Ended(event)) => event,
                Ok(Event::Result(result)) => {
                    show(&result);
                    results.push(result);
                    continue;
                }
                Err(_) => break,
            };
            if let Some(at) = running.iter().position(|weight| *weight == event.weight) {
                running.swap_remove(at);
            }
            if let Some((need, outcome)) = event.built {
                let state = match outcome {
                    Ok(()) => BuildState::Built,
                    Err(why) => BuildState::Failed(why),
                };
                needs.insert(need, state);
            }
            for result in event.done.results {
                show(&result);
                results.push(result);
            }
            waiting.extend(event.done.jobs);
            spans.push(event.span);
        }
    });
    (results, spans)
}

/// The job that can be started now: the first that is ready, if there is room for it.
///
/// Else a lighter one may overtake it, but only in the room that jobs of its weight leave free in
/// any case. So a heavy job does not wait until all light ones are over. Where nothing runs, a job
/// may be heavier than the machine.
fn next(
    waiting: &[Job],
    needs: &HashMap<Need, BuildState>,
    capacity: usize,
    running: &[usize],
) -> Option<usize> {
    let is_ready = |job: &Job| {
        let is_built = |need: &Need| matches!(needs.get(need), Some(BuildState::Built));
        job.needs.iter().all(is_built)
    };
    let first = waiting.iter().position(is_ready)?;
    let weight = waiting[first].weight;
    let free = capacity.saturating_sub(running.iter().sum());
    if weight <= free || running.is_empty() {
        return Some(first);
    }
    let lighter = running
        .iter()
        .filter(|other| **other < weight)
        .sum::<usize>();
    let room = (capacity % weight).saturating_sub(lighter).min(free);
    waiting
        .iter()
        .position(|job| is_ready(job) && job.weight <= room)
}

/// Removes the jobs whose needs could not be built, with one result for each.
fn without_needs(waiting: &mut Vec<Job>, needs: &mut HashMap<Need, BuildState>) -> Vec<TestResult> {
    let mut results = Vec::new();
    loop {
        let lacks = |job: &Job| {
            job.needs.iter().find_map(|need| match needs.get(need) {
                Some(BuildState::Failed(why)) => Some(why.clone()),
                None => Some(format!("nothing builds {need:?}")),
                _ => None,
            })
        };
        let found = waiting
            .iter()
            .enumerate()
            .find_map(|(at, job)| Some((at, lacks(job)?)));
        let Some((at, why)) = found else { break };
        let job = waiting.remove(at);
        if let Task::Build(need, _) = job.task {
            needs.insert(need, BuildState::Failed(why.clone()));
        }
        results.push(TestResult {
            section: job.section,
            program: job.name,
            name: String::new(),
            verdict: Verdict::Failed(format!("not run: {why}")),
            time: Duration::ZERO,
            output: String::new(),
        });
    }
    results
}

fn execute(job: Job, early: &ResultSender) -> EndedJob {
    let begun = Instant::now();
    let mut done = JobResult::default();
    let (is_build, built) = match job.task {
        Task::Test(work) => {
            done = work(early);
            (false, None)
        }
        Task::Build(need, build) => {
            let outcome = build().map_err(|why| format!("{}: {why}", job.name));
            if let Err(why) = &outcome {
                done.results.push(TestResult {
                    section: job.section,
                    program: job.name.clone(),
                    name: String::new(),
                    verdict: Verdict::Failed("cannot be built".into()),
                    time: begun.elapsed(),
                    output: why.clone(),
                });
            }
            // The build's own output is shown once, not with each job that needs it.
            let brief = outcome.map_err(|_| format!("{} cannot be built", job.name));
            (true, Some((need, brief)))
        }
    };
    EndedJob {
        weight: job.weight,
        span: Span {
            section: job.section,
            name: job.name,
            time: begun.elapsed(),
            cpu_time: process::take_cpu_time(),
            is_build,
            is_whole: job.is_whole,
        },
        built,
        done,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn result(name: &str) -> TestResult {
        TestResult {
            section: Section::Host,
            program: name.into(),
            name: String::new(),
            verdict: Verdict::Passed,
            time: Duration::ZERO,
            output: String::new(),
        }
    }

    fn job(name: &str, needs: &[Need], weight: usize, task: Task) -> Job {
        Job {
            section: Section::Host,
            name: name.into(),
            needs: needs.to_vec(),
            weight,
            expected: Duration::ZERO,
            is_whole: false,
            task,
        }
    }

    fn passing(name: &'static str, needs: &[Need]) -> Job {
        let work = move |_: &ResultSender| JobResult {
            results: vec![result(name)],
            jobs: Vec::new(),
        };
        job(name, needs, 1, Task::Test(Box::new(work)))
    }

    fn run_all(jobs: Vec<Job>, capacity: usize) -> Vec<TestResult> {
        run(jobs, capacity, |_| {}).0
    }

    #[test]
    fn jobs_wait_for_their_needs() {
        let build = job("init", &[], 1, Task::Build(Need::Init, Box::new(|| Ok(()))));
        let results = run_all(vec![passing("a", &[Need::Init]), build], 1);
        assert_eq!(results.len(), 1);
        assert!(!results[0].has_failed());
    }

    #[test]
    fn failed_build_fails_all_that_needs_it() {
        let build = |need, needs: &[Need], outcome: Result<(), String>| {
            job("b", needs, 1, Task::Build(need, Box::new(|| outcome)))
        };
        let jobs = vec![
            build(Need::Init, &[], Err("no compiler".into())),
            build(Need::Kselftest, &[Need::Init], Ok(())),
            passing("a", &[Need::Kselftest]),
            passing("c", &[]),
        ];
        let results = run_all(jobs, 2);
        let failed: Vec<_> = results
            .iter()
            .filter(|result| result.has_failed())
            .collect();
        // The build itself, the one on top of it, and the test.
        assert_eq!((results.len(), failed.len()), (4, 3));
        assert!(
            failed
                .iter()
                .any(|result| result.output.contains("no compiler"))
        );
    }

    #[test]
    fn job_fails_if_its_need_is_not_built() {
        let results = run_all(vec![passing("a", &[Need::DebugKernel])], 1);
        assert!(results[0].has_failed());
    }

    #[test]
    fn jobs_that_are_found_run_too() {
        let work = |_: &ResultSender| JobResult {
            results: Vec::new(),
            jobs: vec![passing("a", &[]), passing("b", &[])],
        };
        let results = run_all(vec![job("list", &[], 1, Task::Test(Box::new(work)))], 2);
        assert_eq!(results.len(), 2);
    }

    #[test]
    fn no_more_runs_at_once_than_the_machine_takes() {
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let jobs = (0..12).map(|_| {
            let (now, most) = (Arc::clone(&now), Arc::clone(&most));
            let work = move |_: &ResultSender| {
                // Relaxed: the numbers stand for themselves.
                let running = now.fetch_add(2, Ordering::Relaxed) + 2;
                most.fetch_max(running, Ordering::Relaxed);
                std::thread::yield_now();
                now.fetch_sub(2, Ordering::Relaxed);
                JobResult::default()
            };
            job("a", &[], 2, Task::Test(Box::new(work)))
        });
        run_all(jobs.collect(), 4);
        assert!(most.load(Ordering::Relaxed) <= 4);
    }

    #[test]
    fn light_jobs_overtake_in_spare_room_only() {
        let of = |weight| {
            job(
                "a",
                &[],
                weight,
                Task::Test(Box::new(|_: &ResultSender| JobResult::default())),
            )
        };
        let waiting = [of(2), of(1)];
        let next = |running: &[usize]| next(&waiting, &HashMap::new(), 5, running);
        assert_eq!(next(&[2]), Some(0));
        // Two heavy jobs leave room for one light one.
        assert_eq!(next(&[2, 2]), Some(1));
        assert_eq!(next(&[2, 2, 1]), None);
        // Room for the heavy job is not given to another light one.
        assert_eq!(next(&[2, 1, 1]), None);
        assert_eq!(next(&[1, 1, 1]), Some(0));
    }

    #[test]
    fn job_heavier_than_the_machine_runs_alone() {
        let work = |_: &ResultSender| JobResult {
            results: vec![result("a")],
            jobs: Vec::new(),
        };
        let jobs = vec![job("a", &[], 9, Task::Test(Box::new(work)))];
        assert_eq!(run_all(jobs, 4).len(), 1);
    }
}
