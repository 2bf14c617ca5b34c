package kafkatest

import "syscall"

func dieWithParent() *syscall.SysProcAttr {
	// A process group of its own, so that Ctrl-C in a terminal reaches the test first, which then cleans up.
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}
