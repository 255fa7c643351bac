//! Child processes: a vfork-style start that does not copy our page tables, and the one place that reaps.

mod birth;
mod bounds;
mod swift;

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::rc::Rc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::bounds::Orders;
pub use self::bounds::{Bound, Bounds, Refusal, Resource};
use super::notify::Once;
use super::pool::{self, Lane};

/// What to start.
pub struct Image {
    /// Paths to try in order, absolute or relative to `cwd`.
    pub candidates: Vec<CString>,
    /// The argument vector, with the program's name first.
    pub argv: Vec<CString>,
    /// The whole environment, as `KEY=value`.
    pub envp: Vec<CString>,
    /// The working directory; `None` keeps ours.
    pub cwd: Option<CString>,
    /// Group to run under.
    pub gid: Option<u32>,
    /// User to run under.
    pub uid: Option<u32>,
    /// Supplementary groups to set; `None` keeps ours.
    pub groups: Option<Vec<u32>>,
    /// The OOM score adjustment to write, if it must be put back.
    pub oom_score: Option<i32>,
    /// The soft limit on descriptors to put back, if ours was raised.
    pub descriptors: Option<u64>,
    /// Timer slack in nanoseconds, inherited by every descendant: the mark by which orphans are told apart.
    pub timer_slack: Option<u64>,
    /// What it is held to beyond what it inherits.
    pub bounds: Bounds,
    /// Descriptors that become 0, 1 and 2; every other is closed.
    pub stdio: [OwnedFd; 3],
    /// True when the first of them is a terminal: the child leads a session of its own, and it is its terminal.
    pub terminal: bool,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// The exit status, when it exited.
    pub code: Option<i32>,
    /// The signal that ended it, when one did.
    pub signal: Option<i32>,
    /// What it used; `None` when nobody could count it.
    pub usage: Option<Usage>,
}

/// What the kernel counted for a child and the descendants it waited for (getrusage(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in user mode.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// Peak resident memory of the largest of them, in bytes.
    pub peak: u64,
    /// Reads from block devices, in units of 512 bytes.
    pub block_reads: u64,
    /// Writes to block devices, in units of 512 bytes.
    pub block_writes: u64,
    /// Times it gave the processor up to wait.
    pub voluntary_switches: u64,
    /// Times the processor was taken from it.
    pub involuntary_switches: u64,
}

/// A started child, leader of a process group of its own.
pub struct Child {
    /// Process id, which is also its group's id.
    pub pid: i32,
    exit: Rc<Once<Exit>>,
}

impl Child {
    /// Starts `image` as the leader of a new process group.
    ///
    /// The thread waits for the child until it runs the new program or has failed (some 60 µs). Where the program or
    /// the directory lie on a filesystem that may keep us waiting, or it starts in a cgroup, a helper thread does.
    ///
    /// # Errors
    /// What the failing call said: a bound, the credentials, chdir or exec (ENOENT when no candidate exists).
    pub async fn start(image: Image) -> Result<Self, Refusal> {
        let is_swift = swift::is_swift(&image);
        if is_swift && image.bounds.cgroup.is_none() {
            let pid = vfork(&image)?;
            return Ok(Self::enter(pid, None));
        }
        let _early = Early::expect();
        // Whoever moves processes between cgroups keeps births in cgroups waiting, but hangs no mount.
        let lane = if is_swift {
            Lane::Processes
        } else {
            Lane::Files
        };
        let started = pool::run_on(lane, move || {
            swift::learn(&image);
            let before = REAPED.load(Ordering::SeqCst);
            vfork(&image).map(|pid| (pid, before))
        });
        let (pid, before) = started.await.map_err(io::Error::other)??;
        // It may have ended before we hear of it; an exit from before its start was somebody else's.
        let ended = EARLY.with_borrow_mut(|early| early.ended.remove(&pid));
        let ended = ended.filter(|(number, _)| *number > before);
        Ok(Self::enter(pid, ended.map(|(_, exit)| exit)))
    }

    fn enter(pid: i32, ended: Option<Exit>) -> Self {
        let exit = Rc::new(Once::default());
        match ended {
            Some(ended) => {
                exit.set(ended);
            }
            None => CHILDREN.with_borrow_mut(|children| {
                children.insert(pid, Rc::clone(&exit));
            }),
        }
        Self { pid, exit }
    }

    /// Waits for the end; the child is reaped by then.
    pub async fn exited(&self) -> Exit {
        self.exit.wait().await
    }

