package mirrormsg

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// message is what requests and responses have in common.
type message interface {
	AppendTo([]byte) []byte
	ReadFrom([]byte) error
}

// FuzzReadFrom feeds every message with any bytes. What is read without error must come out again as bytes that mean the
// same, and never as more than was read.
func FuzzReadFrom(f *testing.F) {
	for _, file := range goldenFiles(f) {
		frame := readHex(f, file)
		if strings.HasSuffix(file, "_request.hex") {
			f.Add(int16(frame[1]), false, frame[17:])
		} else {
			f.Add(golden()[strings.TrimSuffix(strings.TrimPrefix(file, "testdata/golden/"), ".hex")].(kmsg.Response).Key(), true, frame[5:])
		}
	}
	f.Fuzz(func(t *testing.T, key int16, response bool, body []byte) {
		request := func() kmsg.Request {
			req := RequestForKey(key)
			if req != nil {
				req.SetVersion(req.MaxVersion())
			}
			return req
		}
		if request() == nil || response && key == createTopicsKey {
			return
		}
		fresh := func() message { return request() }
		if response {
			fresh = func() message { return request().ResponseKind() }
		}
		m := fresh()
		if m.ReadFrom(body) != nil {
			return
		}
		written := m.AppendTo(nil)
		require.LessOrEqual(t, len(written), len(body))
		again := fresh()
		require.NoError(t, again.ReadFrom(written))
		require.Equal(t, written, again.AppendTo(nil))
	})
}
