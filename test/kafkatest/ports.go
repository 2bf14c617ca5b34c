package kafkatest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// Ports are taken below the ephemeral range, so that no outgoing connection of the machine can sit on the port of a
// broker that is down for a moment.
const lowestPort, highestPort = 15000, 29999

// Ports is a set of TCP ports of 127.0.0.1 that no other user of this package has.
type Ports struct {
	Numbers []int
	locks   []*os.File
}

// ReservePorts finds n free ports and keeps other processes that use this package off them until Release. The ports
// themselves stay unbound.
func ReservePorts(n int) (*Ports, error) { return reserve(n, false) }

// ReserveRange is ReservePorts for n ports in a row.
func ReserveRange(n int) (*Ports, error) { return reserve(n, true) }

func reserve(n int, contiguous bool) (*Ports, error) {
	dir := filepath.Join(os.TempDir(), "mirrorgate-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("kafkatest: port locks: %w", err)
	}
	p := &Ports{}
	port := lowestPort + rand.IntN(highestPort-lowestPort)
	for range 20_000 {
		if len(p.Numbers) == n {
			return p, nil
		}
		if port++; port > highestPort {
			port = lowestPort
			if contiguous {
				p.drop()
			}
		}
		lock := lockPort(dir, port)
		if lock == nil {
			if contiguous {
				p.drop()
			}
			continue
		}
		p.Numbers, p.locks = append(p.Numbers, port), append(p.locks, lock)
	}
	p.Release()
	return nil, errors.New("kafkatest: no free ports between 15000 and 29999")
}

// lockPort returns nil where the port is taken.
func lockPort(dir string, port int) *os.File {
	lock, err := os.OpenFile(filepath.Join(dir, strconv.Itoa(port)), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o666)
	if err != nil {
		return nil
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil && isFree(port) {
		return lock
	}
	lock.Close()
	return nil
}

func isFree(port int) bool {
	listener, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return false
	}
	listener.Close()
	return true
}

func (p *Ports) drop() {
	for _, lock := range p.locks {
		lock.Close()
	}
	p.Numbers, p.locks = nil, nil
}

// Release lets others have the ports.
func (p *Ports) Release() { p.drop() }
