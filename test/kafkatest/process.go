package kafkatest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is a child process that dies with this one. Test programs (the gateway, MirrorMaker) are run with it too.
type Process struct {
	PID int

	cmd   *exec.Cmd
	log   string
	done  chan struct{}
	state error // what Wait said; read after done
}

// StartProcess runs a command with its output appended to the file log. The child gets SIGKILL if this process dies.
func StartProcess(cmd *exec.Cmd, log string) (*Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, fmt.Errorf("kafkatest: log of %s: %w", cmd.Path, err)
	}
	cmd.Stdout, cmd.Stderr = file, file
	cmd.SysProcAttr = dieWithParent()
	p := &Process{cmd: cmd, log: log, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		defer close(p.done)
		// The kernel sends the death signal when the thread that made the child ends, so it has to live on.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		file.Close()
		if err == nil {
			p.PID = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.state = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("kafkatest: starting %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is how the process ended: nil for exit status 0. It waits for the end.
func (p *Process) Err() error {
	<-p.done
	return p.state
}

// Signal sends a signal; one to a process that has ended is not an error.
func (p *Process) Signal(signal os.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("kafkatest: signal %v to %s: %w", signal, p.cmd.Path, err)
	}
	return nil
}

// Kill ends the process with SIGKILL and waits for its end.
func (p *Process) Kill() {
	_ = p.Signal(syscall.SIGKILL)
	<-p.done
}

// Stop ends the process with SIGTERM, and with SIGKILL if it takes longer than patience; it reports which.
func (p *Process) Stop(patience time.Duration) (clean bool) {
	_ = p.Signal(syscall.SIGTERM)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		p.Kill()
		return false
	}
}

// LogTail is the last n lines that the process (and its predecessors with the same log) wrote.
func (p *Process) LogTail(n int) string {
	output, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return tail(output, n)
}
