//! The clone that starts a child: into its cgroup at once where the kernel can, else next to us.
//!
//! Moving a process to another cgroup stops every fork and exit of the machine for some milliseconds, because the
//! kernel waits for a grace period of its own; being born there costs nothing (clone(2), `CLONE_INTO_CGROUP`).

use std::io;
use std::os::fd::RawFd;

/// The child's main: gets the argument and never returns.
pub(super) type Main = extern "C" fn(*mut libc::c_void) -> libc::c_int;

/// Starts `main` on our memory and the stack of `size` bytes from `stack` on; answers its pid once it has exec'd or
/// ended.
///
/// # Errors
/// What clone said.
///
/// # Safety
/// As for clone(2) with CLONE_VM and CLONE_VFORK: nobody else uses the stack, `argument` is what `main` expects.
#[expect(
    unsafe_code,
    reason = "a child that shares our memory has no safe wrapper"
)]
pub(super) unsafe fn beside(
    main: Main,
    (stack, size): (*mut libc::c_void, usize),
    argument: *mut libc::c_void,
) -> io::Result<i32> {
    // SAFETY: the caller keeps the stack and the argument alive and to itself.
    let pid = unsafe {
        let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
        libc::clone(main, stack.add(size), flags, argument)
    };
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(pid)
}

/// The same in the cgroup whose directory `cgroup` is; `None` where this cannot be done and the child has to move.
///
/// # Errors
/// What clone3 said: the cgroup may not be entered, or there is no room for a process.
///
/// # Safety
/// As [`beside`].
#[expect(unsafe_code, reason = "clone3 has no wrapper in the C library")]
pub(super) unsafe fn into(
    cgroup: RawFd,
    main: Main,
    (stack, size): (*mut libc::c_void, usize),
    argument: *mut libc::c_void,
) -> Option<io::Result<i32>> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK;
    let number = |value: libc::c_int| u64::from(value.unsigned_abs());
    let arguments = Arguments {
        flags: number(flags) | INTO_CGROUP,
        exit_signal: number(libc::SIGCHLD),
        stack: stack as u64,
        stack_size: size as u64,
        cgroup: number(cgroup),
        ..Arguments::default()
    };
    // SAFETY: passed on to the caller; the arguments are whole.
    let result = unsafe { clone3(&arguments, main, argument) }?;
    match i32::try_from(result) {
        Ok(pid) if pid > 0 => Some(Ok(pid)),
        Ok(error) => match -error {
            // An older kernel, or a seccomp profile that cannot look into the arguments.
            libc::ENOSYS | libc::EPERM | libc::EINVAL | libc::E2BIG => None,
            error => Some(Err(io::Error::from_raw_os_error(error))),
        },
        Err(_) => None,
    }
}

/// `struct clone_args` of linux/sched.h in its second version.
#[repr(C, align(8))]
#[derive(Default)]
struct Arguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
    set_tid: u64,
    set_tid_size: u64,
    cgroup: u64,
}

/// The raw call: pid or negative errno.
///
/// # Safety
/// As [`beside`]; the flags include CLONE_VM and CLONE_VFORK.
#[cfg(target_arch = "x86_64")]
#[expect(
    unsafe_code,
    reason = "the child returns from the call on another stack"
)]
unsafe fn clone3(arguments: &Arguments, main: Main, argument: *mut libc::c_void) -> Option<i64> {
    let result: i64;
    // SAFETY: the parent goes on behind the label with every register as the kernel keeps it (syscall clobbers rcx
    // and r11). The child has an aligned stack of its own, calls `main`, which never returns, and touches nothing of
    // this frame.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inout("rax") libc::SYS_clone3 => result,
            in("rdi") arguments,
            in("rsi") size_of::<Arguments>(),
            in("r12") main,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    Some(result)
}

/// The raw call: pid or negative errno.
///
/// # Safety
/// As [`beside`]; the flags include CLONE_VM and CLONE_VFORK.
#[cfg(target_arch = "aarch64")]
#[expect(
    unsafe_code,
    reason = "the child returns from the call on another stack"
)]
unsafe fn clone3(arguments: &Arguments, main: Main, argument: *mut libc::c_void) -> Option<i64> {
    let result: i64;
    // SAFETY: the parent goes on behind the label with every register as the kernel keeps it. The child has an
    // aligned stack of its own, calls `main`, which never returns, and touches nothing of this frame.
    unsafe {
        std::arch::asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x21",
            "blr x20",
            "brk 1",
            "2:",
            inout("x0") arguments => result,
            in("x1") size_of::<Arguments>(),
            in("x8") libc::SYS_clone3,
            in("x20") main,
            in("x21") argument,
        );
    }
    Some(result)
}

/// Not known for this processor.
///
/// # Safety
/// None is needed.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[expect(unsafe_code, reason = "the signature of the others")]
unsafe fn clone3(_: &Arguments, _: Main, _: *mut libc::c_void) -> Option<i64> {
    None
}

/// `CLONE_INTO_CGROUP` of linux/sched.h, which does not fit into the flags of clone.
const INTO_CGROUP: u64 = 0x2_0000_0000;