    /// How it ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        self.exit.peek()
    }
}

thread_local! {
    static CHILDREN: RefCell<HashMap<i32, Rc<Once<Exit>>>> = RefCell::default();
    static EARLY: RefCell<EarlyExits> = RefCell::default();
    static STACK: RefCell<Option<Stack>> = const { RefCell::new(None) };
}

/// Children that helpers are starting, and the exits of processes that may turn out to be such children.
#[derive(Default)]
struct EarlyExits {
    expected: usize,
    /// By pid: which reaping it was, and the exit.
    ended: HashMap<i32, (u64, Exit)>,
}

/// Counts reapings, so that a helper can tell exits from before its child's start.
static REAPED: AtomicU64 = AtomicU64::new(0);

/// Keeps unknown exits while a helper starts a child.
struct Early;

impl Early {
    fn expect() -> Self {
        EARLY.with_borrow_mut(|early| early.expected += 1);
        Self
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        EARLY.with_borrow_mut(|early| {
            early.expected -= 1;
            if early.expected == 0 {
                early.ended.clear();
            }
        });
    }
}

/// True while `pid` is a child that was started here and not reaped: until then the number is its own.
pub fn is_unreaped(pid: i32) -> bool {
    CHILDREN.with_borrow(|children| children.contains_key(&pid))
}

/// Reaps everything that has ended: our children get their [`Exit`], orphans are just buried.
pub fn reap() {
    while let Some((pid, exit)) = wait_any() {
        let number = REAPED.fetch_add(1, Ordering::SeqCst) + 1;
        let child = CHILDREN.with_borrow_mut(|children| children.remove(&pid));
        match child {
            Some(child) => {
                child.set(exit);
            }
            None => EARLY.with_borrow_mut(|early| {
                if early.expected > 0 {
                    early.ended.insert(pid, (number, exit));
                }
            }),
        }
    }
}

#[expect(
    unsafe_code,
    reason = "wait4 is the one call that also tells the usage"
)]
fn wait_any() -> Option<(i32, Exit)> {
    let mut status = 0;
    // SAFETY: a zeroed rusage is valid; both pointers are to locals that outlive the call.
    let (pid, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let pid = libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage);
        (pid, usage)
    };
    if pid <= 0 {
        return None;
    }
    let exit = Exit {
        code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
        signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
        usage: Some(Usage {
            user: span(usage.ru_utime),
            system: span(usage.ru_stime),
            peak: count(usage.ru_maxrss) * 1024,
            block_reads: count(usage.ru_inblock),
            block_writes: count(usage.ru_oublock),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
        }),
    };
    Some((pid, exit))
}

fn count(number: libc::c_long) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn span(time: libc::timeval) -> Duration {
    let micros = u64::try_from(time.tv_usec).unwrap_or(0);
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0)) + Duration::from_micros(micros)
}

/// Everything the child touches, laid out before it exists: it must not allocate.
struct Plan {
    candidates: Vec<*const libc::c_char>,
    argv: Vec<*const libc::c_char>,
    envp: Vec<*const libc::c_char>,
    cwd: *const libc::c_char,
    gid: Option<u32>,
    uid: Option<u32>,
    groups: Option<Vec<u32>>,
    oom_score: Option<CString>,
    descriptors: Option<u64>,
    timer_slack: Option<u64>,
    stdio: [RawFd; 3],
    terminal: bool,
    /// Signals that we ignore: children start with the default for all.
    ignored: &'static [i32],
    orders: Orders,
    error: i32,
}

impl Plan {
    fn of(image: &Image) -> Self {
        let pointers = |list: &[CString]| -> Vec<*const libc::c_char> {
            let ends = std::iter::once(ptr::null());
            list.iter().map(|text| text.as_ptr()).chain(ends).collect()
        };
        Self {
            candidates: pointers(&image.candidates),
            argv: pointers(&image.argv),
            envp: pointers(&image.envp),
            cwd: image.cwd.as_ref().map_or(ptr::null(), |cwd| cwd.as_ptr()),
            gid: image.gid,
            uid: image.uid,
            groups: image.groups.clone(),
            oom_score: image
                .oom_score
                .filter(|_| image.bounds.oom_score_adj.is_none())
                .and_then(|score| CString::new(score.to_string()).ok()),
            descriptors: image.descriptors,
            timer_slack: image.timer_slack,
            stdio: image.stdio.each_ref().map(AsRawFd::as_raw_fd),
            terminal: image.terminal,
            ignored: ignored_signals(),
            orders: Orders::of(&image.bounds),
            error: 0,
        }
    }
}

