//go:build !linux

package proxy

import "github.com/panjf2000/gnet/v2"

// poller: reading cannot be paused here; see Config.OutboundMax and Config.PendingMax.
type poller int

func pollerOf(gnet.Conn) poller { return -1 }

func (p poller) pause(gnet.Conn) bool { return false }

func (p poller) resume(gnet.Conn) bool { return false }
