package proxy

// openFrom is the size in bytes from which on a request can be decided about by its beginning, of which openingBytes are waited for.
const (
	openFrom     = 16 << 10
	openingBytes = 1 << 10
)

// open has the handler look at the start of a large request.
func (s *session) open(b []byte) bool {
	if len(b) < lengthBytes+openingBytes {
		return false
	}
	r := &s.request
	end := min(len(b), r.left)
	switch pass := r.route.Opening(b[lengthBytes:end:end]); {
	case pass != nil:
		r.phase, r.route, r.still = deciding, Route{Rewrite: pass.Rewrite, Stream: pass.Stream}, pass.Still
	case r.route.Whole:
		r.phase = collecting
	default:
		r.phase = deciding
	}
	return true
}

// mayPass asks whether the request that streams may go on.
func (s *session) mayPass() error {
	if s.request.still == nil {
		return nil
	}
	return s.request.still()
}
