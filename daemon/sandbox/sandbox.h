/* The sandbox: resource limits and a filter of system calls for helper programs, which read
 * untrusted files. */
#ifndef TRAJD_SANDBOX_SANDBOX_H
#define TRAJD_SANDBOX_SANDBOX_H

#include <stdbool.h>
#include <sys/stat.h>

/* The descriptor of the socket to the parent. It is the only one that a helper keeps above the
 * standard ones. */
#define TRAJD_SANDBOX_SOCKET 3

/* Has the kernel kill this process when the thread that started it ends. False where the process
 * that made its socket is gone already, or is another one. Meant to be called first. */
bool trajd_sandbox_end_with_parent(void);

/* Closes all descriptors above the socket's and sets the resource limits. `writes`: the program may
 * write to files, of any size. False where a limit cannot be set. */
bool trajd_sandbox_limit(bool writes);

/* Limits the processor time of the whole process. Not for a child that works as long as its parent
 * has work, and whose parent limits the time of each answer. False where it cannot be set. */
bool trajd_sandbox_limit_time(void);

/* Allows only the system calls that libhdf5 needs once it has started; all others fail with EPERM.
 * No file can be opened or looked up, no memory becomes executable, and no other process gets a
 * signal. `writes`: files that are open already may be written to. Does
 * nothing in builds with a sanitizer, on other processors than x86-64 and ARM64, and on kernels
 * without filters. False where the kernel refuses the filter. */
bool trajd_sandbox_filter(bool writes);

/* fstat() in the sandbox. That of glibc may use a system call that looks up paths, too. */
int trajd_sandbox_fstat(int fd, struct stat *status);

#endif