#[expect(
    unsafe_code,
    reason = "a child that shares our memory until exec has no safe wrapper"
)]
fn vfork(image: &Image) -> Result<i32, Refusal> {
    let mut plan = Plan::of(image);
    let stack = (stack()?, STACK_BYTES);
    // SAFETY:
    // - CLONE_VFORK stops this thread until the child has exec'd or exited, so `plan` and the stack outlive its use
    //   and nobody else uses the stack meanwhile (it belongs to this thread).
    // - All signals are blocked around the call, so no handler runs in the child on our memory.
    // - `run_child` allocates nothing, takes no lock, and ends in exec or _exit.
    let pid = unsafe {
        let mut every = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        let dumpable = libc::prctl(libc::PR_GET_DUMPABLE);
        libc::sigfillset(&raw mut every);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const every, &raw mut before);
        let pid = birth(&raw mut plan, stack);
        // A child that changes its user marks the memory that it still shares with us as not dumpable.
        if libc::prctl(libc::PR_GET_DUMPABLE) != dumpable {
            libc::prctl(libc::PR_SET_DUMPABLE, dumpable);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut());
        pid?
    };
    if plan.error == 0 {
        return Ok(pid);
    }
    // SAFETY: the child has exited; waiting for it touches no memory of ours.
    unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
    Err(Refusal {
        bound: plan.orders.refused(),
        error: io::Error::from_raw_os_error(plan.error),
    })
}

/// The clone of [`vfork`].
///
/// # Safety
/// As there: the plan is whole, the stack is this thread's own.
#[expect(
    unsafe_code,
    reason = "a child that shares our memory has no safe wrapper"
)]
unsafe fn birth(plan: *mut Plan, stack: (*mut libc::c_void, usize)) -> Result<i32, Refusal> {
    // SAFETY: passed on to the caller.
    unsafe {
        if let Some(cgroup) = (*plan).orders.cgroup {
            if let Some(born) = birth::into(cgroup, run_child, stack, plan.cast()) {
                return born.map_err(|error| Refusal {
                    // Any clone may lack memory or a number; the rest is about the cgroup.
                    bound: match error.raw_os_error() {
                        Some(libc::ENOMEM | libc::EAGAIN) => None,
                        _ => Some(Bound::Cgroup),
                    },
                    error,
                });
            }
            (*plan).orders.moves = true;
        }
        birth::beside(run_child, stack, plan.cast()).map_err(Refusal::from)
    }
}

/// Runs in the child, on our memory: system calls only.
#[expect(unsafe_code, reason = "raw system calls between vfork and exec")]
extern "C" fn run_child(argument: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `argument` is the plan of the parent, which is stopped until we are gone; every pointer in it is to a
    // NUL-terminated string or a NULL-terminated array owned by the parent's frame.
    unsafe {
        let plan = &mut *argument.cast::<Plan>();
        plan.error = prepare(plan).err().unwrap_or_else(|| exec(plan));
        libc::_exit(127)
    }
}

