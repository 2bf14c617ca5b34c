//go:build !linux

package kafkatest

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }
