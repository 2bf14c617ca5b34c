package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"

	"go.uber.org/zap"
)

// Accepted is a connection that Config.Accept has let in.
type Accepted struct {
	// Conn is what the event loop takes over: a *net.TCPConn or *net.UnixConn.
	Conn net.Conn
	// ServerName is the host name that the client has asked for, "" if it has not; see Config.BrokerHost.
	ServerName string
	// Principal is who the client has proved to be, for logs.
	Principal string
}

// prepare runs Accept; it returns nil if the connection is not let in.
func (srv *Server) prepare(a *arrival, conn net.Conn) net.Conn {
	ctx, cancel := context.WithTimeout(srv.accepting, srv.cfg.AcceptTimeout)
	defer cancel()
	accepted, err := srv.cfg.Accept(ctx, conn)
	if err == nil && srv.cfg.BrokerHost != "" {
		if a.node, err = srv.nodeOf(accepted.ServerName); err != nil {
			_ = accepted.Conn.Close()
		}
	}
	log := srv.log.With(zap.String("client", a.remote))
	switch {
	case srv.accepting.Err() != nil && err != nil:
		return nil
	case errors.Is(err, io.EOF):
		log.Debug("client left before it was let in", zap.Error(err))
		return nil
	case err != nil:
		srv.metrics.failed(reasonHandshake)
		log.Warn("connection refused: "+err.Error(), zap.String("reason", reasonHandshake))
		return nil
	}
	if a.principal = accepted.Principal; a.principal != "" {
		log.Info("client has a certificate", zap.String("principal", a.principal), zap.Int32("node", a.node))
	}
	return accepted.Conn
}

const nodeVariable = "$(node_id)"

// CheckBrokerHost checks a Config.BrokerHost.
func CheckBrokerHost(template string) error {
	if strings.Count(template, nodeVariable) != 1 {
		return fmt.Errorf("%q does not contain %s exactly once", template, nodeVariable)
	}
	name := brokerName(template, 0)
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 52 || strings.Trim(strings.ToLower(label), "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return fmt.Errorf("%q does not make host names", template)
		}
	}
	if net.ParseIP(name) != nil {
		return fmt.Errorf("%q makes IP addresses, but must make host names", template)
	}
	return nil
}

// brokerName is the host name of a broker.
func brokerName(template string, node int32) string {
	return strings.Replace(template, nodeVariable, strconv.Itoa(int(node)), 1)
}

// nodeOf returns the broker that a client means by a host name, -1 for the bootstrap.
func (srv *Server) nodeOf(name string) (int32, error) {
	before, after, _ := strings.Cut(strings.ToLower(srv.cfg.BrokerHost), nodeVariable)
	rest, ok := strings.CutPrefix(strings.ToLower(strings.TrimSuffix(name, ".")), before)
	number, ok2 := strings.CutSuffix(rest, after)
	if !ok || !ok2 {
		return -1, nil
	}
	node, err := strconv.ParseInt(number, 10, 32)
	if err != nil || node < 0 || strconv.FormatInt(node, 10) != number {
		return -1, nil // another name that looks alike
	}
	srv.mu.RLock()
	defer srv.mu.RUnlock()
	if srv.brokers[int32(node)] == nil {
		return 0, fmt.Errorf("it asks for %s, but no broker %d is known", name, node)
	}
	return int32(node), nil
}