/// Sets the child up; the errors are errno values.
///
/// # Safety
/// To be called in a vfork child only, with a plan as [`run_child`] gets it.
#[expect(unsafe_code, reason = "raw system calls between vfork and exec")]
unsafe fn prepare(plan: &Plan) -> Result<(), i32> {
    // SAFETY: plain system calls on values; the pointers are those of the plan. The credentials are set by the raw
    // calls because the library's would also change the threads of the parent, whose memory we share.
    unsafe {
        if plan.terminal {
            // The leader of a session also leads a group of the same number.
            check(libc::setsid().into())?;
        } else {
            check(libc::setpgid(0, 0).into())?;
        }
        // Numbers below 3 are taken in the daemon, so no source is overwritten before it is copied.
        for (target, source) in (0..).zip(plan.stdio) {
            check(libc::dup2(source, target).into())?;
        }
        if plan.terminal {
            check(libc::ioctl(0, libc::TIOCSCTTY, 0).into())?;
        }
        if let Some(score) = &plan.oom_score {
            let fd = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
            libc::write(fd, score.as_ptr().cast(), score.count_bytes());
            libc::close(fd);
        }
        if let Some(soft) = plan.descriptors {
            let mut limit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            limit.rlim_cur = soft;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
        plan.orders.obey()?;
        if let Some(slack) = plan.timer_slack {
            libc::prctl(libc::PR_SET_TIMERSLACK, slack);
        }
        if let Some(groups) = &plan.groups {
            check(libc::syscall(
                libc::SYS_setgroups,
                groups.len(),
                groups.as_ptr(),
            ))?;
        }
        // The kernel takes the highest number for "leave it": as an id it would keep ours.
        if plan.gid == Some(u32::MAX) || plan.uid == Some(u32::MAX) {
            return Err(libc::EINVAL);
        }
        if let Some(gid) = plan.gid {
            check(libc::syscall(libc::SYS_setresgid, gid, gid, gid))?;
        }
        if let Some(uid) = plan.uid {
            check(libc::syscall(libc::SYS_setresuid, uid, uid, uid))?;
        }
        // As the user who will work there, who may not be allowed in.
        if !plan.cwd.is_null() {
            check(libc::chdir(plan.cwd).into())?;
        }
        // Older kernels lack the flag; every descriptor of ours is close-on-exec anyway.
        libc::syscall(
            libc::SYS_close_range,
            3,
            libc::c_uint::MAX,
            CLOSE_RANGE_CLOEXEC,
        );
        for signal in plan.ignored {
            libc::signal(*signal, libc::SIG_DFL);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
    }
    Ok(())
}

/// The signals that this process ignores: SIGPIPE, and what whoever started us has left ignored (nohup, a shell's `&`).
#[expect(unsafe_code, reason = "dispositions have no safe wrapper")]
fn ignored_signals() -> &'static [i32] {
    static IGNORED: OnceLock<Vec<i32>> = OnceLock::new();
    let is_ignored = |signal: &i32| {
        // SAFETY: a zeroed sigaction is valid; a null new action only asks, and the pointer is to a local.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            libc::sigaction(*signal, ptr::null(), &raw mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        }
    };
    IGNORED.get_or_init(|| (1..=LAST_SIGNAL).filter(is_ignored).collect())
}

/// Tries each candidate; answers the errno that execvp would.
///
/// # Safety
/// As [`prepare`].
#[expect(unsafe_code, reason = "raw system calls between vfork and exec")]
unsafe fn exec(plan: &Plan) -> i32 {
    let mut denied = false;
    for candidate in &plan.candidates {
        if candidate.is_null() {
            break;
        }
        // SAFETY: the arrays end in NULL and the strings in NUL.
        unsafe { libc::execve(*candidate, plan.argv.as_ptr(), plan.envp.as_ptr()) };
        match errno() {
            libc::EACCES => denied = true,
            libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT => {}
            other => return other,
        }
    }
    if denied { libc::EACCES } else { libc::ENOENT }
}

fn check(result: libc::c_long) -> Result<(), i32> {
    if result < 0 { Err(errno()) } else { Ok(()) }
}

#[expect(
    unsafe_code,
    reason = "errno is read in the vfork child, without the standard library"
)]
fn errno() -> i32 {
    // SAFETY: the location is this thread's own errno.
    unsafe { *libc::__errno_location() }
}

/// The stack that children use until exec; one per thread, made at the first start.
struct Stack(*mut libc::c_void);

impl Stack {
    #[expect(unsafe_code, reason = "a stack for clone must be mapped by hand")]
    fn map() -> io::Result<Self> {
        // SAFETY: a fresh anonymous mapping at an address that the kernel chooses.
        let mapped = unsafe {
            libc::mmap(
                ptr::null_mut(),
                STACK_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK,
                -1,
                0,
            )
        };
        match mapped {
            libc::MAP_FAILED => Err(io::Error::last_os_error()),
            start => Ok(Self(start)),
        }
    }
}

impl Drop for Stack {
    #[expect(unsafe_code, reason = "what was mapped by hand is unmapped by hand")]
    fn drop(&mut self) {
        // SAFETY: the mapping is ours; no child runs on it any more, since its start has stopped this thread.
        unsafe { libc::munmap(self.0, STACK_BYTES) };
    }
}

/// The lower end of this thread's stack for children; it stays mapped while the thread lives.
fn stack() -> io::Result<*mut libc::c_void> {
    STACK.with_borrow_mut(|stack| match stack {
        Some(Stack(start)) => Ok(*start),
        None => {
            let mapped = Stack::map()?;
            Ok(stack.insert(mapped).0)
        }
    })
}

const LAST_SIGNAL: i32 = 64;
const STACK_BYTES: usize = 64 * 1024;
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
