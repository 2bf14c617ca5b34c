package tunnel

import (
	"errors"
	"net"
	"os"
	"syscall"
)

// socketPair makes two connected sockets.
func socketPair() (near, far *net.UnixConn, err error) {
	syscall.ForkLock.RLock() // or a process that is started meanwhile would inherit them
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	near, nearErr := unixConn(fds[0])
	far, farErr := unixConn(fds[1])
	if err := errors.Join(nearErr, farErr); err != nil {
		for _, conn := range []*net.UnixConn{near, far} {
			if conn != nil {
				_ = conn.Close()
			}
		}
		return nil, nil, err
	}
	return near, far, nil
}

func unixConn(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "tunnel")
	conn, err := net.FileConn(file) // a copy
	_ = file.Close()
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}
