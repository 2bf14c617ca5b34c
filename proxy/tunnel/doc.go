// Package tunnel ends TLS for the proxy, whose event loops know plain descriptors only. A connection's TLS ends in two
// goroutines that copy between it and one end of a socket pair; the loop gets the other end, so that sessions are the same
// with and without TLS, on either side.
//
//	client ══TLS══ remote │ far ──socket pair── near │ event loop │ near ──socket pair── far │ remote ══TLS══ broker
//
// # What it costs
//
// A TLS side of a session has three descriptors instead of one, two goroutines (some 30 KiB with the buffers of crypto/tls
// while it is idle), and each byte is copied twice more. The socket pair's buffers are the kernel's, and bounded;
// back-pressure passes through them.
//
// # Ends
//
// Each half ends on its own, as over TCP. When the loop shuts or closes its end, what it wrote before is sent, then the
// peer gets close_notify and a FIN, and what the peer still sends is read for LingerTimeout: closing at once, with bytes
// unread, would send a reset that can destroy what the peer has not read yet. When the peer ends, the loop reads what is
// left and then the end. A peer that takes nothing for WriteTimeout is given up.
package tunnel
