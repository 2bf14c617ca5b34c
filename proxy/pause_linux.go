package proxy

import (
	"reflect"

	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// gnet watches a connection for input from its first to its last moment, and offers no way to stop. But what it watches
// is an ordinary level-triggered epoll set, and taking EPOLLIN off a descriptor there pauses reading in the true sense:
// nobody reads, the kernel's buffer fills, TCP closes the window. The rest of gnet does not notice; when it changes the
// events itself, because output has to wait or has drained, EPOLLIN comes back, and the session takes it off again at
// the next read. Errors and resets are always reported, so a paused connection whose peer dies still ends. A FIN is seen
// after resuming, with all the bytes before it.
//
// gnet keeps the set's descriptor to itself, so it is read by reflection, which the language allows for unexported fields of
// plain kinds. If a later gnet arranges them differently, pollerOf fails, a test says so, and the byte limits of Config
// bound memory by closing instead.

// poller is the epoll descriptor of one event loop, -1 if unknown.
type poller int

func pollerOf(c gnet.Conn) poller {
	v := reflect.ValueOf(c)
	for _, field := range []string{"loop", "poller", "fd"} {
		if v.Kind() == reflect.Pointer {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return -1
		}
		v = v.FieldByName(field)
	}
	if v.Kind() != reflect.Int {
		return -1
	}
	return poller(v.Int())
}

// pause stops reading c. It reports whether it did. REQUIRES: on c's event loop, c open.
func (p poller) pause(c gnet.Conn) bool { return p.watch(c, 0) }

// resume undoes pause.
func (p poller) resume(c gnet.Conn) bool { return p.watch(c, unix.EPOLLIN|unix.EPOLLPRI) }

func (p poller) watch(c gnet.Conn, events uint32) bool {
	if p < 0 {
		return false
	}
	if c.OutboundBuffered() > 0 {
		events |= unix.EPOLLOUT
	}
	fd := c.Fd()
	return unix.EpollCtl(int(p), unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Fd: int32(fd), Events: events}) == nil
}
