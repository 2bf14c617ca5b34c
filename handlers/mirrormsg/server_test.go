package mirrormsg

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// serve answers ApiVersions, which lists key, and key itself with the golden ListMirrorsResponse, until the test ends.
func serve(t *testing.T, key int16) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conns.Go(func() { answerConn(conn, key) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		conns.Wait()
	})
	return listener.Addr().String()
}

func answerConn(conn net.Conn, key int16) {
	defer conn.Close()
	for {
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			return
		}
		body := answer(int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:])), key)
		if body == nil {
			return
		}
		out := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
		out = append(append(out, frame[4:8]...), body...)
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

func answer(key, version, own int16) []byte {
	switch key {
	case int16(kmsg.ApiVersions):
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.Version = version
		for _, k := range []int16{0, 3, int16(kmsg.ApiVersions), own} {
			listed := kmsg.NewApiVersionsResponseApiKey()
			listed.ApiKey = k
			if k != own {
				listed.MaxVersion = kmsg.RequestForKey(k).MaxVersion()
			}
			resp.ApiKeys = append(resp.ApiKeys, listed)
		}
		return resp.AppendTo(nil)
	case own:
		return golden()["098_list_mirrors_response"].(kmsg.Response).AppendTo([]byte{0})
	}
	return nil
}
