package limits

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// setLimit lowers the number of descriptors of another process.
func setLimit(pid int, limit syscall.Rlimit) error {
	return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit.Cur, Max: limit.Max}, nil)
}
